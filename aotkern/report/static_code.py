"""The static check of machine code as text and as JSON."""

from __future__ import annotations

from typing import Any

from aotkern.audit.static_code import StaticReport
from aotkern.report.machine import audited, findings
from aotkern.report.plain import document, limited


def text(report: StaticReport) -> str:
    """The findings, then what was walked and the verdict."""
    lines = [f"{finding.state}: {finding.subject}\n    {finding.message}" for finding in report.findings]
    parts = [limited(lines, "findings")] if lines else []
    return "\n\n".join([*parts, f"{report.target}: {report.summary}\nstatic: {report.verdict}"])


def machine(report: StaticReport) -> dict[str, Any]:
    """The document of the audit, with every flaw, those that are no findings included."""
    return document(
        "static",
        report.verdict,
        target=str(report.target),
        objects=report.objects,
        findings=findings(report.findings),
        flaws=[
            {
                "key": key,
                "pc": flaw.pc,
                "fault": flaw.fault.value,
                "instruction": flaw.instruction,
                "detail": flaw.detail,
            }
            for key, flaws in report.flaws.items()
            for flaw in flaws
        ],
    )


audited.register(StaticReport, machine)
