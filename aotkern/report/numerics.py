"""The numerics audit as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from aotkern.audit.examining import Coverage, Outcome
from aotkern.audit.numerics import NOT_SAID, NumericsReport, gaps, percent
from aotkern.report.contributions import Contribution, contribution
from aotkern.report.machine import audited
from aotkern.report.page import State, Table, Tone, VariantRow
from aotkern.report.plain import document, limited, table

_WORST = 20
"""Outputs in the list of the largest errors."""
_LEAST = 5
"""Code objects, the least executed ones, whose missing instructions are printed."""
_COLUMNS = ("kernel", "code objects", "of", "cases", "wrong", "could not tell", "instructions run", "worst L2 error")


def text(report: NumericsReport) -> str:
    """A row for each kernel, what is wrong, what could not be told, what never ran, and what was left out."""
    rows: list[Sequence[object]] = [_COLUMNS]
    rows += [_row(report, kernel) for kernel in report.objects]
    orders = f", waves in orders {', '.join(report.orders)}" if report.orders else ""
    parts = [f"{report.target}, executed by: {report.on}{orders}\n{table(rows, ' rrrrrrr')}"]
    parts += [limited(lines, noun) for lines, noun in _lists(report) if lines]
    if report.on == "emulator":
        parts.append(NOT_SAID)
    return "\n\n".join([*parts, report.summary, f"numerics: {report.verdict}"])


def _row(report: NumericsReport, kernel: str) -> Sequence[object]:
    outcomes = [outcome for outcome in report.outcomes if outcome.key.partition("[")[0] == kernel]
    counts = report.objects[kernel]
    l2 = max((pair[1] for outcome in outcomes for pair in outcome.worst.values()), default=0.0)
    cases = sum(bool(outcome.orders or outcome.error) for outcome in outcomes)
    wrong = sum(bool(outcome.error) for outcome in outcomes)
    open_ones = sum(bool(outcome.doubt and not outcome.error) for outcome in outcomes)
    covered = [one for key, one in report.coverage.items() if key.partition("[")[0] == kernel]
    return kernel, counts.run, counts.of, cases, wrong, open_ones, _share(covered), f"{l2:.1e}" if l2 else "0"


def _share(covered: Sequence[Coverage]) -> str:
    reachable = sum(one.reachable for one in covered)
    return percent(sum(one.executed for one in covered) / reachable) if reachable else "-"


def _lists(report: NumericsReport) -> Iterator[tuple[list[str], str]]:
    yield [f"{f.state}: {f.subject}\n    {f.message}" for f in report.findings], "findings"
    yield [f"{f.state}: {f.subject}\n    {f.message}" for f in report.unknown], "questions left open"
    never = [f"not executed: {key}\n    {text}" for key, text in _never_run(report)]
    rest = [f"... and {len(never) - _LEAST} more code objects; --json lists all"] if len(never) > _LEAST else []
    yield [*never[:_LEAST], *rest], "code objects"
    yield [f"left out: {key}" for key in report.skipped], "left out"


def _never_run(report: NumericsReport) -> Iterator[tuple[str, str]]:
    """Code objects of which not every instruction ran, the least executed first."""
    for key, one in sorted(report.coverage.items(), key=lambda item: item[1].share):
        if one.gaps or not one.complete:
            unknown = "" if one.complete else "; behind jumps that cannot be followed there may be more"
            found = gaps(one) if one.gaps else "all that is known"
            yield key, f"{percent(one.share)} of {one.reachable} instructions ran: {found}{unknown}"


def machine(report: NumericsReport) -> dict[str, Any]:
    """The document of the audit, every case listed."""
    return document(
        "numerics",
        report.verdict,
        target=str(report.target),
        on=report.on,
        orders=list(report.orders),
        objects={kernel: {"run": counts.run, "of": counts.of} for kernel, counts in report.objects.items()},
        left_out={kernel: list(keys) for kernel, keys in report.left_out.items()},
        without_cases=list(report.without_cases),
        counts={
            "right": len(report.outcomes) - report.wrong - report.undecided,
            "wrong": report.wrong,
            "could not tell": report.undecided,
        },
        coverage=_coverage(report),
        cases=[_case(outcome) for outcome in report.outcomes],
        not_said=NOT_SAID,
    )


def _case(outcome: Outcome) -> dict[str, Any]:
    return {
        "key": outcome.key,
        "case": outcome.case,
        "seed": outcome.seed,
        "orders": list(outcome.orders),
        "error": outcome.error or None,
        "doubt": outcome.doubt or None,
        "compared": outcome.compared,
        "worst": {name: {"absolute": _finite(pair[0]), "l2": _finite(pair[1])} for name, pair in outcome.worst.items()},
    }


def _finite(number: float) -> float:
    """JSON has no infinity and no NaN: the largest number stands for them."""
    return number if math.isfinite(number) else 1.7976931348623157e308


def _coverage(report: NumericsReport) -> dict[str, Any] | None:
    share = report.covered
    if share is None:
        return None
    variants = [
        {
            "key": key,
            "executed": one.executed,
            "reachable": one.reachable,
            "complete": one.complete,
            "not_executed": [
                {"first": gap.first, "last": gap.last, "count": gap.count, "instruction": gap.text} for gap in one.gaps
            ],
        }
        for key, one in report.coverage.items()
    ]
    return {"bound": report.bound, "share": share, "variants": variants}


audited.register(NumericsReport, machine)


@contribution.register
def _of_numerics(report: NumericsReport) -> Contribution:
    blocks = (_by_kernel(report), _accuracy(report), _uncovered(report), _skipped(report), _said(report))
    return Contribution(tuple(block for block in blocks if block is not None), tuple(_variants(report)))


def _variants(report: NumericsReport) -> Iterator[VariantRow]:
    """What is said of each variant; one that was left out is not told, whatever other audits say of it."""
    wrong = {finding.subject for finding in report.findings if finding.state == "wrong"}
    little = {finding.subject for finding in report.findings} - wrong
    unknown = {finding.subject for finding in report.unknown}
    for key in dict.fromkeys(outcome.key for outcome in report.outcomes):
        if key in wrong:
            yield VariantRow(key, (State("wrong numbers", Tone.BAD),))
        elif key in little:
            yield VariantRow(key, (State("too little executed", Tone.BAD),))
        elif key in unknown:
            yield VariantRow(key, (State("numbers: could not tell", Tone.UNKNOWN),))
        else:
            yield VariantRow(key, (State(f"computes right ({report.on})", Tone.GOOD),))
    for key in report.skipped:
        yield VariantRow(key, (State("not executed: left out", Tone.UNKNOWN),))


def _by_kernel(report: NumericsReport) -> Table:
    rows = tuple(tuple(str(cell) for cell in _row(report, kernel)) for kernel in report.objects)
    return Table(f"Executed by {report.on}", _COLUMNS, rows, frozenset(range(1, len(_COLUMNS))))


def _accuracy(report: NumericsReport) -> Table | None:
    errors = [(o, name, pair) for o in report.outcomes for name, pair in o.worst.items()]
    worst = sorted(errors, key=lambda item: -item[2][1])[:_WORST]
    rows = tuple((o.key, o.case, name, f"{pair[0]:.2e}", f"{pair[1]:.2e}") for o, name, pair in worst)
    columns = ("variant", "case", "output", "absolute", "relative L2")
    return Table("Largest errors", columns, rows, frozenset({3, 4})) if rows else None


def _uncovered(report: NumericsReport) -> Table | None:
    rows = tuple(_never_run(report))
    return Table("Instructions that no case executed", ("variant", "instructions"), rows) if rows else None


def _skipped(report: NumericsReport) -> Table | None:
    rows = tuple((key,) for key in report.skipped)
    return Table("Left out", ("variant",), rows) if rows else None


def _said(report: NumericsReport) -> Table | None:
    if report.on != "emulator":
        return None
    return Table("What this does not say", ("in the emulator",), ((NOT_SAID,),))
