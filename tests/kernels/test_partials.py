"""What the partial kernels leave in scratch, and what the reducer makes of it, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from attention import (
    GFX950,
    PLATFORMS,
    as_reference,
    constant_cache,
    paged,
    query,
    ragged,
    random_cache,
    random_rows,
)
from mended import mend_interpreter

from kernels import gfx950_partial, gfx950_tile, layout, legacy_partial, legacy_tile, reducer, reference
from kernels.decode import Scratch, launch_partial, launch_reduce
from kernels.decode_call import Segment, checked_call
from kernels.launchers import Platform
from kernels.selectors import SplitPlan

NEG = reference.NEG


@pytest.fixture
def launcher(interpreted: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    mend_interpreter(monkeypatch)
    return interpreted(legacy_tile, legacy_partial, gfx950_tile, gfx950_partial, reducer)


def static(splits: int) -> SplitPlan:
    return SplitPlan(splits, adaptive=False, one_wave=splits)


def poisoned_scratch(q: torch.Tensor, splits: int) -> Scratch:
    scratch = Scratch.for_call(q, splits)
    scratch.m.fill_(float("nan"))
    scratch.l.fill_(float("nan"))
    scratch.acc.fill_(float("nan"))
    scratch.acc[..., ::2] = float("inf")
    return scratch


def partial(launcher: Any, platform: Platform, q: torch.Tensor, main: Segment, extra: Any, plan: SplitPlan) -> Scratch:
    scratch = poisoned_scratch(q, plan.splits)
    launch_partial(launcher, platform, checked_call(platform, q, main, extra), plan, scratch)
    return scratch


@pytest.mark.parametrize("name", PLATFORMS)
@pytest.mark.parametrize("splits", [1, 5])
def test_scratch_is_that_of_the_reference(launcher: Any, name: str, splits: int) -> None:
    platform = PLATFORMS[name]
    main = Segment(random_cache(1, 8, 16, fnuz=platform.fnuz_main), ragged(random_rows(2, 128, (40, 0, 3))))
    extra = Segment(random_cache(3, 40, 2, fnuz=False), ragged(random_rows(4, 80, (70, 2, 0))))
    q = query(5, 3, 4)
    scratch = partial(launcher, platform, q, main, extra, static(splits))
    wanted = reference.partial(as_reference(q, main, extra, None, fnuz_main=platform.fnuz_main), splits)
    np.testing.assert_allclose(scratch.m, wanted.m, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(scratch.l, wanted.l, rtol=1e-3)
    np.testing.assert_allclose(scratch.acc, wanted.acc, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("name", "blocks"), [("gfx950", 65), ("gfx942", 65)])
def test_constant_rows_give_exact_numbers(launcher: Any, name: str, blocks: int) -> None:
    platform = Platform(PLATFORMS[name].design, fnuz_main=False, compute_units=256)
    main = Segment(constant_cache(0.125, 4, 4), ragged([[], []]))
    extra = Segment(constant_cache(0.125, 4, 4), ragged([[5] * blocks * 2, []]))
    q = torch.full((2, 3, layout.HEAD_DIM), 0.125, dtype=torch.bfloat16)
    scratch = partial(launcher, platform, q, main, extra, static(2))
    torch.testing.assert_close(scratch.m[0], torch.full((2, 3), 512 * 0.125**2 * 512**-0.5), rtol=1e-6, atol=0)
    assert scratch.l[0].eq(65).all()
    assert scratch.acc[0].eq(8.125).all()
    assert scratch.m[1].eq(NEG).all()
    assert scratch.l[1].eq(0).all()
    assert scratch.acc[1].eq(0).all()


@pytest.mark.parametrize("splits", [1, 2, 3, 8, 32])
def test_a_batch_is_its_rows_bit_for_bit(launcher: Any, splits: int) -> None:
    main = Segment(random_cache(6, 8, 16, fnuz=False), ragged(random_rows(7, 128, (37, 0))))
    extra = Segment(random_cache(8, 40, 2, fnuz=False), ragged(random_rows(9, 80, (66, 0))))
    q = query(10, 2, 3)
    both = partial(launcher, GFX950, q, main, extra, static(splits))
    for row in (0, 1):
        rows = [
            Segment(s.cache, ragged([s.rows.indices[s.rows.indptr[row] : s.rows.indptr[row + 1]].tolist()]))
            for s in (main, extra)
        ]
        alone = partial(launcher, GFX950, q[row : row + 1], *rows, static(splits))
        assert torch.equal(alone.m[0], both.m[row])
        assert torch.equal(alone.l[0], both.l[row])
        assert torch.equal(alone.acc[0], both.acc[row])


def test_adaptive_rows_use_as_many_splits_as_they_need(launcher: Any) -> None:
    plan = SplitPlan(32, adaptive=True, one_wave=16)
    working = (4, 16, 32)
    cache = random_cache(11, 4, 4, fnuz=False)
    main = Segment(cache, ragged([[1], [2], [3]]))
    extra = Segment(cache, ragged(random_rows(12, 16, (64, 512, 1536))))
    q = query(13, 3, 2)
    scratch = partial(launcher, GFX950, q, main, extra, plan)
    for row, work in enumerate(working):
        assert scratch.m[row, :work].gt(NEG).all()
        assert scratch.m[row, work:].eq(NEG).all()
        assert scratch.l[row, work:].eq(0).all()
        untouched = scratch.acc[row, work:]
        assert untouched[..., ::2].eq(float("inf")).all()
        assert untouched[..., 1::2].isnan().all()
    out = q.new_empty(q.shape)
    launch_reduce(launcher, checked_call(GFX950, q, main, extra), plan, scratch, out)
    wanted = reference.attend(as_reference(q, main, extra, None, fnuz_main=False))
    np.testing.assert_allclose(out.double(), wanted, rtol=0.02, atol=0.02)


def test_the_reducer_does_not_read_what_inactive_splits_left(launcher: Any) -> None:
    q = query(14, 1, 1)
    scratch = Scratch.for_call(q, 8)
    scratch.m.fill_(NEG)
    scratch.l.fill_(0)
    scratch.acc.fill_(float("nan"))
    scratch.m[:, [1, 6]] = 0
    scratch.l[:, [1, 6]] = 1
    scratch.acc[:, 1], scratch.acc[:, 6] = 1, 3
    call = checked_call(GFX950, q, Segment(random_cache(15, 1, 4, fnuz=False), ragged([[]])))
    out = q.new_empty(q.shape)
    launch_reduce(launcher, call, SplitPlan(8, adaptive=True, one_wave=8), scratch, out)
    assert out.eq(2).all()


@pytest.mark.parametrize("sink", [None, -3.0, 40.0, float("-inf")])
@pytest.mark.parametrize("splits", [1, 3, 8])
def test_the_reducer_against_the_reference(launcher: Any, splits: int, sink: float | None) -> None:
    generator = torch.Generator().manual_seed(splits)
    q = query(16, 2, 3)
    scratch = Scratch(
        m=torch.randn(2, splits, 3, generator=generator) * 5,
        l=torch.rand(2, splits, 3, generator=generator) * 60 + 1,
        acc=torch.randn(2, splits, 3, layout.HEAD_DIM, generator=generator) * 8,
    )
    scratch.m[1, 0], scratch.l[1, 0], scratch.acc[1, 0] = NEG, 0, 0
    sinks = None if sink is None else torch.full((3,), sink)
    call = checked_call(GFX950, q, Segment(random_cache(17, 1, 4, fnuz=False), ragged([[], []])), sink=sinks)
    out = torch.empty(q.shape)
    launch_reduce(launcher, call, static(splits), scratch, out)
    parts = reference.Partial(*(x.double().numpy() for x in (scratch.m, scratch.l, scratch.acc)))
    wanted = reference.reduce(parts, None if sinks is None else sinks.double().numpy())
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)


def test_groups_and_tails_cover_a_slice_once(launcher: Any) -> None:
    """Rows of 0 to 131 entries, from none to two whole groups and a tail of each kind: slot s is lane s of the sum."""
    lengths = (0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 131)
    cache = one_hot_cache(132)
    main = Segment(cache, ragged([[]] * len(lengths)))
    extra = Segment(cache, ragged([list(range(length)) for length in lengths], spare=70))
    q = torch.zeros(len(lengths), 1, layout.HEAD_DIM, dtype=torch.bfloat16)
    scratch = partial(launcher, GFX950, q, main, extra, static(1))
    taken = scratch.acc[:, 0, 0].int()
    wanted = torch.arange(layout.HEAD_DIM) < torch.tensor(lengths)[:, None]
    assert torch.equal(taken, wanted.int())
    assert torch.equal(scratch.l[:, 0, 0], torch.tensor(lengths).float())


def one_hot_cache(slots: int) -> torch.Tensor:
    """A cache with pages of two records; the record of slot s is 1 in dim s, and 0 elsewhere."""
    pages = np.zeros((slots // 2, layout.page_bytes(2)), np.uint8)
    one = next(byte for byte in range(256) if reference.fp8_value(byte, fnuz=False) == 1)
    for slot in range(slots):
        page, position = layout.page_of(slot, 2)
        pages[page, layout.data_offset(position) + slot] = one
        scale_at = layout.scale_offset(position, 2)
        pages[page, scale_at : scale_at + layout.QUANT_BLOCKS] = layout.SCALE_BIAS
    return paged(pages, 2)
