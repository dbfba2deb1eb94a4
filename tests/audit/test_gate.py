"""The gate: steps that cannot be carried out, refusals, and its answer on a change of each kind in a git repository."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_scratch import QUIET, asked, edit, run

from aotkern.audit import gate
from aotkern.audit.findings import Verdict
from aotkern.audit.policy import CoverageStep, IdentityStep, NumericsStep, Policy, ReproducibleStep, ResourcesStep
from aotkern.audit.resources import Rule
from aotkern.bundle import Bundle
from aotkern.errors import InputError
from aotkern.manifest import Manifest
from aotkern.target import Target

GFX942, GFX950 = Target.parse("gfx942"), Target.parse("gfx950")


def test_an_unchanged_repository_is_clean(repository: Path) -> None:
    code, answer = asked(rebuilt=False)
    assert (code, answer["verdict"]) == (0, "clean")
    assert [step["verdict"] for step in answer["steps"].values()] == ["clean"] * 3


def test_a_comment_changes_nothing(repository: Path) -> None:
    edit(
        "helper.py", ("    return", "    # three is the number\n    return"), ("import triton\n", "import triton\n\n\n")
    )
    code, answer = asked()
    assert (code, answer["verdict"]) == (0, "clean")
    assert answer["steps"]["identity"]["report"]["counts"] == {"identical": 1}
    assert answer["steps"]["resources"]["report"]["changes"] == []


def test_a_change_for_gfx950_alone_leaves_gfx942_identical(repository: Path) -> None:
    edit("kernels_here.py", ("tl.load(x + place) + 1", "tl.exp(tl.load(x + place)) / 7"))
    code, answer = asked()
    assert (code, answer["verdict"]) == (0, "clean")
    assert answer["steps"]["identity"]["report"]["counts"] == {"identical": 1}
    changed = {row["key"].partition("[")[0] for row in answer["steps"]["resources"]["report"]["changes"]}
    assert changed == {"only_gfx950"}


def test_a_shared_helper_that_touches_gfx942_is_found(repository: Path) -> None:
    edit("helper.py", ("value * 3", "value * 3 + 1"))
    code, answer = asked()
    assert (code, answer["verdict"]) == (1, "findings")
    assert answer["steps"]["verify"]["verdict"] == "clean"
    (finding,) = answer["steps"]["identity"]["findings"]
    assert finding["state"] == "different"
    assert finding["subject"].startswith("scale[hip:gfx942]")
    assert ".text" in finding["facts"]["sections"]


def test_register_growth_is_found_by_its_bound(repository: Path) -> None:
    edit("kernels_here.py", ('{"x": POINTER, "BLOCK": 64}', '{"x": POINTER, "BLOCK": 4096}'))
    code, answer = asked()
    assert (code, answer["verdict"]) == (1, "findings")
    assert answer["steps"]["identity"]["verdict"] == "clean"
    (finding,) = answer["steps"]["resources"]["findings"]
    assert finding["subject"].startswith("only_gfx950[hip:gfx950]")
    assert (finding["facts"]["bound"], finding["facts"]["limit"]) == ("vgprs", 16)
    assert finding["facts"]["vgprs"] > 16


def test_a_compiler_bump_could_not_tell(repository: Path) -> None:
    path = Path("manifests/gfx942.json")
    golden = Manifest.parse(path.read_bytes(), "golden")
    path.write_bytes(replace(golden, toolchain={**golden.toolchain, "triton": "3.8.0"}).to_bytes())
    code, answer = asked(rebuilt=False)
    assert (code, answer["verdict"]) == (2, "could not tell")
    step = answer["steps"]["identity"]
    assert step["verdict"] == "could not tell"
    assert "triton: 3.8.0 -> 3.9.0" in step["message"]
    assert answer["steps"]["resources"]["verdict"] == "clean"


def test_a_step_that_cannot_be_carried_out_does_not_stop_the_others(repository: Path) -> None:
    good, absent = Path("out/small.gfx942.aotk"), Path("absent")
    policy = Policy(
        verify=(absent, good),
        identity=(IdentityStep(good, absent), IdentityStep(good, Path("manifests/gfx942.json"))),
        resources=(ResourcesStep(absent, None, ()),),
        reproducible=(ReproducibleStep(("absent.py",), (GFX942,)),),
    )
    report = gate.run(policy, "policy", QUIET)
    verdicts = [step.verdict for step in report.steps]
    unknown, clean = Verdict.UNKNOWN, Verdict.CLEAN
    assert verdicts == [unknown, clean, unknown, clean, unknown, unknown]
    assert report.verdict is unknown
    assert all("absent" in step.message for step in report.steps if step.verdict is unknown)


def test_what_could_not_be_told_outweighs_findings(repository: Path) -> None:
    bounds = ResourcesStep(Path("out/small.gfx950.aotk"), None, (Rule("*", GFX950, {"sgprs": 1}),))
    policy = Policy(verify=(Path("absent"),), resources=(bounds,))
    report = gate.run(policy, "policy", QUIET)
    assert [step.verdict for step in report.steps] == [Verdict.UNKNOWN, Verdict.FINDINGS]
    assert report.verdict is Verdict.UNKNOWN


def test_a_damaged_bundle_is_refused_with_its_reason(repository: Path) -> None:
    path = Path("out/small.gfx942.aotk")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (step,) = gate.run(Policy(verify=(path,)), "policy", QUIET).steps
    assert (step.verdict, step.report) == (Verdict.FINDINGS, None)
    assert step.findings[0].state == "refused"
    assert "block" in step.findings[0].subject


def test_bundles_of_another_target_are_not_compared(repository: Path) -> None:
    policy = Policy(identity=(IdentityStep(Path("out/small.gfx950.aotk"), Path("manifests/gfx942.json")),))
    (step,) = gate.run(policy, "policy", QUIET).steps
    assert step.verdict is Verdict.UNKNOWN
    assert "hip:gfx942" in step.message
    assert "hip:gfx950" in step.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def scale(key, seed):\n    raise ValueError('no inputs')\nCASES = {'scale': scale}\n",
            "could not tell 1",
        ),
        ("raise SystemExit\n", "my_cases.py: expected a module or file with CASES, found SystemExit"),
        ("1 / 0\n", "my_cases.py: expected a module or file with CASES, found ZeroDivisionError"),
    ],
)
def test_code_of_the_project_that_fails_does_not_hide_the_other_steps(repository: Path, text: str, said: str) -> None:
    pytest.importorskip("numpy")
    Path("my_cases.py").write_text(text, "utf-8")
    bundle = Path("out/small.gfx942.aotk")
    policy = Policy(verify=(bundle,), numerics=(NumericsStep(bundle, "my_cases.py", 0, 1),))
    verified, executed = gate.run(policy, "policy", QUIET).steps
    assert (verified.verdict, executed.verdict) == (Verdict.CLEAN, Verdict.UNKNOWN)
    assert said in executed.message


def test_sources_that_are_not_there_are_refused_before_any_step() -> None:
    with pytest.raises(InputError, match=r"policy: sources: absent\.py: expected a kernel file or folder"):
        gate.run(Policy(sources=("absent.py",)), "policy", QUIET)


def test_a_policy_that_is_not_there_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "No such file or directory; `aotkern audit --init` writes one" in str(run("audit").exception)


def test_a_bundle_that_is_compared_with_itself_proves_nothing(repository: Path) -> None:
    bundle, manifest = Path("out/small.gfx942.aotk"), Path("manifests/gfx942.json")
    policy = Policy(
        identity=(IdentityStep(bundle, Path("out/../out/small.gfx942.aotk")), IdentityStep(manifest, manifest))
    )
    steps = gate.run(policy, "policy", QUIET).steps
    assert [step.verdict for step in steps] == [Verdict.UNKNOWN] * 2
    assert all("expected a baseline that is not the bundle itself" in step.message for step in steps)


def test_a_manifest_does_not_stand_in_for_the_bundle_that_ships(repository: Path) -> None:
    manifest, copy = Path("manifests/gfx942.json"), Path("copy.json")
    copy.write_bytes(manifest.read_bytes())
    Path("calls.toml").write_text(DOMAIN, "utf-8")
    policy = Policy(identity=(IdentityStep(copy, manifest),), coverage=(CoverageStep(copy, Path("calls.toml")),))
    assert [step.verdict for step in gate.run(policy, "policy", QUIET).steps] == [Verdict.FINDINGS] * 2


def test_a_gate_without_steps_could_not_tell() -> None:
    assert gate.run(Policy(), "policy", QUIET).verdict is Verdict.UNKNOWN


def test_the_verify_step_reports_what_it_checked(repository: Path) -> None:
    path = Path("out/small.gfx950.aotk")
    (step,) = gate.run(Policy(verify=(path,)), "policy", QUIET).steps
    bundle = Bundle.open(path)
    report: Any = step.report
    assert (report.target, report.manifest, report.file_bytes) == (
        "hip:gfx950",
        bundle.manifest.digest,
        path.stat().st_size,
    )
    assert {kernel.name: kernel.variants for kernel in report.kernels} == {"scale": 1, "only_gfx950": 1}
    assert sum(kernel.object_bytes for kernel in report.kernels) == sum(entry.size for entry in bundle.manifest.objects)


DOMAIN = """\
version = 1

