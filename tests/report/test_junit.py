"""JUnit XML: suites, counts, and names that XML cannot hold."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import reports_made as made

from aotkern.audit.findings import Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.report import junit


def parsed(report):
    return ET.fromstring(junit.render(report).encode())


def test_a_suite_for_each_step_and_a_case_for_each_thing_with_findings():
    root = parsed(made.full())
    found = [(s.get("name"), s.get("tests"), s.get("failures"), s.get("errors")) for s in root]
    assert found == [
        ("verify out/some.gfx942.aotk", "1", "0", "0"),
        ("identity out/some.gfx942.aotk", "4", "4", "0"),
        ("resources out/some.gfx950.aotk", "2", "2", "0"),
        ("reproducible shipped kernels", "1", "0", "0"),
        ("identity out/other.aotk", "1", "0", "1"),
    ]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("9", "6", "1")
    assert root.get("time") == "1.000"


def test_a_case_says_what_was_found():
    case = parsed(made.full()).find(".//testcase[@classname='resources out/some.gfx950.aotk']")
    assert case.get("name") == made.key("wide", made.GFX950)
    assert case.find("failure").attrib == {"type": "out of bounds", "message": "vgprs: 24 > 16"}


def test_what_could_not_be_told_is_an_error():
    error = parsed(made.full()).find(".//error")
    assert (error.get("type"), error.text) == ("could not tell", "absent: expected a bundle\nsecond: line")


def test_names_that_xml_cannot_hold_are_written_out_or_replaced():
    text = 'a\x00b\x1b[31m\ud800\uffff<&>"'
    step = StepResult(text, text, Verdict.FINDINGS, 0.0, text)
    (suite,) = parsed(GateReport(text, (step,)))
    expected = 'a\\u0000b\\u001b[31m\\ud800\N{REPLACEMENT CHARACTER}<&>"'
    assert suite.find("testcase").get("name") == expected


def test_hostile_names_come_back_as_they_were():
    assert parsed(made.hostile()).get("name") == f"aotkern {made.HOSTILE}"
