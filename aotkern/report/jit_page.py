"""What a JIT audit shows on a page: when which process compiled in which phase, and what that cost each kernel."""

from __future__ import annotations

from collections.abc import Sequence

from aotkern.audit.jit.events import Compile, Tuning
from aotkern.audit.jit.judge import AUDIT, JitReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.report import html
from aotkern.report.contributions import Contribution, contribution
from aotkern.report.page import Bar, Block, Table, Timeline


def render(report: JitReport) -> str:
    """The HTML page of a single JIT audit; errors as for `html.render`."""
    programs = ", ".join(dict.fromkeys(process.command for process in report.log.processes)) or "no program"
    seconds = sum(row.seconds for row in report.rows) + sum(row.seconds for row in report.tunings)
    return html.render(GateReport("audit jit", (StepResult.of(AUDIT, programs, report, seconds),)))


@contribution.register
def _of_jit(report: JitReport) -> Contribution:
    blocks: list[Block] = []
    if bars := _bars([*report.log.compiles, *report.log.tunings]):
        blocks.append(Timeline("Compiles and tunings over time", bars))
    if report.rows:
        blocks.append(_kernels(report))
    if report.tunings:
        blocks.append(_tunings(report))
    return Contribution(tuple(blocks))


def _bars(events: Sequence[Compile | Tuning]) -> tuple[Bar, ...]:
    begin = min((event.at for event in events), default=0)
    ordered = sorted(events, key=lambda event: (event.rank is None, event.rank, event.process, event.at))
    return tuple(Bar(_lane(e), (e.at - begin) / 1e9, e.seconds, e.phase, _label(e)) for e in ordered)


def _lane(event: Compile | Tuning) -> str:
    return f"process {event.process}" if event.rank is None else f"rank {event.rank}"


def _label(event: Compile | Tuning) -> str:
    if isinstance(event, Tuning):
        return f"{event.kernel}: tuned over {event.configs} configurations"
    return f"{event.key}: {event.outcome}, by {event.route}"


def _kernels(report: JitReport) -> Table:
    rows = tuple(
        (
            row.phase,
            row.kernel,
            str(row.count),
            str(row.variants),
            f"{row.seconds:.3f}",
            row.excess or "within the budget",
            "; ".join(cause.message for cause in row.causes),
        )
        for row in report.rows
    )
    columns = ("phase", "kernel", "compiles", "variants", "seconds", "budget", "why")
    return Table("Compiles by phase and kernel, the most expensive first", columns, rows, frozenset({2, 3, 4}))


def _tunings(report: JitReport) -> Table:
    rows = tuple(
        (row.phase, row.kernel, str(row.count), f"{row.seconds:.3f}", row.excess or "within the budget", row.message)
        for row in report.tunings
    )
    columns = ("phase", "kernel", "tunings", "seconds", "budget", "what")
    return Table("Tunings by phase and kernel, the most expensive first", columns, rows, frozenset({2, 3}))
