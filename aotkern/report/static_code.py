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
    last = [f"{report.target}: {report.summary}", report.not_executable, f"static: {report.verdict}"]
    return "\n\n".join([*parts, "\n".join(filter(None, last))])


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
        cannot_execute=[
            {
                "key": key,
                "pc": kind.pc,
                "mnemonic": kind.mnemonic,
                "count": kind.count,
                "instruction": kind.instruction,
                "reason": kind.reason,
            }
            for key, kinds in report.unknown.items()
            for kind in kinds
        ],
    )


audited.register(StaticReport, machine)
