"""The JIT audit for people: a summary of at most twenty lines, and the same as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotkern.audit.findings import Verdict
from aotkern.audit.jit.judge import JitReport, KernelRow, TuningRow
from aotkern.report.plain import counted, table
from aotkern.triton_bridge.watch import NEVER_WATCHED

LINES = 20
_WIDTH = 160
_KERNELS = 6
_PHASES = 4


def summary(report: JitReport) -> str:
    """At most `LINES` lines, the verdict last."""
    lines = [_head(report), *_clipped(_scope(report)), *_phases(report)]
    shown = report.all_rows
    room = min(_KERNELS, LINES - 3 - len(lines))
    lines += _clipped(_line(row) for row in shown[:room])
    if len(shown) > room:
        lines.append(f"... and {counted(len(shown) - room, 'more row')}; --json lists all")
    if report.obstacle:
        # What was found outweighs what stood in the way.
        label = "note" if report.verdict is Verdict.FINDINGS else "could not tell"
        lines += _clipped([f"{label}: {report.obstacle}"])
    lines.append(f"jit: {report.verdict}")
    return "\n".join(lines)


def reasons(report: JitReport) -> str:
    """One line for each kernel that compiled, those beyond a budget first."""
    return "\n".join(_clipped(_line(row) for row in report.all_rows))


def _head(report: JitReport) -> str:
    number = len(report.log.processes)
    processes = f"{number} process" + ("" if number == 1 else "es")
    versions = ", ".join(report.log.versions) or "none"
    return f"{processes} watched, Triton {versions}, mode {report.budget.mode}"


def _scope(report: JitReport) -> Iterator[str]:
    log = report.log
    unwatched = [*(f"{name} (imported)" for name in log.foreign), *log.missing, *NEVER_WATCHED]
    yield f"not watched: {'; '.join(unwatched)}"
    if log.faults or log.lost:
        yield f"{counted(log.lost, 'event line')} lost; faults of the watch: {'; '.join(log.faults) or 'none'}"


def _phases(report: JitReport) -> list[str]:
    rows: list[Sequence[object]] = [("phase", "compiles", "fresh", "cached", "other", "retunes", "time lost")]
    for phase in report.phases[:_PHASES]:
        mine = [row for row in report.rows if row.phase == phase]
        tunings = [row for row in report.tunings if row.phase == phase]
        total = sum(number for row in mine for number in row.outcomes.values())
        fresh, cached = (sum(row.outcomes.get(name, 0) for row in mine) for name in ("compiled", "cached"))
        seconds = sum(row.seconds for row in mine if "autotune" not in row.routes) + sum(t.seconds for t in tunings)
        retunes = sum(tuning.count for tuning in tunings)
        compiles = sum(row.count for row in mine)
        rows.append((phase, compiles, fresh, cached, total - fresh - cached, retunes, f"{seconds:.2f} s"))
    if len(rows) == 1:
        return ["nothing was compiled"]
    return table(rows, " rrrrrr").splitlines()


def _line(row: KernelRow | TuningRow) -> str:
    mark = "OVER " if row.excess else ""
    many = f" on {len(row.ranks)} ranks" if len(row.ranks) > 1 else ""
    if isinstance(row, TuningRow):
        return f"{mark}{row.phase}: {row.kernel}, {row.seconds:.2f} s{many}: {row.message}"
    what = counted(row.count, "compile") + many
    reasons = "; ".join([cause.message for cause in row.causes] + ([row.prebuilt] if row.prebuilt else []))
    return f"{mark}{row.phase}: {row.kernel}, {what}, {row.seconds:.2f} s: {reasons}"


def _clipped(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [line if len(line) <= _WIDTH else line[: _WIDTH - 4] + " ..." for line in lines]


def markdown(report: JitReport) -> str:
    """Counts, reasons, advice and declaration lines, for a pull request."""
    lines = [f"### JIT audit: {report.verdict}", "", _head(report) + ".", ""]
    if report.obstacle:
        lines += [f"Could not tell: {report.obstacle}.", ""]
    lines += ["| phase | kernel | compiles | variants | ranks | time lost | why |", "|---|---|--:|--:|--:|--:|---|"]
    for row in report.all_rows:
        lost = f"{row.seconds:.2f} s"
        cells: tuple[object, ...] = (
            (f"{row.count} retunes", row.keys, len(row.ranks), lost, row.message)
            if isinstance(row, TuningRow)
            else (row.count, row.variants, len(row.ranks), lost, "; ".join(cause.message for cause in row.causes))
        )
        cells = (row.phase, row.kernel, *cells)
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    for kernel in (row for row in report.rows if row.excess or row.prebuilt):
        advice = dict.fromkeys(cause.advice for cause in kernel.causes if cause.advice)
        lines += [
            "",
            f"**{kernel.kernel}** in phase {kernel.phase}: {kernel.excess or 'within the budget'}.",
            *(f"- {text}" for text in (kernel.prebuilt, *advice) if text),
        ]
        if kernel.declaration:
            lines += ["", "To build these variants, declare:", "", "```", kernel.declaration, "```"]
    scope = "; ".join(_scope(report))
    return "\n".join([*lines, "", f"Watched: {'; '.join(report.log.watched) or 'nothing'}. N{scope[1:]}.", ""])
