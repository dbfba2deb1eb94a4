"""What a server asks of the attention kernels, so that exactly that can be built ahead: plain data, derived by rules.

The server that counts here splits its heads over eight devices of 256 compute units, runs decode in captured graphs of
fixed row counts, and any number of rows up to the largest of them outside of graphs. Split counts come out of the very
selectors that a call goes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from . import layout
from .selectors import Shape, SplitPlan, adaptive_plan, gfx950_splits

COMPUTE_UNITS: Final = 256
HEADS: Final = (16, 8)
"""Query heads on one device of eight: of the large model (128) and of the small one (64)."""
CAPTURED_ROWS: Final = (1, 2, 4, 8, *range(16, 257, 8), *range(272, 513, 16))
"""Row counts that graphs are captured for."""
MAX_ROWS: Final = CAPTURED_ROWS[-1]

MATRIX_ROWS: Final = (1, 2, 4, 8, 16, 32, 48, 64)
"""Row counts of the matrix of shapes that the kernels are compared on."""
MATRIX_CONTEXTS: Final = (4096, 32_768, 100_000, 500_000, 1_000_000)
"""Its positions per row; a row has one compressed entry for each 128 of them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A kind of layer, as far as its decode kernel can tell.

    Attributes:
        block_size: Records of a page of its compressed cache, or None if it has none.
        capacities: Entries per row that its compressed index lists may have room for; (0,) without a compressed cache.
        captured_capacity: The capacity that a captured launch sees if the layer asks for adaptive splits, else None.
    """

    block_size: int | None
    capacities: tuple[int, ...]
    captured_capacity: int | None = None


SWA: Final = Layer(block_size=None, capacities=(0,))
"""Sliding window only."""
C4A: Final = Layer(block_size=layout.C4A_BLOCK_SIZE, capacities=(512, 1024))
"""The top 512 or 1,024 of the entries that cover 4 positions each."""
C128A: Final = Layer(block_size=layout.C128A_BLOCK_SIZE, capacities=tuple(range(0, 8193, 64)), captured_capacity=8192)
"""All entries that cover 128 positions each, up to 8,192 at a million positions."""
LAYERS: Final = (SWA, C4A, C128A)


@cache
def split_plans(layer: Layer) -> tuple[SplitPlan, ...]:
    """Every split plan that a gfx950 launch of `layer` can have on such a server, static ones first."""
    return _plans(layer, range(1, MAX_ROWS + 1), layer.capacities, CAPTURED_ROWS)


@cache
def matrix_plans(layer: Layer) -> tuple[SplitPlan, ...]:
    """Those of the matrix of shapes that the kernels are compared on, static ones first."""
    lengths = tuple(context // 128 for context in MATRIX_CONTEXTS) if layer is C128A else layer.capacities
    return _plans(layer, MATRIX_ROWS, lengths, MATRIX_ROWS)


def reducer_plans() -> tuple[tuple[int, bool], ...]:
    """(splits, adaptive) of every gfx950 launch of the reducer."""
    return tuple(sorted({(plan.splits, plan.adaptive) for layer in LAYERS for plan in split_plans(layer)}))


def _plans(
    layer: Layer, rows: Sequence[int], capacities: Sequence[int], captured_rows: Sequence[int]
) -> tuple[SplitPlan, ...]:
    """The plans of launches outside of graphs, and the adaptive ones of captured launches."""
    counts = {gfx950_splits(_shape(number, capacity)) for number in rows for capacity in capacities}
    static = tuple(SplitPlan(splits, adaptive=False, one_wave=splits) for splits in sorted(counts))
    if layer.captured_capacity is None:
        return static
    shapes = [_shape(number, layer.captured_capacity) for number in captured_rows]
    captured = {adaptive_plan(shape, gfx950_splits(shape), asked=True) for shape in shapes}
    return (
        *static,
        *sorted((plan for plan in captured if plan.adaptive), key=lambda plan: (plan.splits, plan.one_wave)),
    )


def _shape(rows: int, capacity: int) -> Shape:
    return Shape(rows, 1, rows * layout.SLIDING_WINDOW, rows * capacity, COMPUTE_UNITS)