[[call]]
kernel = "scale"
options = { num_warps = 1 }
[call.arguments]
x = { tensor = ["fp32"], aligned = true }
out = { tensor = ["fp32"], aligned = true }
BLOCK = { values = [64] }
"""

CASES = """\
import numpy as np

from aotkern.audit.cases import Case, Exact


def scale(key, seed):
    x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
    yield Case("any numbers", (1,), {"x": x, "out": np.zeros_like(x)}, {"out": Exact(x * np.float32(3))})


CASES = {"scale": scale}
"""


@pytest.mark.parametrize(("blocks", "verdict"), [("[64]", "clean"), ("[64, 128]", "findings")])
def test_a_gate_asks_whether_every_call_finds_a_variant(repository: Path, blocks: str, verdict: str) -> None:
    Path("calls.toml").write_text(DOMAIN.replace("[64]", blocks), "utf-8")
    step = '[[coverage]]\nbundle = "out/small.gfx942.aotk"\ndomain = "calls.toml"\n'
    Path("audits/policy.toml").write_text(f"version = 1\n{step}", "utf-8")
    _, answer = asked(rebuilt=False)
    found = answer["steps"]["coverage"]
    assert found["verdict"] == verdict
    assert found["place"] == "calls.toml"
    assert [finding["subject"] for finding in found["findings"]] == ["scale"] * (verdict == "findings")
    assert "BLOCK" in found["findings"][0]["message"] if verdict == "findings" else found["report"]["kernels"]


@pytest.mark.parametrize(("factor", "verdict"), [("3", "clean"), ("4", "findings")])
def test_a_gate_executes_the_code(repository: Path, factor: str, verdict: str) -> None:
    pytest.importorskip("numpy")
    Path("my_cases.py").write_text(CASES.replace("float32(3)", f"float32({factor})"), "utf-8")
    step = '[[numerics]]\nbundle = "out/small.gfx942.aotk"\ncases = "my_cases.py"\nmost = 2\nseed = 1\n'
    Path("audits/policy.toml").write_text(f"version = 1\n{step}", "utf-8")
    _, answer = asked(rebuilt=False)
    found = answer["steps"]["numerics"]
    assert found["verdict"] == verdict, found
    assert [case["case"] for case in found["report"]["cases"]] == ["any numbers"]


def test_a_numerics_step_without_numpy_could_not_tell(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    rooms = ("cases", "examining", "execution", "executors", "judging", "numerics", "numerics_jobs")
    for name in (f"aotkern.audit.{room}" for room in rooms):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("aotkern.audit.cases", raising=False)
    policy = Policy(numerics=(NumericsStep(Path("out/small.gfx942.aotk"), "my_cases.py", 0, 1),))
    (step,) = gate.run(policy, "policy", QUIET).steps
    assert step.verdict is Verdict.UNKNOWN
    assert "numpy is needed to execute machine code" in step.message


def test_init_writes_a_policy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("audit", "--init").exit_code == 0
    assert len(Policy.read(Path("audits/policy.toml")).identity) == 1
    again = run("audit", "--init")
    assert again.exit_code != 0
    assert "it is there already" in str(again.exception)


@pytest.mark.parametrize("options", [("--json",), ("--report", "a.md"), ("--init",)])
def test_options_before_a_single_audit_are_refused(options: tuple[str, ...]) -> None:
    done = run("audit", *options, "resources", "x.aotk")
    assert done.exit_code == 2
    assert "stand after its name" in done.output
