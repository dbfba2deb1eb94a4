"""The static check as an audit: what is a finding, what is only counted, and what could not be told."""

import struct
from dataclasses import replace

import pytest
from making import GFX942, GFX950, SM90

pytest.importorskip("rocm.llvm")

from aotkern.audit.findings import Verdict
from aotkern.audit.sides import Side, instructions
from aotkern.audit.static_code import StaticReport, audit
from aotkern.codeobject import section_bytes
from aotkern.emulator.static import Fault, Flaw
from aotkern.errors import InputError

S_NOP = struct.pack("<I", 0xBF80_0000)


def side(build, read=None):
    return Side("bundle", build.manifest, read or build.objects.__getitem__)


@pytest.mark.parametrize("target", [GFX942, GFX950], ids=str)
def test_what_the_compiler_made_is_clean(sample, target):
    report = audit(side(sample.build(target)))
    assert (report.verdict, report.findings) == (Verdict.CLEAN, ())
    assert report.objects == len(sample.build(target).objects) > 0


def test_a_wait_that_is_taken_out_is_found_at_its_load(sample):
    build = sample.build(GFX942)

    def without_waits(digest):
        data = build.objects[digest]
        text = section_bytes(data, ".text", "object")
        listing = instructions(side(build), digest)
        changed = bytearray(text)
        for item in listing:
            if item.name == "s_waitcnt":
                changed[item.pc : item.pc + 4] = S_NOP
        return data.replace(text, bytes(changed))

    report = audit(side(build, without_waits))
    assert report.verdict is Verdict.FINDINGS
    assert {finding.state for finding in report.findings} == {Fault.MISSING_WAIT.value}
    assert all(finding.facts["pc"] > 0 and finding.facts["instruction"] for finding in report.findings)


def test_a_register_that_nothing_wrote_is_counted_and_is_no_finding():
    flaw = Flaw(8, Fault.NEVER_WRITTEN, "v_mov_b32_e32 v0, v1", "v1")
    report = StaticReport(GFX942, {"key": (flaw,)}, 3)
    assert (report.verdict, report.findings) == (Verdict.CLEAN, ())
    assert report.summary == "3 code objects walked: 1 x register never written"


def test_no_code_is_no_proof():
    assert StaticReport(GFX942, {}, 0).verdict is Verdict.UNKNOWN


def test_only_amd_code_with_its_bytes_can_be_walked(sample):
    amd = side(sample.build(GFX942))
    with pytest.raises(InputError, match="an AMD bundle"):
        audit(replace(amd, manifest=replace(amd.manifest, target=SM90)))
    with pytest.raises(InputError, match="an AMD bundle"):
        audit(replace(amd, read=None))
