"""Split selectors: published vectors, the 40-shape table, live choices, and that slices cover every entry once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.selectors import (
    GFX950_MAX_SPLITS,
    LEGACY_MAX_SPLITS,
    Shape,
    SplitPlan,
    adaptive_plan,
    gfx950_splits,
    legacy_splits,
    live_splits,
    slice_bounds,
)

ROWS = (1, 2, 4, 8, 16, 32, 48, 64)
EXTRA = (32, 256, 781, 3906, 7812)
"""Compressed entries of contexts of 4K, 32K, 100K, 500K and 1M positions, at ratio 128."""
CAPTURED_ROWS = (1, 2, 4, 8, *range(16, 257, 8), *range(272, 513, 16))


def shape(rows: int, main: int, extra: int, compute_units: int = 256) -> Shape:
    return Shape(rows, 1, rows * main, rows * extra, compute_units)


@pytest.mark.parametrize(
    ("rows", "main", "extra", "splits"),
    [
        (1, 128, 32, 32),
        (8, 128, 32, 32),
        (1, 128, 7812, 32),
        (8, 128, 7812, 32),
        (1, 128, 8192, 32),
        (17, 128, 32, 4),
        (16, 128, 781, 13),
        (48, 128, 3906, 10),
        (64, 128, 32, 4),
        (64, 128, 256, 4),
        (64, 128, 781, 7),
        (64, 128, 3906, 8),
        (64, 128, 7812, 8),
        (512, 128, 7812, 1),
    ],
)
def test_gfx950_vectors(rows: int, main: int, extra: int, splits: int) -> None:
    assert gfx950_splits(shape(rows, main, extra)) == splits


@pytest.mark.parametrize(
    ("rows", "main", "extra", "splits"),
    [(256, 128, 0, 1), (1, 128, 8192, 16), (8, 128, 8192, 16), (64, 128, 8192, 4)],
)
def test_legacy_vectors(rows: int, main: int, extra: int, splits: int) -> None:
    assert legacy_splits(shape(rows, main, extra)) == splits


def test_few_long_main_rows_are_split() -> None:
    assert legacy_splits(shape(2, 256, 0)) > 1


@pytest.mark.parametrize(
    ("rows", "splits"),
    [
        (24, (4, 8, 11, 12)),
        (38, (4, 8, 8, 8)),
        (48, (4, 6, 6, 6)),
        (100, (2, 3, 3, 3)),
        (152, (2, 2, 2, 2)),
        (256, (1, 1, 1, 1)),
        (304, (1, 1, 1, 1)),
        (224, (4, 4, 4, 4)),
        (512, (4, 4, 4, 4)),
    ],
)
def test_legacy_on_304_compute_units(rows: int, splits: tuple[int, ...]) -> None:
    assert tuple(legacy_splits(shape(rows, 128, extra, 304)) for extra in (0, 512, 1024, 8192)) == splits


FEW = {"legacy": (4, 8, 13, 16, 16), "gfx950": (32,) * 5}
TABLE_256 = {
    **dict.fromkeys((1, 2, 4, 8), FEW),
    16: {"legacy": (4, 8, 13, 16, 16), "gfx950": (4, 4, 13, 16, 31)},
    32: {"legacy": (4, 8, 7, 8, 8), "gfx950": (4, 4, 7, 16, 16)},
    48: {"legacy": (4, 4, 5, 5, 5), "gfx950": (4, 4, 5, 10, 10)},
    64: {"legacy": (4, 4, 4, 4, 4), "gfx950": (4, 4, 7, 8, 8)},
}
TABLE_304 = {
    **dict.fromkeys((1, 2, 4, 8, 16), (4, 8, 13, 16, 16)),
    32: (4, 8, 9, 9, 9),
    48: (4, 4, 5, 6, 6),
    64: (4, 4, 4, 4, 4),
}


@pytest.mark.parametrize("rows", ROWS)
def test_the_forty_shapes(rows: int) -> None:
    shapes = [shape(rows, 128, extra) for extra in EXTRA]
    assert tuple(map(legacy_splits, shapes)) == TABLE_256[rows]["legacy"]
    assert tuple(map(gfx950_splits, shapes)) == TABLE_256[rows]["gfx950"]
    assert tuple(legacy_splits(shape(rows, 128, extra, 304)) for extra in EXTRA) == TABLE_304[rows]


@pytest.mark.parametrize(
    ("rows", "splits"),
    [
        *((rows, 32) for rows in range(1, 9)),
        (16, 32),
        (24, 20),
        (32, 16),
        (48, 10),
        (64, 8),
        (128, 4),
        (256, 2),
        (512, 1),
    ],
)
def test_captured_with_the_capacity_of_a_million_positions(rows: int, splits: int) -> None:
    assert gfx950_splits(shape(rows, 128, 8192)) == splits


@pytest.mark.parametrize(
    ("rows", "plan", "steps"),
    [
        (16, SplitPlan(32, True, 16), ((0, 4), (256, 4), (257, 16), (1024, 16), (1025, 32), (8192, 32))),
        (32, SplitPlan(16, True, 8), ((256, 4), (257, 8), (512, 8), (513, 16))),
        (48, SplitPlan(10, True, 5), ((256, 4), (257, 5), (320, 5), (321, 10))),
        (64, SplitPlan(8, True, 8), ((256, 4), (257, 8), (8192, 8))),
        (8, SplitPlan(32, False, 32), ((1, 32), (8192, 32))),
    ],
)
def test_live_rows(rows: int, plan: SplitPlan, steps: tuple[tuple[int, int], ...]) -> None:
    captured = shape(rows, 128, 8192)
    assert adaptive_plan(captured, gfx950_splits(captured), asked=True) == plan
    assert tuple((extra, live_splits(128, extra, plan)) for extra, _ in steps) == steps


def test_a_launch_that_does_not_ask_is_static() -> None:
    captured = shape(16, 128, 8192)
    assert adaptive_plan(captured, 32, asked=False) == SplitPlan(32, False, 32)
    assert adaptive_plan(captured, 4, asked=True) == SplitPlan(4, False, 4)


def test_keys_of_a_captured_server() -> None:
    plans = {adaptive_plan(s, gfx950_splits(s), asked=True) for s in (shape(rows, 128, 8192) for rows in CAPTURED_ROWS)}
    static = {SplitPlan(splits, False, splits) for splits in (1, 2, 3, 4, 32)}
    middle = {5: 5, 6: 6, 7: 7, 8: 8, 9: 4, 10: 5, 12: 6, 16: 8, 20: 10, 32: 16}
    assert plans == static | {SplitPlan(splits, True, one_wave) for splits, one_wave in middle.items()}


@given(
    rows=st.integers(0, 2048),
    head_blocks=st.integers(1, 8),
    main=st.integers(0, 200_000),
    extra=st.integers(0, 2_000_000),
    compute_units=st.integers(1, 400),
)
def test_any_shape_gets_a_count_in_range(
    rows: int, head_blocks: int, main: int, extra: int, compute_units: int
) -> None:
    call = Shape(rows, head_blocks, main, extra, compute_units)
    assert 1 <= legacy_splits(call) <= LEGACY_MAX_SPLITS
    splits = gfx950_splits(call)
    assert 1 <= splits <= GFX950_MAX_SPLITS
    plan = adaptive_plan(call, splits, asked=True)
    assert 1 <= plan.one_wave <= max(splits, compute_units)
    assert 1 <= live_splits(main, extra, plan) <= splits


@given(st.integers(1, 64), st.integers(0, 5000), st.integers(0, 5000))
def test_a_live_choice_below_the_grid_walks_at_most_three_tiles(rows: int, main: int, extra: int) -> None:
    captured = shape(rows, 128, 8192)
    plan = adaptive_plan(captured, gfx950_splits(captured), asked=True)
    work = live_splits(main, extra, plan)
    tiles = -(-main // (work * 32)) + -(-extra // (work * 32))
    assert work == plan.splits or tiles <= 3


@pytest.mark.parametrize("splits", range(1, GFX950_MAX_SPLITS + 1))
def test_slices_cover_every_entry_once(splits: int) -> None:
    lengths = np.arange(4097)
    chunk = -(-lengths // splits)
    first = np.arange(splits)[:, None] * chunk
    end = np.minimum(first + chunk, lengths)
    samples = [0, 1, splits - 1, splits, splits + 1, 31, 32, 33, 4095, 4096]
    assert [[slice_bounds(n, s, splits) for s in range(splits)] for n in samples] == [
        [(int(first[s, n]), int(end[s, n])) for s in range(splits)] for n in samples
    ]
    held = np.maximum(end - first, 0)
    assert (held.sum(axis=0) == lengths).all()
    # Slices stand in order and overlap nowhere, so that counting to the length is covering it.
    assert (first[1:] >= end[:-1]).all()
    assert (np.where(held > 0, end, 0) <= lengths).all()
