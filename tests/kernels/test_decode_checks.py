"""What the host refuses before anything is launched, and what it computes without a device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention import GFX942, GFX950, constant_cache, query, ragged

from aotkern.errors import InputError
from kernels import layout, write, write_compressed
from kernels.decode import Scratch, choose_splits, decode, scratch_bytes
from kernels.decode_call import Segment, checked_call
from kernels.gather_host import DYNAMIC, SPECIALISED, gather_indexer_cache, gather_kernel
from kernels.launchers import LAUNCH_OPTIONS, JitLauncher, Platform
from kernels.ragged import Ragged, pack_rows
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
    [
        ("gfx942", "gfx942", True),
        ("gfx942:sramecc+:xnack-", "gfx942", True),
        ("hip:gfx942:xnack+", "gfx942", True),
        ("gfx950", "gfx950", False),
        ("gfx950:sramecc+:xnack-", "gfx950", False),
        ("90", "gfx950", False),
        ("90a", "gfx950", False),
        ("sm_90", "gfx950", False),
        ("cuda:90", "gfx950", False),
    ],
)
def test_platforms(arch: str, design: str, fnuz: bool) -> None:
    platform = Platform.of(arch, 256)
    assert (platform.design, platform.fnuz_main) == (design, fnuz)
    assert gather_kernel(arch) == (SPECIALISED if design == "gfx942" else DYNAMIC)
    assert gather_kernel(arch, dynamic=True) == DYNAMIC


@pytest.mark.parametrize("arch", ["gfx90a", "gfx940", "gfx941", "gfx1201", "gfx9500", "gfx942x", "", "hip", "MI300"])
def test_architectures_that_nothing_here_is_made_for(arch: str) -> None:
    for choose in (lambda: Platform.of(arch, 256), lambda: gather_kernel(arch)):
        with pytest.raises(InputError, match=f"expected gfx942, gfx950, or that of an NVIDIA GPU, found '{arch}'"):
            choose()


class Launched:
    """A launcher that keeps what it is asked to launch, and launches nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, kernel: str) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            self.calls.append((kernel, arguments, constants))

        return _Grids(launch)


class _Grids:
    def __init__(self, launch: Any) -> None:
        self._launch = launch

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self._launch


def numbers(launched: Launched) -> list[Any]:
    """What each launch is specialised on besides its tensors."""
    return [
        (kernel, [value for value in arguments if not isinstance(value, torch.Tensor)], constants)
        for kernel, arguments, constants in launched.calls
    ]


def restrided(tensor: torch.Tensor, *axes: int) -> torch.Tensor:
    """The same tensor, with strides of its axes of one element that mean nothing."""
    strides = list(tensor.stride())
    for axis in axes:
        assert tensor.shape[axis] == 1
        strides[axis] = 7
    return tensor.as_strided(tensor.shape, strides)


@pytest.mark.parametrize("platform", [GFX942, GFX950], ids=lambda platform: platform.design)
def test_strides_of_one_row_and_one_page_make_no_difference(platform: Platform) -> None:
    """A contiguous row of one token, a transposed one and a sliced one are the same launch; so are single pages."""
    pages = torch.zeros(layout.page_stride(64), dtype=torch.uint8)
    cache = pages.as_strided((1, 64, 584), (layout.page_stride(64), 584, 1))
    calls = []
    for q, page, out in (
        (query(1, 1, 16), cache, torch.zeros(1, 16, 512, dtype=torch.bfloat16)),
        (query(1, 16, 1).transpose(0, 1), cache.as_strided((1, 64, 584), (64 * 584, 584, 1)),
         torch.zeros(16, 1, 512, dtype=torch.bfloat16).transpose(0, 1)),
        (restrided(query(1, 1, 16), 0), restrided(cache, 0),
         restrided(torch.zeros(1, 16, 512, dtype=torch.bfloat16), 0)),
    ):  # fmt: skip
        launched = Launched()
        segment = Segment(page, ragged([[1]]))
        decode(launched, platform, q, segment, segment, splits=2, out=out)
        if platform is GFX942:
            decode(launched, platform, q, segment, segment, monolithic=True)
        calls.append(numbers(launched))
    assert calls[0] == calls[1] == calls[2]
    assert calls[0][0][0].startswith("decode_partial")


