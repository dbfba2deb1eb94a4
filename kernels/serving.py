"""What a server asks of the attention kernels, so that exactly that can be built ahead: plain data, derived by rules.

The servers that count here split their heads over eight devices, run decode in captured graphs of fixed row counts, and
any number of rows up to the largest of them outside of graphs. Split counts come out of the very selectors that a call
goes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from . import layout
from .selectors import Shape, SplitPlan, adaptive_plan, gfx950_splits

HEADS: Final = (16, 8)
"""Query heads on one device of eight: of the large model (128) and of the small one (64)."""
MATRIX_ROWS: Final = (1, 2, 4, 8, 16, 32, 48, 64)
"""Row counts of the matrix of shapes that the kernels are compared on."""
MATRIX_CONTEXTS: Final = (4096, 32_768, 100_000, 500_000, 1_000_000)
"""Its positions per row; a row has one compressed entry for each 128 of them."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and what a server runs on it.

    Attributes:
        compute_units: Compute units, or multiprocessors.
        captured_rows: Row counts that graphs are captured for; the last is also the most rows outside of graphs.
    """

    compute_units: int
    captured_rows: tuple[int, ...]


MI355X: Final = Device(256, (1, 2, 4, 8, *range(16, 257, 8), *range(272, 513, 16)))
H200: Final = Device(132, (1, 2, 4, 8, *range(16, 65, 8)))
"""Where the kernels are compared with each other; it is asked for less, since the family is not made for it."""


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
def split_plans(layer: Layer, device: Device = MI355X) -> tuple[SplitPlan, ...]:
    """Every split plan that a launch of `layer` in gfx950's design can have on such a server, static ones first."""
    rows = range(1, device.captured_rows[-1] + 1)
    counts = {gfx950_splits(_shape(device, number, capacity)) for number in rows for capacity in layer.capacities}
    static = tuple(SplitPlan(splits, adaptive=False, one_wave=splits) for splits in sorted(counts))
    if layer.captured_capacity is None:
        return static
    shapes = [_shape(device, number, layer.captured_capacity) for number in device.captured_rows]
    captured = {adaptive_plan(shape, gfx950_splits(shape), asked=True) for shape in shapes}
    return (
        *static,
        *sorted((plan for plan in captured if plan.adaptive), key=lambda plan: (plan.splits, plan.one_wave)),
    )


def reducer_plans(device: Device = MI355X) -> tuple[tuple[int, bool], ...]:
    """(splits, adaptive) of every launch of the reducer in gfx950's design."""
    return tuple(sorted({(plan.splits, plan.adaptive) for layer in LAYERS for plan in split_plans(layer, device)}))


def _shape(device: Device, rows: int, capacity: int) -> Shape:
    return Shape(rows, 1, rows * layout.SLIDING_WINDOW, rows * capacity, device.compute_units)
