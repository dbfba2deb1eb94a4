"""The decode family on an NVIDIA GPU against a float64 reference, 40 shapes, both designs: 2,880 comparisons.

    python -m benchmarks decode --bundles FOLDER      # what benchmarks/prepare.py --decode made

`h200_decode` says what a comparison is. A comparison that does not hold is counted and shown, and misses the promise.
"""

from __future__ import annotations

from typing import Any

import aotkern
from aotkern.bench import Bar, Measurement, Row, Run, Table
from benchmarks import common
from benchmarks.common import Options

DESIGNS = ("gfx950", "gfx942")
COLUMNS = (
    "shape", "eager splits", "graph splits", "compared", "hold", "readings compared", "bit-identical",
    "largest absolute error", "largest relative L2 error",
)  # fmt: skip


def measure(options: Options) -> Run:
    common.needs_gpu()
    folder = common.prepared(options)
    import torch

    from benchmarks import h200_decode as matrix
    from kernels.launchers import Platform

    observation = common.carried("decode", options)
    path = folder / "kernels.sm90.aotk"
    bundle = aotkern.load(path)
    units = torch.cuda.get_device_properties(0).multi_processor_count
    caches = matrix.Caches()
    matrix.check_reference(caches)
    outcomes = {
        design: [
            matrix.run_shape(bundle, Platform(design, fnuz_main=False, compute_units=units), caches, shape)
            for shape in matrix.shapes("1,64" if options.quick else None)
        ]
        for design in DESIGNS
    }
    notes = (
        f"{units} multiprocessors; {matrix.HEADS} heads; {len(matrix.SEEDS)} seeds; atol = rtol = 0.02, relative L2 "
        "error below 0.01.",
        "A comparison is counted once: gfx942's design has one reading of the extra cache, gfx950's two.",
    )
    tables = (summary(outcomes), *(table(design, of) for design, of in outcomes.items()))
    return observation.run(tables, bars(outcomes), notes, bundles=(path,))


def summary(outcomes: dict[str, list[Any]]) -> Table:
    """All shapes of a design in one line."""
    return Table("all shapes", ("design", *COLUMNS[3:]), tuple(Row(d, totals(of)) for d, of in outcomes.items()))


def totals(of: list[Any]) -> tuple[Measurement, ...]:
    """Counts added up, and the largest errors."""
    counts = (
        sum(outcome.compared for outcome in of),
        sum(outcome.compared - outcome.failed for outcome in of),
        sum(outcome.pairs for outcome in of),
        sum(outcome.identical for outcome in of),
    )
    errors = (max(outcome.worst_absolute for outcome in of), max(outcome.worst_l2 for outcome in of))
    return (
        *(Measurement.single("comparisons", count) for count in counts),
        Measurement.single("absolute", errors[0]),
        Measurement.single("relative", errors[1]),
    )


def table(design: str, of: list[Any]) -> Table:
    """A row for each shape."""
    rows = [
        Row(
            f"{outcome.shape.rows} rows, {outcome.shape.context:,} positions",
            (outcome.eager_splits, outcome.graph_splits, *totals([outcome])),
        )
        for outcome in of
    ]
    return Table(f"{design}'s design", COLUMNS, tuple(rows))


def bars(outcomes: dict[str, list[Any]]) -> tuple[Bar, ...]:
    """Every comparison holds, and both readings give the same bits."""
    return tuple(
        bar
        for design, of in outcomes.items()
        for bar in (
            Bar(f"{design}'s design against float64: comparisons that do not hold", "of them", 0, True,
                sum(outcome.failed for outcome in of)),
            *(
                [Bar(f"{design}'s design: readings that differ in a bit", "of them", 0, True,
                     sum(outcome.pairs - outcome.identical for outcome in of))]
                if any(outcome.pairs for outcome in of)
                else []
            ),
        )
    )  # fmt: skip
