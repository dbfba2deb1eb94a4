"""Coverage for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence

from aotkern.audit.coverage.proof import CoverageReport
from aotkern.report.contributions import Contribution, contribution
from aotkern.report.machine import audited
from aotkern.report.page import Cell, Grid, Table, Tone
from aotkern.report.plain import JSON, counted, document, table

_GAPS = 10


def summary(report: CoverageReport) -> str:
    """A row for each kernel, then the largest gaps with their reasons, the verdict last."""
    rows: list[Sequence[object]] = [("kernel", "calls", "covered", "")]
    for kernel in report.kernels:
        share = f"{100 * kernel.covered / kernel.calls:.4g} %" if kernel.calls else ""
        rows.append((kernel.kernel, kernel.calls, kernel.covered, share))
    lines = table(rows, " rrr").splitlines() if report.kernels else []
    gaps = [(kernel.kernel, gap) for kernel in report.kernels for gap in kernel.gaps]
    for name, gap in gaps[:_GAPS]:
        many = "cannot be covered" if gap.impossible else counted(gap.calls, "call") + " without a variant"
        lines += [f"{name}: {many}, such as {gap.example}"]
        what = "differs from the nearest variant in " if gap.nearest else ""
        lines += [f"    {what}{'; '.join(gap.reasons)}"]
        lines += [f"    {text}" for text in gap.advice]
    if len(gaps) > _GAPS:
        lines.append(f"... and {counted(len(gaps) - _GAPS, 'more gap')}; --json lists all")
    if report.obstacle:
        lines.append(f"could not tell: {report.obstacle}")
    return "\n".join([*lines, f"coverage of {report.source} by {report.label} ({report.target}): {report.verdict}"])


def json_document(report: CoverageReport) -> JSON:
    """Everything (schema `coverage.schema.json`)."""
    return document(
        "coverage",
        report.verdict,
        bundle=report.label,
        target=report.target,
        source=report.source,
        obstacle=report.obstacle or None,
        kernels=[
            {
                "kernel": kernel.kernel,
                "calls": kernel.calls,
                "covered": kernel.covered,
                "gaps": [
                    {
                        "calls": gap.calls,
                        "example": gap.example,
                        "nearest": gap.nearest,
                        "reasons": list(gap.reasons),
                        "advice": list(gap.advice),
                        "impossible": gap.impossible,
                    }
                    for gap in kernel.gaps
                ],
            }
            for kernel in report.kernels
        ],
    )


audited.register(CoverageReport, json_document)


@contribution.register
def _of_coverage(report: CoverageReport) -> Contribution:
    """The coverage map, and the gaps with their reasons."""
    cells = {
        (kernel.kernel, report.target): Cell(
            f"{kernel.covered} of {kernel.calls} calls", Tone.BAD if kernel.gaps else Tone.GOOD
        )
        for kernel in report.kernels
    }
    names = tuple(kernel.kernel for kernel in report.kernels)
    chart = Grid(f"Calls of {report.source} that find a variant", "kernel", names, (report.target,), cells)
    gaps = tuple(
        (kernel.kernel, str(gap.calls), gap.example, gap.nearest or "none", "; ".join(gap.reasons))
        for kernel in report.kernels
        for gap in kernel.gaps
    )
    columns = ("kernel", "calls", "such as", "nearest variant", "differs in")
    missing = Table("Calls without a variant", columns, gaps, frozenset({1}))
    return Contribution((chart, missing) if gaps else (chart,))
