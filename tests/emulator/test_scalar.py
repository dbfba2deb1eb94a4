"""Scalar instructions against Python integers; every value with every carry or condition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Bench
from isa import EDGES, M32, M64, integers, signed

WIDE = [*EDGES[::3], *(edge << 32 | 5 for edge in EDGES[::4]), 1 << 63, M64, *integers(1, 64)[:6]]
NARROW = [*EDGES[::2], *integers(2)[:6]]
Result = tuple[int, bool | None]


def s(value: int) -> int:
    return signed(value)


def flagged(value: int, bits: int) -> Result:
    value &= (1 << bits) - 1
    return value, value != 0


def overflowing(value: int) -> Result:
    return value & M32, not -(2**31) <= value < 2**31


def field(value: int, where: int, bits: int, *, sign: bool) -> Result:
    start, size = where & (bits - 1), where >> 16 & 127
    size = min(size, bits - start)
    part = value >> start & ((1 << size) - 1)
    return flagged(signed(part, size) if sign and size else part, bits)


def extreme(a: int, b: int, *, first: bool) -> Result:
    return (a if first else b), first


TWO: dict[str, tuple[int, Callable[[int, int], Result]]] = {
    "s_add_i32": (32, lambda a, b: overflowing(s(a) + s(b))),
    "s_sub_i32": (32, lambda a, b: overflowing(s(a) - s(b))),
    "s_add_u32": (32, lambda a, b: ((a + b) & M32, a + b > M32)),
    "s_sub_u32": (32, lambda a, b: ((a - b) & M32, b > a)),
    "s_mul_i32": (32, lambda a, b: (a * b & M32, None)),
    "s_mul_hi_u32": (32, lambda a, b: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, lambda a, b: (s(a) * s(b) >> 32 & M32, None)),
    "s_min_i32": (32, lambda a, b: extreme(a, b, first=s(a) < s(b))),
    "s_max_i32": (32, lambda a, b: extreme(a, b, first=s(a) > s(b))),
    "s_min_u32": (32, lambda a, b: extreme(a, b, first=a < b)),
    "s_max_u32": (32, lambda a, b: extreme(a, b, first=a > b)),
    "s_absdiff_i32": (32, lambda a, b: flagged(abs(signed(a - b & M32)), 32)),
    "s_lshl_b32": (32, lambda a, b: flagged(a << (b & 31), 32)),
    "s_lshr_b32": (32, lambda a, b: flagged(a >> (b & 31), 32)),
    "s_ashr_i32": (32, lambda a, b: flagged(s(a) >> (b & 31), 32)),
    "s_bfm_b32": (32, lambda a, b: (((1 << (a & 31)) - 1) << (b & 31) & M32, None)),
    "s_bfe_u32": (32, lambda a, b: field(a, b, 32, sign=False)),
    "s_bfe_i32": (32, lambda a, b: field(a, b, 32, sign=True)),
    "s_pack_ll_b32_b16": (32, lambda a, b: (a & 0xFFFF | (b & 0xFFFF) << 16, None)),
    "s_pack_lh_b32_b16": (32, lambda a, b: (a & 0xFFFF | b >> 16 << 16, None)),
    "s_pack_hh_b32_b16": (32, lambda a, b: (a >> 16 | b >> 16 << 16, None)),
    **{f"s_lshl{n}_add_u32": (32, lambda a, b, n=n: (((a << n) + b) & M32, (a << n) + b > M32)) for n in (1, 2, 3, 4)},
}
LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _function in LOGIC.items():
    TWO[f"s_{_name}_b32"] = (32, lambda a, b, f=_function: flagged(f(a, b), 32))
    TWO[f"s_{_name}_b64"] = (64, lambda a, b, f=_function: flagged(f(a, b), 64))
SHIFTS: dict[str, Callable[[int, int], Result]] = {
    "s_lshl_b64": lambda a, b: flagged(a << (b & 63), 64),
    "s_lshr_b64": lambda a, b: flagged(a >> (b & 63), 64),
    "s_ashr_i64": lambda a, b: flagged(signed(a, 64) >> (b & 63), 64),
    "s_bfe_u64": lambda a, b: field(a, b, 64, sign=False),
    "s_bfe_i64": lambda a, b: field(a, b, 64, sign=True),
}


def above(value: int, bits: int) -> int:
    return bits - value.bit_length() if value else M32


def below(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else M32


ONE: dict[str, tuple[int, int, Callable[[int], Result]]] = {
    "s_mov_b32": (32, 32, lambda a: (a, None)),
    "s_mov_b64": (64, 64, lambda a: (a, None)),
    "s_not_b32": (32, 32, lambda a: flagged(~a, 32)),
    "s_not_b64": (64, 64, lambda a: flagged(~a, 64)),
    "s_abs_i32": (32, 32, lambda a: flagged(abs(s(a)), 32)),
    "s_brev_b32": (32, 32, lambda a: (int(f"{a:032b}"[::-1], 2), None)),
    "s_bcnt1_i32_b32": (32, 32, lambda a: flagged(a.bit_count(), 32)),
    "s_bcnt1_i32_b64": (32, 64, lambda a: flagged(a.bit_count(), 32)),
    "s_ff1_i32_b32": (32, 32, lambda a: (below(a), None)),
    "s_ff1_i32_b64": (32, 64, lambda a: (below(a), None)),
    "s_flbit_i32_b32": (32, 32, lambda a: (above(a, 32), None)),
    "s_flbit_i32_b64": (32, 64, lambda a: (above(a, 64), None)),
    "s_flbit_i32": (32, 32, lambda a: (above(a ^ (M32 if a >> 31 else 0), 32), None)),
    "s_sext_i32_i8": (32, 32, lambda a: (signed(a & 0xFF, 8) & M32, None)),
    "s_sext_i32_i16": (32, 32, lambda a: (signed(a & 0xFFFF, 16) & M32, None)),
}
COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def check(bench: Bench, text: str, bits: int, expected: Result) -> None:
    for before in (False, True):
        bench.waves.scc[:] = before
        bench.run(text)
        value, flag = expected
        assert bench.scalar(0, bits=bits) == value, text
        assert bool(bench.waves.scc[0]) == (before if flag is None else flag), text


@pytest.mark.parametrize("name", TWO)
def test_two_sources(name: str) -> None:
    bits, oracle = TWO[name]
    registers = "s[0:1], s[2:3], s[4:5]" if bits == 64 else "s0, s2, s4"
    bench = Bench()
    values = WIDE if bits == 64 else NARROW
    for a in values:
        for b in values:
            bench.scalar(2, a, bits=bits)
            bench.scalar(4, b, bits=bits)
            check(bench, f"{name} {registers}", bits, oracle(a, b))


@pytest.mark.parametrize("name", SHIFTS)
def test_wide_shifts_and_fields(name: str) -> None:
    bench = Bench()
    for a in WIDE:
        for b in (0, 1, 31, 32, 63, 64, 0x200005, 0x400000, 0x3F0001, 0x070038, 0xFFFFFFFF):
            bench.scalar(2, a, bits=64)
            bench.scalar(4, b)
            check(bench, f"{name} s[0:1], s[2:3], s4", 64, SHIFTS[name](a, b))


def test_wide_mask() -> None:
    bench = Bench()
    for size, start in ((0, 0), (5, 60), (63, 1), (64, 0), (32, 32)):
        bench.scalar(2, size)
        bench.scalar(4, start)
        check(bench, "s_bfm_b64 s[0:1], s2, s4", 64, (((1 << (size & 63)) - 1) << (start & 63) & M64, None))


@pytest.mark.parametrize("name", ONE)
def test_one_source(name: str) -> None:
    to, origin, oracle = ONE[name]
    bench = Bench()
    text = f"{name} {'s[0:1]' if to == 64 else 's0'}, {'s[2:3]' if origin == 64 else 's2'}"
    for a in WIDE if origin == 64 else NARROW:
        bench.scalar(2, a, bits=origin)
        check(bench, text, to, oracle(a))


@pytest.mark.parametrize("kind", ["i32", "u32"])
@pytest.mark.parametrize("name", COMPARES)
def test_comparisons(name: str, kind: str) -> None:
    bench = Bench()
    read = s if kind == "i32" else lambda value: value
    for a in NARROW:
        bench.scalar(2, a)
        for b in NARROW:
            bench.scalar(4, b)
            bench.run(f"s_cmp_{name}_{kind} s2, s4")
            assert bool(bench.waves.scc[0]) == COMPARES[name](read(a), read(b))
        for short in (0, 1, 0x7FFF, 0x8000, 0xFFFF):
            bench.run(f"s_cmpk_{name}_{kind} s2, {short:#x}")
            constant = signed(short, 16) if kind == "i32" else short
            assert bool(bench.waves.scc[0]) == COMPARES[name](read(a), constant)


def test_wide_comparisons_and_bits() -> None:
    bench = Bench()
    for a in WIDE:
        for b in WIDE:
            bench.scalar(2, a, bits=64)
            bench.scalar(4, b, bits=64)
            for name, expected in (("eq", a == b), ("lg", a != b)):
                bench.run(f"s_cmp_{name}_u64 s[2:3], s[4:5]")
                assert bool(bench.waves.scc[0]) == expected
            for value in (0, 1):
                bench.run(f"s_bitcmp{value}_b32 s2, s4")
                assert bool(bench.waves.scc[0]) == ((a & M32) >> (b & 31) & 1 == value)


@pytest.mark.parametrize("name", ["s_addc_u32", "s_subb_u32"])
def test_carries(name: str) -> None:
    bench = Bench()
    for a in NARROW:
        for b in NARROW:
            for carry in (0, 1):
                bench.scalar(2, a)
                bench.scalar(4, b)
                bench.waves.scc[:] = bool(carry)
                exact = a + b + carry if name == "s_addc_u32" else a - b - carry
                bench.run(f"{name} s0, s2, s4")
                assert (bench.scalar(0), bool(bench.waves.scc[0])) == (exact & M32, not 0 <= exact <= M32)


@pytest.mark.parametrize("flag", [False, True])
def test_choices_by_scc(flag: bool) -> None:
    bench = Bench()
    bench.scalar(2, 0x1_2345_6789, bits=64)
    bench.scalar(4, 0xA_BCDE_F012, bits=64)
    bench.waves.scc[:] = flag
    bench.run("s_cselect_b32 s0, s2, s4\ns_cselect_b64 s[6:7], s[2:3], s[4:5]\ns_cselect_b32 s8, -1, 0x810")
    assert bench.scalar(0) == (0x23456789 if flag else 0xBCDEF012)
    assert bench.scalar(6, bits=64) == (0x1_2345_6789 if flag else 0xA_BCDE_F012)
    assert bench.scalar(8) == (M32 if flag else 0x810)
    bench.run("s_cmov_b32 s2, s4\ns_cmov_b64 s[6:7], 7")
    assert bench.scalar(2) == (0xBCDEF012 if flag else 0x23456789)
    assert bench.scalar(6, bits=64) == (7 if flag else 0xA_BCDE_F012)


def test_short_constants_and_single_bits() -> None:
    bench = Bench()
    for old in NARROW:
        for text, value in (("0x7fff", 0x7FFF), ("0x8000", -0x8000), ("0xffff", -1), ("0x6c", 0x6C)):
            bench.scalar(0, old)
            bench.run(f"s_addk_i32 s0, {text}")
            assert (bench.scalar(0), bool(bench.waves.scc[0])) == overflowing(s(old) + value)
            bench.scalar(0, old)
            assert bench.run(f"s_mulk_i32 s0, {text}").scalar(0) == s(old) * value & M32
            assert bench.run(f"s_movk_i32 s0, {text}").scalar(0) == value & M32
        bench.scalar(0, old)
        bench.scalar(2, 37)
        assert bench.run("s_bitset1_b32 s0, s2").scalar(0) == old | 32
        assert bench.run("s_bitset0_b32 s0, s2").scalar(0) == old & ~32


SAVES: dict[str, Callable[[int, int], int]] = {
    "s_and_saveexec_b64": lambda a, e: a & e,
    "s_or_saveexec_b64": lambda a, e: a | e,
    "s_xor_saveexec_b64": lambda a, e: a ^ e,
    "s_andn2_saveexec_b64": lambda a, e: a & ~e,
    "s_orn2_saveexec_b64": lambda a, e: a | ~e & M64,
    "s_andn1_saveexec_b64": lambda a, e: ~a & e,
}


@pytest.mark.parametrize("name", SAVES)
def test_exec_saved_and_changed(name: str) -> None:
    for source, before in ((0xF0F0, M64), (0, 0xFF), (M64, 5), (0xFF00, 0xFF)):
        bench = Bench()
        bench.exec = before
        bench.scalar(2, source, bits=64)
        bench.run(f"{name} s[2:3], s[2:3]")
        assert bench.scalar(2, bits=64) == before
        assert bench.exec == SAVES[name](source, before)
        assert bool(bench.waves.scc[0]) == (bench.exec != 0)
        bench.set(1, [7] * 64)
        bench.set(0, [0] * 64)
        bench.run("v_mov_b32_e32 v0, v1")
        assert bench.lanes(0) == [7 if bench.exec >> lane & 1 else 0 for lane in range(64)]


def test_constants_of_64_bits() -> None:
    bench = Bench()
    for spelt, value in (("-1", M64), ("64", 64), ("0x12345678", 0x12345678), ("1.0", 0x3FF0000000000000)):
        assert bench.run(f"s_mov_b64 s[0:1], {spelt}").scalar(0, bits=64) == value
