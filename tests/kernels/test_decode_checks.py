"""What the host refuses before anything is launched, and what it computes without a device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention import GFX942, GFX950, constant_cache, query, ragged

from aotkern.errors import InputError
from kernels.decode import Scratch, choose_splits, decode, scratch_bytes
from kernels.decode_call import Segment, checked_call
from kernels.launchers import LAUNCH_OPTIONS, JitLauncher, Platform
from kernels.selectors import SplitPlan


class NoLauncher:
    def __getitem__(self, kernel: str) -> Any:
        raise AssertionError(f"{kernel} was launched")


MAIN = Segment(constant_cache(0.125, 2, 4), ragged([[1], [2]]))


def refuse(problem: str, *arguments: Any, platform: Platform = GFX950, **how: Any) -> None:
    with pytest.raises(InputError, match=problem):
        decode(NoLauncher(), platform, *arguments, **how)


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        decode(NoLauncher(), GFX950, query(1, 2, 3).float()[..., :500], Segment(MAIN.cache, ragged([[1]])))
    assert [problem.where for problem in caught.value.problems] == [
        "decode: q",
        "decode: q",
        "decode: main.rows.indptr",
    ]


@pytest.mark.parametrize(
    ("stride", "problem"),
    [(4 * 584 - 2, "pages of at least 2336 bytes"), (4 * 584 + 1, "pages that start at even bytes")],
)
def test_pages_that_overlap_or_are_odd(stride: int, problem: str) -> None:
    cache = torch.zeros(9000, dtype=torch.uint8).as_strided((2, 4, 584), (stride, 584, 1))
    refuse(problem, query(1, 2, 3), Segment(cache, MAIN.rows))


def test_q_and_out() -> None:
    q = query(1, 2, 3)
    refuse("q: expected contiguous trailing dims", q.transpose(1, 2).contiguous().transpose(1, 2), MAIN)
    refuse(r"out: expected shape \[2, 3, 512\]", q, MAIN, out=q[:1])
    refuse("out: expected dtype", q, MAIN, out=torch.zeros(2, 3, 512, dtype=torch.int32))
    refuse("at least 3 elements, found 2", q, MAIN, sink=torch.zeros(2))


def test_what_a_platform_cannot_do() -> None:
    q = query(1, 2, 3)
    refuse("found gfx942 and an extra segment", q, MAIN, MAIN, platform=GFX942, trust_extra=True)
    refuse("found gfx950 and no extra segment", q, MAIN, trust_extra=True)
    refuse("splits: expected 1 to 16", q, MAIN, platform=GFX942, splits=17)
    refuse("splits: expected 1 to 32", q, MAIN, splits=33)
    refuse("monolithic: expected gfx942 kernels", q, MAIN, monolithic=True)


def test_scratch_has_the_documented_size() -> None:
    scratch = Scratch.for_call(query(1, 2, 3), 5)
    assert scratch.m.shape == scratch.l.shape == (2, 5, 3)
    assert scratch.acc.shape == (2, 5, 3, 512)
    held = sum(part.numel() * part.element_size() for part in (scratch.m, scratch.l, scratch.acc))
    assert held == scratch_bytes(2, 5, 3)
    assert scratch_bytes(64, 8, 16) == 16_842_752


def test_splits_come_from_capacities() -> None:
    rows = ragged([[0]] * 16, spare=16 * 127)
    extra = Segment(MAIN.cache, ragged([[0]] * 16, spare=16 * 8191))
    call = checked_call(GFX950, query(1, 16, 16), Segment(MAIN.cache, rows), extra)
    assert choose_splits(GFX950, call, adaptive=True) == SplitPlan(32, True, 16)
    assert choose_splits(GFX950, call) == SplitPlan(32, False, 32)
    assert choose_splits(GFX942, call, adaptive=True) == SplitPlan(16, False, 16)
    assert choose_splits(GFX950, call, splits=7) == SplitPlan(7, False, 7)


@pytest.mark.parametrize(
    ("arch", "design", "fnuz"),
    [("gfx942:sramecc+:xnack-", "gfx942", True), ("gfx950", "gfx950", False), ("90", "gfx950", False)],
)
def test_platforms(arch: str, design: str, fnuz: bool) -> None:
    platform = Platform.of(arch, 256)
    assert (platform.design, platform.fnuz_main) == (design, fnuz)


def test_the_jit_launcher_knows_every_kernel_that_has_options() -> None:
    launcher = JitLauncher()
    for kernel in LAUNCH_OPTIONS:
        assert launcher[kernel].__name__ == kernel
