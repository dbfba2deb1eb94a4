"""The gate's replays and watched programs: what passes, what is found, and what proves nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gate_scratch import QUIET, asked, edit, run

from aotkern import schemas
from aotkern.audit import gate
from aotkern.audit.findings import Verdict
from aotkern.audit.outcome import StepResult
from aotkern.audit.policy import JitStep, Policy, ReplayStep
from aotkern.audit.steps import Circumstances

pytest.importorskip("torch")

SERVER = """\
from kernels_here import KERNELS
import torch


class Server:
    def __init__(self, launcher, device, settings):
        self.launcher, self.device, self.settings = launcher, device, settings

    def capture(self, rows):
        self.launch(64)

    def prepare(self, rows):
        pass

    def step(self, step):
        self.launch(self.settings["block"] or 64 * len(step.chunks))

    def launch(self, block):
        x = torch.zeros(block, device=self.device)
        self.launcher["scale"][(1,)](x, torch.zeros_like(x), BLOCK=block, num_warps=1)


def open_server(launcher, device, settings):
    return Server(launcher, device, settings)
"""

WORKLOAD = """\
version = 1
name = "a small workload"
server = "server.py"

[requests]
input = 64
output = 2
range_ratio = 1.0
seed = 0
warmup = 1
scored = 4
concurrency = 2

[scheduler]
batched_tokens = 128
sequences = 4
captured_rows = [4]

[settings]
block = 64

[arms.bundle]
target = "gfx942"
kind = "bundle"

[arms.jit]
target = "gfx942"
kind = "jit"
"""

REPLAY = """\
version = 1
sources = ["kernels_here.py"]

