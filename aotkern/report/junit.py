"""JUnit XML, for systems that collect test results.

A suite for each step of the gate. Its first case is the step itself, which fails with findings and is an error where
nothing could be told; each thing with findings follows as a case of its own, and each thing of which nothing could be
told as one with an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.escape import visible_text

# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: GateReport) -> str:
    """The report of a gate, or of a single audit."""
    root = _element("testsuites", name=f"aotkern {report.policy}")
    root.extend(_suite(step) for step in report.steps)
    cases = list(root.iter("testcase"))
    _count(root, cases, sum(step.seconds for step in report.steps))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(step: StepResult) -> ET.Element:
    suite = _element("testsuite", name=f"{step.name} {step.subject}")
    first = _element("testcase", classname=step.name, name=step.subject, time=f"{step.seconds:.3f}")
    if step.verdict is Verdict.FINDINGS:
        _outcome(first, "failure", str(step.verdict), [step.message])
    elif step.verdict is Verdict.UNKNOWN:
        _outcome(first, "error", str(step.verdict), [step.message])
    first.append(_said(step))
    suite.append(first)
    suite.extend(_cases(step, step.findings, "failure"))
    suite.extend(_cases(step, step.unknown, "error"))
    suite.extend(_left_out(step))
    _count(suite, list(suite.iter("testcase")), step.seconds)
    return suite


def _cases(step: StepResult, findings: Iterable[Finding], kind: str) -> Iterator[ET.Element]:
    """A case for each subject."""
    by_subject: dict[str, list[Finding]] = {}
    for finding in findings:
        by_subject.setdefault(finding.subject, []).append(finding)
    for subject, found in by_subject.items():
        case = _element("testcase", classname=f"{step.name} {step.subject}", name=subject)
        states = ", ".join(dict.fromkeys(finding.state for finding in found))
        _outcome(case, kind, states, [finding.message for finding in found])
        yield case


def _said(step: StepResult) -> ET.Element:
    """What the step says of itself, clean or not: how much it looked at."""
    said = _element("system-out")
    said.text = _clean(step.message)
    return said


def _left_out(step: StepResult) -> Iterator[ET.Element]:
    for key in step.skipped:
        case = _element("testcase", classname=f"{step.name} {step.subject}", name=key)
        case.append(_element("skipped", message="left out: only a part was asked for"))
        yield case


def _outcome(case: ET.Element, kind: str, state: str, messages: Iterable[str]) -> None:
    lines = list(messages)
    outcome = _element(kind, type=state, message=lines[0])
    outcome.text = _clean("\n".join(lines))
    case.append(outcome)


def _count(element: ET.Element, cases: list[ET.Element], seconds: float) -> None:
    element.set("tests", str(len(cases)))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(sum(case.find(kind) is not None for case in cases)))
    element.set("time", f"{seconds:.3f}")


def _element(tag: str, **attributes: str) -> ET.Element:
    return ET.Element(tag, {name: _clean(value) for name, value in attributes.items()})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", visible_text(text))