def test_one_row_of_several_heads_keeps_the_distance_of_its_heads() -> None:
    launched = Launched()
    padded = torch.zeros(1, 4, 640, dtype=torch.bfloat16)[..., :512]
    decode(launched, GFX950, padded, Segment(MAIN.cache, ragged([[1]])), splits=1)
    assert launched.calls[0][2]["Q_STRIDE_H"] == 640
    assert launched.calls[0][2]["Q_STRIDE_T"] == 4 * 640


def test_writers_and_gather_do_not_see_the_strides_of_one_row_either() -> None:
    cache = torch.zeros(1, 64, 132, dtype=torch.uint8)
    record = torch.zeros(layout.page_stride(64), dtype=torch.uint8).as_strided((1, 64, 584), (37440, 584, 1))
    found = []
    for strange in (False, True):
        odd = (lambda tensor: restrided(tensor, 0)) if strange else (lambda tensor: tensor)
        launched = Launched()
        slots = torch.zeros(1, dtype=torch.int64)
        write.write_main_cache(launched, odd(record), odd(query(1, 1, 1)[0]), slots, fnuz=False)
        keys = torch.zeros(1, 128, dtype=torch.bfloat16)
        write.write_index_keys(launched, odd(cache), odd(keys), slots, layout="normal", fnuz=False, power_of_two=True)
        gather_indexer_cache(
            launched, odd(cache), torch.zeros(2, 128, dtype=torch.uint8), torch.zeros(2),
            odd(torch.zeros(1, 4, dtype=torch.int32)), torch.zeros(2, dtype=torch.int32),
            torch.zeros(2, dtype=torch.int32), layout="normal", arch="gfx950",
        )  # fmt: skip
        pack_rows(launched, odd(torch.zeros(1, 8, dtype=torch.int32)))
        step = write_compressed.CompressorStep(
            state=odd(torch.zeros(1, 8, 1024)), positions=slots, state_slots=slots,
            token_to_req=torch.zeros(1, dtype=torch.int32), state_table=odd(torch.zeros(1, 4, dtype=torch.int32)),
            ratio=128,
        )  # fmt: skip
        row = odd(torch.zeros(1, 512))
        write_compressed.store_compressor_state(launched, step, row, row, torch.zeros(128, 512))
        write_compressed.compressed_slots(
            launched, slots, slots, step.token_to_req, step.state_table, ratio=128, block_size=2
        )
        pages = torch.zeros(1, 2, 584, dtype=torch.uint8)
        for splits in (None, 4):
            write_compressed.write_compressed_cache(
                launched, odd(pages), slots, step, torch.ones(512), torch.zeros(4, 64), eps=1e-6, sanitize=True,
                num_splits=splits,
            )  # fmt: skip
        found.append(numbers(launched))
    assert len(found[0]) == 9
    assert found[0] == found[1]


@pytest.mark.parametrize("wide", [2**32 + 3, 2**31, 2**63 - 1, -(2**32) + 3, -(2**63)])
def test_a_slot_that_int32_cannot_hold_is_no_slot(wide: int) -> None:
    rows = Ragged(torch.tensor([1, wide, 2]), torch.tensor([0, 3]))
    call = checked_call(GFX950, query(1, 1, 3), Segment(MAIN.cache, rows))
    first, other, last = call.main.rows.indices.tolist()
    assert (first, last) == (1, 2)
    assert not 0 <= other < 2**31 - 1
    assert call.main.rows.indices.dtype == torch.int32


def test_a_bound_that_int32_cannot_hold_stays_inside_the_list() -> None:
    rows = Ragged(torch.tensor([1, 2, 3]), torch.tensor([0, 2**32 + 1]))
    call = checked_call(GFX950, query(1, 1, 3), Segment(MAIN.cache, rows))
    assert call.main.rows.indptr.tolist() == [0, 3]


def test_the_jit_launcher_knows_every_kernel_that_has_options() -> None:
    launcher = JitLauncher()
    for kernel in LAUNCH_OPTIONS:
        assert launcher[kernel].__name__ == kernel