[[replay]]
workload = "serving.toml"
arm = "bundle"
bundle = "out/small.gfx942.aotk"
compiles = { capture = 0, warmup = 0, scored = 0 }
"""

BUNDLE = Path("out/small.gfx942.aotk")
NONE = {"capture": 0, "warmup": 0, "scored": 0}


@pytest.fixture
def served(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scratch repository with a server, a workload and a policy that replays it."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    for name, text in (("server.py", SERVER), ("serving.toml", WORKLOAD), ("audits/policy.toml", REPLAY)):
        (repository / name).write_text(text, "utf-8")
    # Modules of another test's repository must not stand in for this one's.
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("kernels_here", "helper"):
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
    return repository


def step(*, arm: str = "bundle", bundle: Path | None = BUNDLE, compiles: dict[str, int] = NONE) -> StepResult:
    policy = Policy(replay=(ReplayStep(Path("serving.toml"), arm, bundle, compiles),))
    (done,) = gate.run(policy, "policy", QUIET).steps
    return done


def test_a_bundle_that_serves_every_call_is_clean(served: Path) -> None:
    code, answer = asked(rebuilt=False)
    found = answer["steps"]["replay"]
    assert (code, found["verdict"], found["place"]) == (0, "clean", "serving.toml")
    assert found["subject"] == "out/small.gfx942.aotk, arm bundle"
    (arm,) = found["report"]["arms"]
    assert arm["served"] == {"launches": 4, "variants": 1}
    assert "4 launches, 4 of them by 1 prebuilt variant;" in found["message"]
    assert "would compile: capture 0 (at most 0), warmup 0 (at most 0), scored 0 (at most 0)" in found["message"]
    jsonschema.Draft202012Validator(schemas.load("gate")).validate({**answer, "steps": list(answer["steps"].values())})


def test_a_call_that_no_variant_serves_is_found_at_its_kernel(served: Path) -> None:
    edit("serving.toml", ("block = 64", "block = 128"))
    done = run(
        "audit", "--report", "gate.sarif", "--report", "gate.xml", "--report", "gate.md", "--report", "gate.html"
    )
    assert done.exit_code == 1
    (first, second) = json.loads(Path("gate.sarif").read_text("utf-8"))["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    line = 1 + Path("kernels_here.py").read_text("utf-8").splitlines().index("def scale(x, out, BLOCK: tl.constexpr):")
    assert place == {"artifactLocation": {"uri": "kernels_here.py"}, "region": {"startLine": line}}
    assert (first["ruleId"], second["ruleId"]) == ("replay/no-variant",) * 2
    assert first["partialFingerprints"] != second["partialFingerprints"]
    for text in (done.output, *(Path(f"gate.{form}").read_text("utf-8") for form in ("xml", "md", "html"))):
        assert "no variant" in text
        assert "BLOCK: 64 -&gt; 128" in text or "BLOCK: 64 -> 128" in text
    assert "no variant serves a call in phase warmup" in done.output


def test_only_named_phases_are_judged(served: Path) -> None:
    edit("serving.toml", ("block = 64", "block = 128"))
    assert step(compiles={"capture": 0}).verdict is Verdict.CLEAN
    assert step(compiles={"scored": 1}).verdict is Verdict.CLEAN
    assert [finding.facts["phase"] for finding in step(compiles={"scored": 0}).findings] == ["scored"]


def test_the_jit_is_counted_with_its_reasons(served: Path) -> None:
    edit("serving.toml", ("block = 64", "block = 0"))
    done = step(arm="jit", bundle=None, compiles={"scored": 0})
    assert done.verdict is Verdict.FINDINGS
    (finding,) = done.findings
    assert (finding.subject, finding.state, finding.facts["compiles"]) == ("scale", "compiles", 1)
    assert "phase scored allows 0 compiles, 1 would happen" in finding.message
    assert "BLOCK" in finding.message
    report: Any = done.report
    assert [(met.phase, met.kernel) for met in report.result.met] == [("capture", "scale"), ("scored", "scale")]
    assert step(arm="jit", bundle=None, compiles={"scored": 1}).verdict is Verdict.CLEAN


def test_a_phase_in_which_nothing_is_launched_proves_nothing(served: Path) -> None:
    edit("serving.toml", ("captured_rows = [4]", "captured_rows = []"))
    done = step(compiles={"capture": 0, "scored": 0})
    assert done.verdict is Verdict.UNKNOWN
    assert "nothing was launched in phase capture, which is to be judged" in done.message
    assert step(compiles={"scored": 0}).verdict is Verdict.CLEAN


def test_a_server_that_launches_nothing_proves_nothing(served: Path) -> None:
    edit("server.py", ('        self.launcher["scale"]', '        return\n        self.launcher["scale"]'))
    done = step()
    assert done.verdict is Verdict.UNKNOWN
    assert "nothing was launched" in done.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("server.py", "torch.zeros(block", "torch.zeroes(block"), "server server.py: expected host code that can be"),
        (("server.py", "def open_server", "def open_shop"), "expected a function open_server"),
        (("server.py", "import torch", "import torch, nowhere"), "No module named 'nowhere'"),
        (("serving.toml", '"server.py"', '"absent.py"'), "absent.py: expected a kernel file or folder"),
        (("serving.toml", '"server.py"', '"absent_module"'), "a module absent_module that can be imported"),
        (("serving.toml", '"gfx942"', '"gfx950"'), "expected a bundle for hip:gfx950, found one for hip:gfx942"),
        (("serving.toml", "block = 64", "black = 64"), "KeyError: 'block'"),
        (("serving.toml", "[arms.bundle]", "[arms.other]"), "expected one of other, jit, found 'bundle'"),
        (("serving.toml", "scored = 4", "scored = 0"), "requests.scored: expected at least 1"),
        (("serving.toml", "version = 1", "version ="), "serving.toml: expected TOML"),
    ],
)
def test_a_replay_that_cannot_be_carried_out_could_not_tell(
    served: Path, change: tuple[str, str, str], said: str
) -> None:
    edit(change[0], change[1:])
    done = step()
    assert (done.verdict, done.report) == (Verdict.UNKNOWN, None)
    assert said in done.message


def test_a_bundle_goes_with_an_arm_of_prebuilt_variants_alone(served: Path) -> None:
    assert "found none (bundle)" in step(bundle=None).message
    assert f"found {BUNDLE} (jit)" in step(arm="jit").message
    assert step(bundle=Path("absent")).verdict is Verdict.UNKNOWN
    BUNDLE.write_bytes(BUNDLE.read_bytes()[:-1] + b"\0")
    assert step().verdict is not Verdict.CLEAN


def test_without_torch_the_replay_could_not_tell(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = step()
    assert done.verdict is Verdict.UNKNOWN
    assert "torch is needed to drive host code" in done.message


def test_the_command_writes_reports_too(served: Path) -> None:
    done = run("audit", "replay", "serving.toml", "--arm", "jit", "--report", "replay.html", "--report", "replay.json")
    assert done.exit_code == 0, (done.output, done.exception)
    page = Path("replay.html").read_text("utf-8")
    assert "When it would compile, by step" in page
    assert "1 compile in 1 launch" in page
    document = json.loads(Path("replay.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schemas.load("gate")).validate(document)
    assert document["steps"][0]["report"]["arms"][0]["bounds"] == {"scored": 0}


PROGRAM = """\
import sys
import time

