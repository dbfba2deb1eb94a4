"""Replays of small workloads through the family's own host code, on paper."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from aotkern import schemas
from aotkern.audit.counting import count_jit
from aotkern.audit.replay.arms import JitArm, LaunchingArm, fresh
from aotkern.audit.replay.drive import CAPTURE, SCORED, WARMUP, drive
from aotkern.audit.replay.judge import ReplayReport, usual_bounds
from aotkern.audit.replay.run import declared, kernels_of
from aotkern.audit.replay.workload import Limits, Workload
from aotkern.cli.replay import replay
from aotkern.triton_bridge.paper import paper_device

torch = pytest.importorskip("torch")

from kernels import gather  # noqa: E402
from kernels.replayed import open_server  # noqa: E402

WORKLOADS = Path(__file__).parents[3] / "audits" / "workloads"
GATHERS = {kernel.name: kernel.function for kernel in gather.KERNELS}


def run(*arguments: str):
    done = CliRunner().invoke(replay, [*arguments, "--server", "kernels.replayed", "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schemas.load("replay")).validate(document)
    return done.exit_code, {arm["arm"]: arm for arm in document["arms"]}


def gathered(arm) -> dict[str, int]:
    (row,) = [row for row in arm["kernels"] if row["kernel"].startswith("cp_gather")]
    return row["binaries"]


def test_a_sweep_of_24_shapes_compiles_24_then_1_then_0():
    code, arms = run(str(WORKLOADS / "gather-sweep.toml"))
    assert code == 0
    assert {name: sum(gathered(arm).values()) for name, arm in arms.items()} == {
        "legacy": 24,
        "despecialised": 1,
        "bundle": 0,
    }
    assert sum(arms["bundle"]["binaries"].values()) == 0
    assert arms["bundle"]["reasons"] == []
    assert arms["bundle"]["served"]["launches"] == sum(row["launches"][WARMUP] for row in arms["bundle"]["kernels"])
    assert arms["legacy"]["served"]["launches"] == 0


@pytest.fixture
def small(tmp_path) -> str:
    """A tenth of the canonical workload, with few captured graphs."""
    text = (WORKLOADS / "8k-1k.toml").read_text()
    head, _, rest = text.partition("captured_rows = [")
    text = head + "captured_rows = [1, 2, 4, 8]" + rest.partition("]")[2]
    for before, after in (
        ("output = 1024", "output = 8"),
        ("warmup = 128", "warmup = 4"),
        ("scored = 640", "scored = 12"),
        ("concurrency = 64", "concurrency = 4"),
    ):
        assert before in text
        text = text.replace(before, after)
    path = tmp_path / "small.toml"
    path.write_text(text)
    return str(path)


def test_each_arm_compiles_where_it_must(small):
    code, arms = run(small)
    assert code == 1
    assert gathered(arms["legacy"])[SCORED] >= 6
    assert gathered(arms["despecialised"]) == {CAPTURE: 0, WARMUP: 1, SCORED: 0}
    assert arms["bundle"]["binaries"] == {CAPTURE: 0, WARMUP: 0, SCORED: 0}
    assert arms["legacy"]["reasons"][0].startswith("cp_gather_indexer_quant_cache")
    assert "NUM_TOKENS: constexpr took" in arms["legacy"]["reasons"][0]
    assert arms["bundle"]["steps"][SCORED]["replayed"] > 0
    assert arms["bundle"]["bounds"] == {CAPTURE: 0, WARMUP: 0, SCORED: 0}
    assert (arms["legacy"]["bounds"], arms["legacy"]["verdict"]) == ({SCORED: 0}, "findings")


def test_a_bundle_without_a_variant_says_which_and_why(small, sample_catalogue, monkeypatch):
    monkeypatch.setattr("aotkern.audit.replay.run.declared", lambda *_: sample_catalogue)
    code, arms = run(small, "--arm", "bundle")
    assert code == 1
    assert any("decode_reduce, no variant in phase capture" in reason for reason in arms["bundle"]["reasons"])


@pytest.fixture
def sample_catalogue():
    """The declared variants without the reducer's."""
    arm = Workload.read(WORKLOADS / "8k-1k.toml").arm("bundle")
    found = declared(arm, kernels_of("kernels.replayed"))
    return replace(found, tables={name: table for name, table in found.tables.items() if name != "decode_reduce"})


def test_what_is_counted_on_paper_is_what_triton_compiles():
    workload = Workload.read(WORKLOADS / "gather-sweep.toml")
    workload = replace(workload, sweep=workload.sweep[:3], limits=Limits(8192, 1024, ()))
    arm = workload.arm("legacy")
    steps = [[type("Chunk", (), {"end": tokens}) for tokens in prompts] for prompts in workload.sweep]
    paper = JitArm(GATHERS)
    with paper.watching(arm.target):
        server = open_server(paper, "meta", arm.settings)
        for chunks in steps:
            server._gather(chunks)
    with paper_device(arm.target), count_jit() as count:
        launching = LaunchingArm({name: fresh(kernel) for name, kernel in GATHERS.items()}, count)
        server = open_server(launching, "meta", arm.settings)
        for chunks in steps:
            server._gather(chunks)
    keys = [compile_.key for compile_ in count.compiles]
    assert len(keys) == 3
    assert [compile_.key for compile_ in paper.log().compiles] == keys
    assert {str(compile_.outcome) for compile_ in count.compiles} == {"compiled"}


def test_an_arm_that_launched_nothing_could_not_tell():
    workload = Workload.read(WORKLOADS / "gather-sweep.toml")

    class Idle:
        def capture(self, rows): ...
        def prepare(self, rows): ...
        def step(self, step): ...

    result = drive(workload, workload.arm("legacy"), JitArm({}), Idle())
    report = ReplayReport("w", result, usual_bounds(result))
    assert (report.verdict.exit_code, report.summary) == (2, "w: nothing was launched")
