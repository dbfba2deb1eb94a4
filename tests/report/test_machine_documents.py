import json
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("triton")

from making import GFX942, hand_made

from aotkern import schemas
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.identity import Comparison, IdentityReport, State
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.build.builder import Compilation, Published, TargetBuild
from aotkern.cli import common
from aotkern.digest import Digest
from aotkern.errors import BuildError, Problem
from aotkern.report import built, machine, plain

EVERYTHING = {
    "sections": [".text"],
    "header": {"e_flags": ["0x1", "0x2"]},
    "resources": {"vgprs": [1, 2]},
    "first_difference": ".text at byte 0x4",
    "launch": {"shared": [0, 16]},
    "options": {"num_warps": ["1", None]},
}


def fits(kind, document):
    jsonschema.Draft202012Validator(schemas.load(kind)).validate(json.loads(json.dumps(document)))
    return document


@pytest.mark.parametrize("failures", [[], [BuildError("k", "why")]])
def test_a_build(failures):
    compilation = Compilation(
        targets={GFX942: TargetBuild(hand_made(), {})},
        failures=failures,
        seconds={"k": 1.23456},
        reused=2,
        notes=("note",),
        wall=3.0,
        store_problem="full" if failures else "",
    )
    published = {GFX942: Published(Path("x.aotk"), Digest.of(b""), 10, True)}
    document = fits("build", built.machine(compilation, published))
    assert document["verdict"] == ("findings" if failures else "clean")
    assert document["slowest"] == [{"key": "k", "seconds": 1.235}]
    assert document["store_problem"] == ("full" if failures else None)


def test_an_identity_with_every_state_and_detail():
    comparisons = tuple(Comparison(f"k{n}", state, False, EVERYTHING) for n, state in enumerate(State))
    document = fits("identity", machine.identity(IdentityReport("hip:gfx942", "a", "b", comparisons)))
    assert set(document["counts"].values()) == {1}
    assert len(document["variants"]) == len(State)
    fits("audit", plain.document("audit", Verdict.FINDINGS, reports=[document]))


def test_a_rebuild():
    report = ReproducibleReport({"hip:gfx942": Digest.of(b"")}, {"hip:gfx942": ("folder",)}, ("folder",), "", 1)
    assert fits("reproducible", machine.reproducible(report))["broken"] == {"hip:gfx942": ["folder"]}


def test_problems_and_findings_keep_all_their_facts():
    assert common.problems([Problem("a", "b", "c")]) == [{"where": "a", "expected": "b", "found": "c"}]
    (row,) = machine.findings([Finding("identity", "k", "different", "text", {"x": [1]})])
    assert row == {"audit": "identity", "subject": "k", "state": "different", "message": "text", "facts": {"x": [1]}}