import triton
from kernels_here import scale
from triton.backends.compiler import GPUTarget

from aotkern.triton_bridge.child import mark_phase


def compile(block):
    names = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(scale, names, constexprs={"BLOCK": block})
    triton.compile(source, target=GPUTarget("hip", "gfx942", 64))


compile(64)
if "mark" in sys.argv:
    mark_phase("serving")
if "say" in sys.argv:
    print("startup complete", flush=True)
    time.sleep(0.5)
if "again" in sys.argv:
    compile(128)
if "fail" in sys.argv:
    sys.exit("it went wrong")
if "hang" in sys.argv:
    time.sleep(600)
"""

BUDGET = "version = 1\n[phases.serving]\ncompiles = 0\nretunes = 0\n"

Watched = Callable[..., StepResult]


@pytest.fixture
def watched(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watched:
    """Run the program in a gate with a budget of no compiles while serving."""
    (repository / "program.py").write_text(PROGRAM, "utf-8")
    (repository / "budget.toml").write_text(BUDGET, "utf-8")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    import os

    import aotkern

    here = Circumstances({**os.environ, "PYTHONPATH": str(Path(aotkern.__file__).parents[1])})

    def watched(*words: str, seconds: int = 120, pattern: str | None = None) -> StepResult:
        command = (sys.executable, "program.py", *words)
        policy = Policy(jit=(JitStep(command, Path("budget.toml"), seconds, pattern, None, (BUNDLE,)),))
        (done,) = gate.run(policy, "policy", here).steps
        return done

    return watched


def test_a_program_within_its_budget_is_clean(watched: Watched) -> None:
    done = watched("mark")
    assert (done.verdict, done.place) == (Verdict.CLEAN, "budget.toml")
    assert done.message == "compiles by phase: startup 1; tunings: 0; findings: 0"
    assert done.subject.endswith("program.py mark")


def test_a_compile_beyond_the_budget_is_found(watched: Watched) -> None:
    done = watched("say", "again", pattern="startup complete")
    assert done.verdict is Verdict.FINDINGS
    (finding,) = done.findings
    assert (finding.subject, finding.state) == ("scale", "compiled")
    report: Any = done.report
    assert "nearest prebuilt: scale[hip:gfx942]" in report.rows[-1].prebuilt or report.rows[0].prebuilt


def test_a_phase_that_never_begins_proves_nothing(watched: Watched) -> None:
    done = watched("again")
    assert done.verdict is Verdict.UNKNOWN
    assert done.message == "phase serving never began, so nothing is known of it"


def test_a_program_that_fails_could_not_tell_and_is_quoted(watched: Watched) -> None:
    done = watched("mark", "fail")
    assert done.verdict is Verdict.UNKNOWN
    assert done.message.startswith("the program ended with status 1; it said at last: ")
    assert done.message.endswith("it went wrong")


def test_a_program_that_hangs_is_ended(watched: Watched) -> None:
    started = time.perf_counter()
    done = watched("mark", "hang", seconds=6)
    assert time.perf_counter() - started < 60
    assert done.verdict is Verdict.UNKNOWN
    assert done.message.startswith("the program was ended after 6 s")


def test_a_program_that_is_not_there_could_not_tell(repository: Path) -> None:
    (repository / "budget.toml").write_text(BUDGET, "utf-8")
    policy = Policy(jit=(JitStep(("./absent",), Path("budget.toml"), 1),))
    (done,) = gate.run(policy, "policy", QUIET).steps
    assert done.verdict is Verdict.UNKNOWN
    assert "expected a program that can be started, found ./absent: No such file" in done.message


def test_the_command_does_not_pass_a_phase_that_never_began(repository: Path, monkeypatch: Any) -> None:
    (repository / "program.py").write_text(PROGRAM, "utf-8")
    import os
    import subprocess

    import aotkern

    root = str(Path(aotkern.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "aotkern", "audit", "jit", "--ready-pattern", "never said", "--", sys.executable,
         "program.py"],
        env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "phase serving never began" in done.stdout
