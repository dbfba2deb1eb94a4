"""NaN and infinities in q, sinks and K, through both designs' machine code in the emulator, against the reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from attention import PLATFORMS, as_reference, pages_of, query, ragged, random_cache, random_rows
from emulating import EmulatorLauncher

from kernels import layout, reference
from kernels.decode import Scratch, launch_partial, launch_reduce
from kernels.decode_call import Segment, checked_call
from kernels.launchers import Platform
from kernels.selectors import SplitPlan

HEADS = 16
STATIC, ADAPTIVE = SplitPlan(8, adaptive=False, one_wave=8), SplitPlan(8, adaptive=True, one_wave=8)
INF_SLOT = 11
"""The slot of the extra cache whose first rotated lane is +inf in some tests."""


@cache
def launcher(design: str) -> EmulatorLauncher:
    partial = {"gfx942": "kernels.legacy_partial", "gfx950": "kernels.gfx950_partial"}[design]
    return EmulatorLauncher(design, partial, "kernels.reducer")


def segments(platform: Platform, extra: list[list[int]]) -> tuple[Segment, Segment]:
    rows = [[5, 9]] * len(extra)
    main = random_cache(1, 4, layout.MAIN_BLOCK_SIZE, fnuz=platform.fnuz_main, padding=64)
    assert main.stride(0) == layout.page_stride(layout.MAIN_BLOCK_SIZE)
    padded = layout.page_stride(layout.C128A_BLOCK_SIZE) - layout.page_bytes(layout.C128A_BLOCK_SIZE)
    cache = random_cache(2, 64, layout.C128A_BLOCK_SIZE, fnuz=False, padding=padded)
    return Segment(main, ragged(rows)), Segment(cache, ragged(extra))


def attend(
    design: str, plan: SplitPlan, q: torch.Tensor, both: tuple[Segment, Segment], sink: torch.Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The output of the machine code, and of the reference."""
    platform = PLATFORMS[design]
    call = checked_call(platform, q, *both, sink=sink)
    scratch = Scratch.for_call(q, plan.splits)
    for part in (scratch.m, scratch.l, scratch.acc):
        part.fill_(float("nan"))
    launch_partial(launcher(design), platform, call, plan, scratch)
    out = torch.empty_like(q)
    launch_reduce(launcher(design), call, plan, scratch, out)
    wanted = reference.attend(as_reference(q, *both, sink, fnuz_main=platform.fnuz_main))
    return out.double().numpy(), wanted


def with_infinity(segment: Segment, slot: int = INF_SLOT) -> None:
    page, position = layout.page_of(slot, segment.block_size)
    at = layout.data_offset(position) + layout.NOPE
    pages_of(segment.cache)[page, at : at + 2] = torch.tensor([0x80, 0x7F], dtype=torch.uint8)


def assert_alike(found: np.ndarray, wanted: np.ndarray) -> None:
    assert (np.isnan(found) == np.isnan(wanted)).all()
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)


LONG = [*random_rows(4, INF_SLOT, (300,))]


@pytest.mark.parametrize("plan", [STATIC, ADAPTIVE], ids=["static", "adaptive"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_query_that_is_not_finite_makes_its_head_nan(value: float, plan: SplitPlan) -> None:
    q = query(5, 16, HEADS)[:1]
    q[0, 3, 17] = value
    found, wanted = attend("gfx950", plan, q, segments(PLATFORMS["gfx950"], LONG))
    assert np.isnan(wanted[0, 3]).all()
    assert np.isfinite(np.delete(wanted, 3, axis=1)).all()
    assert_alike(found, wanted)


@pytest.mark.parametrize("plan", [STATIC, ADAPTIVE], ids=["static", "adaptive"])
def test_an_infinite_lane_of_k_is_dropped_by_no_slice(plan: SplitPlan) -> None:
    """Entries that hold it lie in three of eight slices; heads whose score it makes +inf, and -inf, are both there."""
    row = list(LONG[0])
    for place in (20, 130, 280):
        row[place] = INF_SLOT
    both = segments(PLATFORMS["gfx950"], [row])
    with_infinity(both[1])
    q = query(6, 1, HEADS)
    found, wanted = attend("gfx950", plan, q, both)
    broken = np.isnan(wanted).all(axis=2)
    assert 0 < broken.sum() < HEADS
    assert (np.isnan(wanted).sum(axis=2)[~broken] == 1).all()  # a score of -inf: 0 times infinity, in its lane
    assert_alike(found, wanted)


@pytest.mark.parametrize("plan", [STATIC, ADAPTIVE], ids=["static", "adaptive"])
def test_a_slice_of_weightless_entries_keeps_their_infinite_lane(plan: SplitPlan) -> None:
    """One of the slices holds nothing but entries whose score is -inf."""
    row = list(LONG[0])
    chunk = -(-len(row) // 8)
    row[7 * chunk :] = [INF_SLOT] * (len(row) - 7 * chunk)
    main, extra = segments(PLATFORMS["gfx950"], [row])
    with_infinity(extra)
    q = query(7, 1, HEADS)
    found, wanted = attend("gfx950", plan, q, (main, extra))
    lane = layout.NOPE
    weightless = q[0, :, lane].lt(0).numpy()
    assert weightless.any()
    assert np.isnan(wanted[0, weightless, lane]).all()
    assert_alike(found, wanted)


@pytest.mark.parametrize("plan", [STATIC, ADAPTIVE], ids=["static", "adaptive"])
def test_a_row_of_weightless_entries_is_zero(plan: SplitPlan) -> None:
    main, extra = segments(PLATFORMS["gfx950"], [[INF_SLOT] * 300])
    main = Segment(main.cache, ragged([[]]))
    with_infinity(extra)
    q = query(8, 1, HEADS)
    found, wanted = attend("gfx950", plan, q, (main, extra))
    weightless = q[0, :, layout.NOPE].lt(0).numpy()
    assert (wanted[0, weightless] == 0).all()
    assert np.isnan(wanted[0, ~weightless]).all()
    assert_alike(found, wanted)


@pytest.mark.parametrize(("design", "plan"), [("gfx942", STATIC), ("gfx950", STATIC), ("gfx950", ADAPTIVE)], ids=str)
def test_sinks_that_are_not_finite(design: str, plan: SplitPlan) -> None:
    """Both designs share the reducer, which keeps upstream's formula: a sum that is no positive number gives 0."""
    sink = torch.linspace(-1, 1, HEADS)
    sink[2], sink[5], sink[7] = float("nan"), float("inf"), float("-inf")
    found, wanted = attend(design, plan, query(9, 1, HEADS), segments(PLATFORMS[design], LONG), sink)
    assert np.isnan(wanted[0, 2]).all()
    wanted[0, 2] = 0
    assert (wanted[0, 5] == 0).all()
    assert_alike(found, wanted)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gfx942_keeps_upstreams_zeros(value: float) -> None:
    """The machine code of gfx942 is not changed: there a head whose scores are NaN is 0, as docs/kernels.md says."""
    q = query(10, 1, HEADS)
    q[0, 3, 17] = value
    found, wanted = attend("gfx942", STATIC, q, segments(PLATFORMS["gfx942"], LONG))
    assert np.isnan(wanted[0, 3]).all()
    wanted[0, 3] = 0
    assert_alike(found, wanted)
