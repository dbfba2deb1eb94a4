"""The numerics audit as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotkern.audit.numerics import NumericsReport, Outcome
from aotkern.report.contributions import Contribution, contribution
from aotkern.report.machine import audited
from aotkern.report.page import State, Table, Tone, VariantRow
from aotkern.report.plain import counted, document, limited, table

NOT_MODELLED = "not modelled: timing, hazards, rounding inside MFMA, the last place of transcendental functions"

_WORST = 20
"""Outputs in the list of the largest errors."""


def text(report: NumericsReport) -> str:
    """A row for each kernel, the cases that came out wrong, and what was left out."""
    by_kernel: dict[str, list[Outcome]] = {}
    for outcome in report.outcomes:
        by_kernel.setdefault(outcome.key.partition("[")[0], []).append(outcome)
    rows: list[Sequence[object]] = [("kernel", "variants", "left out", "cases", "wrong", "worst L2 error")]
    for kernel, outcomes in by_kernel.items():
        l2 = max((pair[1] for outcome in outcomes for pair in outcome.worst.values()), default=0.0)
        wrong = sum(bool(outcome.error) for outcome in outcomes)
        variants = len({outcome.key for outcome in outcomes})
        rows.append(
            (kernel, variants, report.left_out.get(kernel, 0), len(outcomes), wrong, f"{l2:.1e}" if l2 else "0")
        )
    lines = [f"wrong: {o.key}\n    {o.case}, seed {o.seed}: {o.error}" for o in report.outcomes if o.error]
    parts = [f"{report.target}, executed by: {report.on}\n{table(rows, ' rrrrr')}"]
    parts += [limited(lines, "cases")] if lines else []
    if report.without_cases:
        parts.append(f"could not tell: no cases for {', '.join(report.without_cases)}")
    if report.on == "emulator":
        parts.append(NOT_MODELLED)
    closing = f"{counted(report.variants, 'variant')}, {counted(len(report.outcomes), 'case')}"
    return "\n\n".join([*parts, f"numerics: {report.verdict} ({closing})"])


def machine(report: NumericsReport) -> dict[str, Any]:
    """The document of the audit, every case listed."""
    return document(
        "numerics",
        report.verdict,
        target=str(report.target),
        on=report.on,
        left_out=dict(report.left_out),
        without_cases=list(report.without_cases),
        cases=[
            {
                "key": outcome.key,
                "case": outcome.case,
                "seed": outcome.seed,
                "error": outcome.error or None,
                "worst": {name: {"absolute": pair[0], "l2": pair[1]} for name, pair in outcome.worst.items()},
            }
            for outcome in report.outcomes
        ],
    )


audited.register(NumericsReport, machine)


@contribution.register
def _of_numerics(report: NumericsReport) -> Contribution:
    wrong = {outcome.key for outcome in report.outcomes if outcome.error}
    right = f"computes right ({report.on})"
    rows = tuple(
        VariantRow(key, (State("wrong numbers", Tone.BAD) if key in wrong else State(right, Tone.GOOD),))
        for key in dict.fromkeys(outcome.key for outcome in report.outcomes)
    )
    errors = [(o, name, pair) for o in report.outcomes for name, pair in o.worst.items()]
    worst = sorted(errors, key=lambda item: -item[2][1])[:_WORST]
    accuracy = Table(
        "Largest errors",
        ("variant", "case", "output", "absolute", "relative L2"),
        tuple((o.key, o.case, name, f"{pair[0]:.2e}", f"{pair[1]:.2e}") for o, name, pair in worst),
        frozenset({3, 4}),
    )
    return Contribution((accuracy,) if worst else (), rows)
