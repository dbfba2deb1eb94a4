"""`aotkern record`, `build --from` and `run`, as users call them: whole processes, and those that they start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import aotkern
from aotkern import schemas
from aotkern.trace import Trace

pytest.importorskip("triton")

HERE = Path(__file__).parent
REPOSITORY = Path(aotkern.__file__).parents[1]
PROGRAM = [sys.executable, str(HERE / "served_program.py")]


def run(*arguments: str, folder: Path, program: tuple[str, ...] = (), **environment: str):
    """Run an aotkern command in a folder, with the program behind it."""
    command = [sys.executable, "-m", "aotkern", *arguments, *(["--", *PROGRAM, *program] if program else [])]
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(HERE))),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "AOTKERN_CACHE": str(folder / "store"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        **environment,
    }
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the trace of a program whose work is done by a spawned process, and bundles of it."""
    place = tmp_path_factory.mktemp("run")
    done = run("record", "-o", "t.jsonl", folder=place, program=("spawn", "16", "17"))
    assert done.returncode == 0, done.stderr
    assert "t.jsonl: 2 variants of 1 kernels, 0 more" in done.stderr
    made = run("build", "--from", "t.jsonl", "-t", "gfx942", "-t", "cuda:90", "-j", "1", "-o", "out", folder=place)
    assert made.returncode == 0, made.stderr
    return place


def test_the_trace_is_of_this_version_and_names_the_kernel(folder):
    trace = Trace.parse((folder / "t.jsonl").read_bytes(), "t.jsonl")
    assert {row.key.kernel for row in trace.recorded} == {"served_kernels.scale"}
    schema = jsonschema.Draft202012Validator(schemas.load("trace"))
    for line in (folder / "t.jsonl").read_text().splitlines():
        schema.validate(json.loads(line))
    assert str(folder) not in (folder / "t.jsonl").read_text()


@pytest.mark.parametrize("method", ["here", "spawn", "fork"])
def test_every_process_is_served_and_nothing_is_written(folder, method, tmp_path):
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = run("run", "--bundle", "out", folder=folder, program=(method, "16", "17", "32"), **caches)
    assert done.returncode == 0, done.stderr
    assert "2 specialisations hit, 0 missed" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_machines_get_a_document(folder):
    done = run(
        "run", "--json", "--bundle", "out", "--on-miss", "jit", folder=folder, program=("here", "16", str(2**31))
    )
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schemas.load("run")).validate(document)
    assert (document["status"], document["hits"], document["misses"], document["processes"]) == (0, 1, 1, 1)
    assert "out of its range" in document["reasons"][0]["reason"]
    recorded = run("record", "--json", "-o", "again.jsonl", folder=folder, program=("here", "16"))
    document = json.loads(recorded.stdout)
    jsonschema.Draft202012Validator(schemas.load("record")).validate(document)
    assert (document["variants"], document["kernels"], document["notes"]) == (1, 1, [])


def test_error_mode_stops_the_program_with_the_reason(folder):
    done = run("run", "--bundle", "out", folder=folder, program=("spawn", "16", str(2**31)))
    assert done.returncode == 1
    assert "MissError: served_kernels.scale: no prebuilt variant fits this call" in done.stderr
    assert "1 specialisations hit, 1 missed" in done.stderr
    assert "1 x served_kernels.scale: no prebuilt variant fits this call" in done.stderr


def test_a_deployment_is_served_by_its_environment_alone(folder):
    code = "import aotkern.triton_bridge.installed as i; i.plugin(); i.plugin(); assert len(i._installed) == 1\n"
    code += "import served_program; served_program.work([16]); print(i._installed[0].counts.hits)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{HERE}", "AOTKERN_BUNDLE": str(folder / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Counter({'served_kernels.scale': 1})" in done.stdout, done.stderr
    assert "4 prebuilt variants for cuda:90, hip:gfx942 from " in done.stderr


def test_what_cannot_be_served_is_said_before_the_program_runs(folder):
    done = run("run", "--bundle", "absent.aotk", folder=folder, program=("here", "16"))
    assert done.returncode == 2
    assert "absent.aotk: expected a bundle, or a folder with bundles, found nothing there" in done.stderr


def test_locked_bundles_only(folder):
    written = run("lock", "--json", "out/t.gfx942.aotk", folder=folder)
    lock = json.loads((folder / "aotkern.lock").read_text())
    assert json.loads(written.stdout) == lock
    jsonschema.Draft202012Validator(schemas.load("lock")).validate(lock)
    good = run("run", "-b", "out/t.gfx942.aotk", "--locked", "aotkern.lock", folder=folder, program=("here", "16"))
    assert good.returncode == 0, good.stderr
    bad = run("verify", "--locked", "aotkern.lock", "out/t.gfx942.aotk", "out/t.sm90.aotk", folder=folder)
    assert bad.returncode == 1
    assert "REFUSED out/t.sm90.aotk: expected a bundle in the lock file (t.gfx942.aotk)" in bad.stdout


def test_a_wheel_is_packed_for_each_target(folder):
    names = ("pack", "--wheel", "out/t.gfx942.aotk", "out/t.sm90.aotk", "--name", "k", "--version", "1")
    done = run(*names, "--licence", "MIT", "--per-target", "--json", folder=folder)
    jsonschema.Draft202012Validator(schemas.load("pack")).validate(json.loads(done.stdout))
    assert sorted(path.name for path in (folder / "dist").iterdir()) == [
        "k_gfx942-1-py3-none-any.whl",
        "k_sm90-1-py3-none-any.whl",
    ]


def test_a_program_that_compiles_nothing_could_not_be_recorded(folder):
    done = run("record", "-o", "none.jsonl", folder=folder, program=("here",))
    assert done.returncode == 2
    assert "none.jsonl: 0 variants of 0 kernels" in done.stderr
    built = run("build", "--from", "none.jsonl", "-t", "gfx942", folder=folder)
    assert built.returncode == 2
    assert "something that can be built, found no row of a variant" in built.stderr


def test_a_recording_can_be_continued(folder):
    (folder / "more.jsonl").write_bytes((folder / "t.jsonl").read_bytes())
    done = run("record", "--append", "-o", "more.jsonl", folder=folder, program=("here", "1"))
    assert "more.jsonl: 3 variants of 1 kernels" in done.stderr


def test_a_watched_program_that_is_served_compiles_nothing(folder, tmp_path):
    """The watch counts what reaches the compiler: hits are none of that, misses are."""
    (tmp_path / "none.toml").write_text('version = 1\nmode = "error"\n[phases.startup]\ncompiles = 0\n')
    watched = ("audit", "jit", "--json", "--budget", str(tmp_path / "none.toml"), "--")
    served = (sys.executable, "-m", "aotkern", "run", "--bundle", "out", "--on-miss", "jit", "--")
    hits = run(*watched, *served, *PROGRAM, "spawn", "16", "17", "32", folder=folder)
    assert hits.returncode == 0, hits.stderr
    assert json.loads(hits.stdout)["kernels"] == []
    assert "2 specialisations hit, 0 missed" in hits.stderr
    miss = run("audit", "jit", "--json", "--", *served, *PROGRAM, "spawn", "16", str(2**31), folder=folder)
    (row,) = json.loads(miss.stdout)["kernels"]
    assert (row["kernel"], row["compiles"]) == ("scale", 1)
    assert [event["route"] for event in row["events"]] == ["jit"]
