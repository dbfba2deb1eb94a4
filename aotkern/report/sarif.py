"""SARIF 2.1.0, for code scanning: one result for each finding, with a place in a file.

The place is the kernel's `def` where its source is known, and the file that the step names otherwise. Variants are
logical locations; a fingerprint made of audit, state and variant lets a later run recognise a finding. A step that
could not tell is a notification, as is each single thing of which nothing could be told; the run then counts as not
successful.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from aotkern import __version__
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.places import Place, place_of
from aotkern.escape import visible_text

JSON = dict[str, Any]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ABOUT = {
    "verify": "The bundle does not hold what it says.",
    "identity": "The machine code is not what the baseline's was.",
    "resources": "A variant takes more than the policy allows, or a rule binds nothing.",
    "reproducible": "A rebuild gives other bytes.",
    "coverage": "A call of the domain has no variant.",
    "numerics": "The machine code computes wrong numbers.",
    "replay": "Serving the workload would compile, or call what no variant serves.",
    "jit": "The program compiled more than its budget allows.",
}


def render(report: GateReport) -> str:
    """The report of a gate, or of a single audit."""
    rules: dict[str, JSON] = {}
    results = [_result(step, finding, report.places, rules) for step in report.steps for finding in step.findings]
    unknown = [notification for step in report.steps for notification in _notifications(step)]
    notes = [note for step in report.steps for note in _notes(step)]
    run = {
        "tool": {"driver": {"name": "aotkern", "version": __version__, "rules": list(rules.values())}},
        "automationDetails": {"id": f"aotkern/{report.policy}"},
        "invocations": [{"executionSuccessful": not unknown, "toolExecutionNotifications": unknown + notes}],
        "results": results,
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return visible_text(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _result(step: StepResult, finding: Finding, places: Mapping[str, Place], rules: dict[str, JSON]) -> JSON:
    name = f"{finding.audit}/{finding.state.replace(' ', '-')}"
    about = _ABOUT.get(finding.audit, f"The audit {finding.audit} found: {finding.state}.")
    rules.setdefault(name, {"id": name, "name": finding.state, "shortDescription": {"text": about}})
    location: JSON = {"logicalLocations": [{"fullyQualifiedName": finding.subject, "kind": "function"}]}
    # Viewers show a result only with a line; where the source is not known the finding is about the whole file.
    place = place_of(finding.subject, places) or (Place(step.place, 1) if step.place else None)
    if place:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(place.file)},
            "region": {"startLine": place.line},
        }
    return {
        "ruleId": name,
        "ruleIndex": list(rules).index(name),
        "level": "error",
        "message": {"text": _message(f"{finding.subject}: {finding.message}")},
        "locations": [location],
        "partialFingerprints": {"aotkern/v1": _fingerprint(finding)},
    }


def _message(text: str) -> str:
    """A message in which nothing is an embedded link: SARIF reads `[text](target)` even in plain text."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _notifications(step: StepResult) -> Iterator[JSON]:
    if step.verdict is Verdict.UNKNOWN:
        yield _notification(f"{step.name} {step.subject} could not tell: {step.message}", "error")
    for finding in step.unknown:
        about = f"{step.name} {step.subject}: {finding.subject}"
        yield _notification(f"{about}: could not tell: {finding.message}", "error")


def _notes(step: StepResult) -> Iterator[JSON]:
    """What the step says of itself, clean or not, and what it left out."""
    yield _notification(f"{step.name} {step.subject}: {step.verdict}: {step.message}", "note")
    if step.skipped:
        left_out = f"left out {len(step.skipped)}: {', '.join(step.skipped)}"
        yield _notification(f"{step.name} {step.subject} {left_out}", "note")


def _notification(text: str, level: str) -> JSON:
    return {"level": level, "message": {"text": _message(text)}}


def _uri(place: str) -> str:
    path = PurePath(place)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _fingerprint(finding: Finding) -> str:
    parts = json.dumps([finding.audit, finding.state, finding.subject, finding.facts.get("bound")])
    return hashlib.sha256(parts.encode("utf-8", "backslashreplace")).hexdigest()
