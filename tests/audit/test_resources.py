"""Resources: bounds from both sides, rules that bind nothing, changes against a baseline."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hand_made import GFX942, GFX950, PLAIN, SM90, manifest, more

from aotkern.audit.findings import Verdict
from aotkern.audit.resources import BOUNDS, Rule, Usage, audit, usage

KEY = "scale[hip:gfx942](n:i32){num_warps=4}"


def test_usage_adds_what_the_launch_adds() -> None:
    held = manifest(GFX942, {"scale": more(vgprs=40, vgpr_spills=2, sgpr_spills=1, lds_bytes=512)}, shared=1024)
    assert usage(held, held.variants[0]) == Usage(
        vgprs=40,
        agprs=0,
        sgprs=20,
        vgpr_spills=2,
        sgpr_spills=1,
        scratch_bytes=0,
        lds_bytes=1536,
        waves=8,
        code_bytes=256,
    )


@pytest.mark.parametrize("bound", [name for name in BOUNDS if name != "waves"])
def test_an_upper_bound_holds_at_its_limit_and_not_one_above(bound: str) -> None:
    held = manifest(GFX942, {"scale": more(vgprs=40, agprs=8, vgpr_spills=2, scratch_bytes=16, lds_bytes=512)})
    value = asdict(usage(held, held.variants[0]))[bound]
    assert audit(held, [Rule("scale", GFX942, {bound: value})]).verdict is Verdict.CLEAN
    (finding,) = audit(held, [Rule("scale", GFX942, {bound: value - 1})]).findings
    assert (finding.subject, finding.state, finding.message) == (
        KEY,
        "out of bounds",
        f"{bound}: {value} > {value - 1}",
    )
    assert (finding.facts["bound"], finding.facts["limit"]) == (bound, value - 1)


def test_waves_are_bounded_from_below() -> None:
    held = manifest(GFX942, {"scale": more(vgprs=128)})  # four waves
    assert audit(held, [Rule("scale", GFX942, {"waves": 4})]).verdict is Verdict.CLEAN
    (finding,) = audit(held, [Rule("scale", GFX942, {"waves": 5})]).findings
    assert finding.message == "waves: 4 < 5"


def test_waves_that_are_not_known_satisfy_no_bound() -> None:
    (finding,) = audit(manifest(SM90, {"scale": PLAIN}), [Rule("scale", SM90, {"waves": 1})]).findings
    assert finding.message == "waves: not known for cuda:90, 1 wanted"


@pytest.mark.parametrize(
    "rule",
    [
        Rule("scael", GFX942, {"vgprs": 512}),
        Rule("scale", GFX950, {"vgprs": 512}),
        Rule("scale", GFX942, {"vgprs": 512}, variants="*num_warps=8*"),
    ],
)
def test_a_rule_that_binds_nothing_is_a_finding(rule: Rule) -> None:
    report = audit(manifest(GFX942, {"scale": PLAIN}), [rule])
    assert [finding.state for finding in report.findings] == ["rule without variants"]
    assert report.verdict is Verdict.FINDINGS


def test_patterns_choose_kernels_and_variants() -> None:
    held = manifest(GFX942, {"scale": more(vgprs=40), "sort": more(vgprs=40), "other": more(vgprs=400)})
    report = audit(held, [Rule("s*", GFX942, {"vgprs": 39}, variants="*num_warps=4*")])
    assert [finding.subject.partition("[")[0] for finding in report.findings] == ["scale", "sort"]


def test_wanted_instructions_may_have_alternatives() -> None:
    held = manifest(GFX942, {"scale": PLAIN})
    code = {KEY: frozenset({"v_add_f32", "v_mfma_f32_16x16x16_f16"})}
    found = Rule("scale", GFX942, {}, instructions=("v_mfma_f32_32x32x8_f16|v_mfma_f32_16x16x16_f16", "v_add_f32"))
    assert audit(held, [found], code).verdict is Verdict.CLEAN
    missing = Rule("scale", GFX942, {}, instructions=("ds_read_b128|ds_read_b64",))
    (finding,) = audit(held, [missing], code).findings
    assert (finding.state, finding.facts) == ("instruction missing", {"wanted": "ds_read_b128|ds_read_b64"})
    assert audit(held, [missing]).verdict is Verdict.FINDINGS  # without a disassembly nothing was seen


def test_changes_are_listed_and_are_no_findings() -> None:
    before = manifest(GFX942, {"scale": PLAIN, "gone": PLAIN, "same": PLAIN})
    after = manifest(GFX942, {"scale": more(vgprs=96, sgprs=19), "new": PLAIN, "same": PLAIN})
    report = audit(after, [], baseline=before)
    assert report.changes == {KEY: {"vgprs": (24, 96), "sgprs": (20, 19), "waves": (8, 5)}}
    assert report.verdict is Verdict.CLEAN
    assert report.summary == "hip:gfx942: variants 3, rules 0, findings 0, changed against the baseline 1"


def test_an_audit_of_nothing_could_not_tell() -> None:
    assert audit(manifest(GFX942, {}), []).verdict is Verdict.UNKNOWN
