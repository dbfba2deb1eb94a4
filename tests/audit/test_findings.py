import pytest

from aotkern.audit.findings import Verdict


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.CLEAN, 0), (Verdict.FINDINGS, 1), (Verdict.UNKNOWN, 2)])
def test_exit_codes(verdict, code):
    assert verdict.exit_code == code


def test_what_could_not_be_told_outweighs_what_was_found():
    assert Verdict.worst([Verdict.CLEAN, Verdict.FINDINGS]) is Verdict.FINDINGS
    assert Verdict.worst([Verdict.UNKNOWN, Verdict.FINDINGS, Verdict.CLEAN]) is Verdict.UNKNOWN
    assert Verdict.worst([Verdict.CLEAN]) is Verdict.CLEAN


def test_a_verdict_over_nothing_is_unknown():
    assert Verdict.worst([]) is Verdict.UNKNOWN
