"""Values that move between lanes and to scalars, lane by lane in Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Bench
from isa import M32, integers

from aotkern.emulator.operands import OperandError

A, B = integers(1), integers(2)
SOME = 0xF00F_0FF0_3C3C_8001


def loaded(exec_mask: int = (1 << 64) - 1) -> Bench:
    bench = Bench()
    bench.set(0, [9] * 64)
    bench.set(1, A)
    bench.set(2, B)
    bench.exec = exec_mask
    return bench


def test_single_lanes() -> None:
    bench = loaded(SOME)
    bench.scalar(4, 70)
    bench.run(
        "v_readlane_b32 s0, v1, 63\nv_readlane_b32 s1, v1, s4\nv_writelane_b32 v2, s0, 5\nv_writelane_b32 v2, 17, s4"
    )
    assert (bench.scalar(0), bench.scalar(1)) == (A[63], A[6])
    assert bench.lanes(2) == [A[63] if lane == 5 else 17 if lane == 6 else value for lane, value in enumerate(B)]


@pytest.mark.parametrize(("exec_mask", "lane"), [((1 << 64) - 1, 0), (SOME & ~1, 15), (1 << 63, 63), (0, 0)])
def test_the_first_active_lane(exec_mask: int, lane: int) -> None:
    assert loaded(exec_mask).run("v_readfirstlane_b32 s0, v1").scalar(0) == A[lane]


@pytest.mark.parametrize("distance", [16, 32])
@pytest.mark.parametrize("exec_mask", [(1 << 64) - 1, SOME])
def test_halves_swap(distance: int, exec_mask: int) -> None:
    bench = loaded(exec_mask).run(f"v_permlane{distance}_swap_b32_e32 v1, v2")
    first, second = list(A), list(B)
    for lane in range(64):
        if lane & distance:
            first[lane], second[lane - distance] = B[lane - distance], A[lane]
    on = [exec_mask >> lane & 1 for lane in range(64)]
    assert bench.lanes(1) == [new if active else old for new, old, active in zip(first, A, on, strict=True)]
    assert bench.lanes(2) == [new if active else old for new, old, active in zip(second, B, on, strict=True)]


def test_registers_swap() -> None:
    bench = loaded(SOME).run("v_swap_b32 v1, v2")
    assert bench.lanes(1) == [b if SOME >> lane & 1 else a for lane, (a, b) in enumerate(zip(A, B, strict=True))]
    assert bench.lanes(2) == [a if SOME >> lane & 1 else b for lane, (a, b) in enumerate(zip(A, B, strict=True))]


def test_bits_below_the_lane() -> None:
    bench = loaded()
    bench.scalar(4, 0xA5A5_0F0F)
    bench.run("v_mbcnt_lo_u32_b32 v0, s4, v1\nv_mbcnt_hi_u32_b32 v2, s4, 0")
    for lane in range(64):
        low = 0xA5A5_0F0F & ((1 << min(lane, 32)) - 1)
        high = 0xA5A5_0F0F & ((1 << max(lane - 32, 0)) - 1)
        assert bench.lanes(0)[lane] == (A[lane] + low.bit_count()) & M32
        assert bench.lanes(2)[lane] == high.bit_count()


@pytest.mark.parametrize("exec_mask", [(1 << 64) - 1, SOME])
def test_backward_permutation(exec_mask: int) -> None:
    bench = loaded(exec_mask)
    bench.run("ds_bpermute_b32 v0, v2, v1 offset:8")
    for lane, got in enumerate(bench.lanes(0)):
        source = (B[lane] + 8) // 4 % 64
        expected = A[source] if exec_mask >> source & 1 else 0
        assert got == (expected if exec_mask >> lane & 1 else 9)


def test_forward_permutation() -> None:
    bench = loaded(SOME)
    targets = [(lane * 5 + 3) % 64 for lane in range(64)]
    bench.set(2, [4 * lane for lane in targets])
    bench.run("ds_permute_b32 v0, v2, v1")
    sent = {targets[lane]: A[lane] for lane in range(64) if SOME >> lane & 1}
    assert bench.lanes(0) == [sent.get(lane, 0) if SOME >> lane & 1 else 9 for lane in range(64)]


@pytest.mark.parametrize("pattern", [0x801B, 0x80B1, 0x041F, 0x7C1F, 0x0018, 0x00E7])
def test_swizzle(pattern: int) -> None:
    bench = loaded().run(f"ds_swizzle_b32 v0, v1 offset:{pattern:#x}")
    for lane, got in enumerate(bench.lanes(0)):
        if pattern & 0x8000:
            source = lane // 4 * 4 + (pattern >> 2 * (lane % 4) & 3)
        else:
            source = lane // 32 * 32 + ((lane % 32 & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31)
        assert got == A[source]


@pytest.mark.parametrize(("text", "origin"), [
    ("swizzle(ROTATE,0,1)", lambda lane: (lane & 32) + (lane + 1) % 32),
    ("swizzle(ROTATE,1,5)", lambda lane: (lane & 32) + ((lane & 31) - 5) % 32),
    ("swizzle(ROTATE,0,31)", lambda lane: (lane & 32) + ((lane & 31) + 31) % 32),
])  # fmt: skip
def test_a_swizzle_that_rotates(text: str, origin: Callable[[int], int]) -> None:
    bench = Bench()
    bench.set(1, list(range(64)))
    bench.run(f"ds_swizzle_b32 v0, v1 offset:{text}")
    assert bench.lanes(0) == [origin(lane) for lane in range(64)]


def test_a_swizzle_that_reverses_bits_is_refused() -> None:
    with pytest.raises(OperandError, match="FFT"):
        Bench().run("ds_swizzle_b32 v0, v1 offset:swizzle(FFT,1)")
