"""Vector integer instructions against Python integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Bench, each_lane
from isa import M16, M32, M64, integers, signed

A, B, C = integers(1), integers(2), integers(3)
WIDE_A, WIDE_B = integers(4, 64), integers(5, 64)


def s(value: int) -> int:
    return signed(value)


def high_bit(value: int) -> int:
    return 32 - value.bit_length() if value else M32


def perm(a: int, b: int, select: int) -> int:
    eight = [b >> 8 * i & 0xFF for i in range(4)] + [a >> 8 * i & 0xFF for i in range(4)]
    out = 0
    for place in range(4):
        code = select >> 8 * place & 0xFF
        if code < 8:
            byte = eight[code]
        elif code < 12:
            byte = 0xFF if eight[2 * (code - 8) + 1] & 0x80 else 0
        else:
            byte = 0 if code == 12 else 0xFF
        out |= byte << 8 * place
    return out


def bfe(value: int, start: int, width: int) -> int:
    return value >> (start & 31) & ((1 << (width & 31)) - 1)


def bfe_signed(value: int, start: int, width: int) -> int:
    width &= 31
    return signed(s(value) >> (start & 31) & ((1 << width) - 1), width) & M32 if width else 0


def median(*values: int) -> int:
    return sorted(values)[1]


ONE: dict[str, Callable[[int], int]] = {
    "v_mov_b32_e32": lambda a: a,
    "v_not_b32_e32": lambda a: ~a & M32,
    "v_bfrev_b32_e32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32_e32": high_bit,
    "v_ffbh_i32_e32": lambda a: high_bit(a ^ (M32 if a >> 31 else 0)),
    "v_ffbl_b32_e32": lambda a: (a & -a).bit_length() - 1 if a else M32,
}
TWO: dict[str, Callable[[int, int], int]] = {
    "v_add_u32_e32": lambda a, b: (a + b) & M32,
    "v_sub_u32_e32": lambda a, b: (a - b) & M32,
    "v_subrev_u32_e32": lambda a, b: (b - a) & M32,
    "v_add_i32": lambda a, b: (a + b) & M32,
    "v_sub_i32": lambda a, b: (a - b) & M32,
    "v_and_b32_e32": lambda a, b: a & b,
    "v_or_b32_e32": lambda a, b: a | b,
    "v_xor_b32_e32": lambda a, b: a ^ b,
    "v_xnor_b32_e32": lambda a, b: ~(a ^ b) & M32,
    "v_mul_lo_u32": lambda a, b: a * b & M32,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: s(a) * s(b) >> 32 & M32,
    "v_mul_u32_u24_e32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) & M32,
    "v_mul_i32_i24_e32": lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) & M32,
    "v_mul_lo_u16_e32": lambda a, b: a * b & M16,
    "v_min_u32_e32": min,
    "v_max_u32_e32": max,
    "v_min_i32_e32": lambda a, b: min(s(a), s(b)) & M32,
    "v_max_i32_e32": lambda a, b: max(s(a), s(b)) & M32,
    "v_min_u16_e32": lambda a, b: min(a & M16, b & M16),
    "v_max_u16_e32": lambda a, b: max(a & M16, b & M16),
    "v_min_i16_e32": lambda a, b: min(signed(a & M16, 16), signed(b & M16, 16)) & M16,
    "v_max_i16_e32": lambda a, b: max(signed(a & M16, 16), signed(b & M16, 16)) & M16,
    "v_add_u16_e32": lambda a, b: (a + b) & M16,
    "v_sub_u16_e32": lambda a, b: (a - b) & M16,
    "v_subrev_u16_e32": lambda a, b: (b - a) & M16,
    "v_lshlrev_b32_e32": lambda a, b: b << (a & 31) & M32,
    "v_lshrrev_b32_e32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32_e32": lambda a, b: s(b) >> (a & 31) & M32,
    "v_lshlrev_b16_e32": lambda a, b: (b & M16) << (a & 15) & M16,
    "v_lshrrev_b16_e32": lambda a, b: (b & M16) >> (a & 15),
    "v_ashrrev_i16_e32": lambda a, b: signed(b & M16, 16) >> (a & 15) & M16,
    "v_bcnt_u32_b32": lambda a, b: (a.bit_count() + b) & M32,
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31) & M32,
}
THREE: dict[str, Callable[[int, int, int], int]] = {
    "v_add3_u32": lambda a, b, c: (a + b + c) & M32,
    "v_xad_u32": lambda a, b, c: ((a ^ b) + c) & M32,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_lshl_add_u32": lambda a, b, c: ((a << (b & 31)) + c) & M32,
    "v_lshl_or_b32": lambda a, b, c: (a << (b & 31) | c) & M32,
    "v_add_lshl_u32": lambda a, b, c: ((a + b) & M32) << (c & 31) & M32,
    "v_bfe_u32": bfe,
    "v_bfe_i32": bfe_signed,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c & M32,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31) & M32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3) & M32,
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": median,
    "v_min3_i32": lambda *v: min(map(s, v)) & M32,
    "v_max3_i32": lambda *v: max(map(s, v)) & M32,
    "v_med3_i32": lambda *v: median(*map(s, v)) & M32,
    "v_sad_u32": lambda a, b, c: (abs(a - b) + c) & M32,
    "v_mad_u32_u24": lambda a, b, c: ((a & 0xFFFFFF) * (b & 0xFFFFFF) + c) & M32,
    "v_mad_i32_i24": lambda a, b, c: (signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) + c) & M32,
    "v_mad_legacy_u16": lambda a, b, c: (a * b + c) & M16,
}
KEEPS_HIGH: dict[str, Callable[[int, int, int], int]] = {
    "v_mad_u16": lambda a, b, c: (a * b + c) & M16,
}
SATURATED: dict[str, Callable[[int, int], int]] = {
    "v_add_u32_e64": lambda a, b: min(a + b, M32),
    "v_sub_u32_e64": lambda a, b: max(a - b, 0),
    "v_subrev_u32_e64": lambda a, b: max(b - a, 0),
    "v_add_i32": lambda a, b: max(min(s(a) + s(b), 2**31 - 1), -(2**31)) & M32,
    "v_sub_i32": lambda a, b: max(min(s(a) - s(b), 2**31 - 1), -(2**31)) & M32,
    "v_add_u16_e64": lambda a, b: min((a & M16) + (b & M16), M16),
    "v_sub_u16_e64": lambda a, b: max((a & M16) - (b & M16), 0),
}


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    for register, values in ((1, A), (2, B), (3, C)):
        made.set(register, values)
    made.set_wide(4, WIDE_A)
    made.set_wide(6, WIDE_B)
    return made


@pytest.mark.parametrize("name", ONE)
def test_one_source(bench: Bench, name: str) -> None:
    assert bench.run(f"{name} v0, v1").lanes(0) == each_lane(ONE[name], A)


@pytest.mark.parametrize("name", TWO)
def test_two_sources(bench: Bench, name: str) -> None:
    assert bench.run(f"{name} v0, v1, v2").lanes(0) == each_lane(TWO[name], A, B)


@pytest.mark.parametrize("name", THREE)
def test_three_sources(bench: Bench, name: str) -> None:
    assert bench.run(f"{name} v0, v1, v2, v3").lanes(0) == each_lane(THREE[name], A, B, C)


@pytest.mark.parametrize("name", KEEPS_HIGH)
def test_results_of_16_bits_that_keep_the_upper_half(bench: Bench, name: str) -> None:
    bench.set(0, C)
    expected = [old & 0xFFFF0000 | low for old, low in zip(C, each_lane(KEEPS_HIGH[name], A, B, C), strict=True)]
    assert bench.run(f"{name} v0, v1, v2, v3").lanes(0) == expected


@pytest.mark.parametrize("name", SATURATED)
def test_clamp(bench: Bench, name: str) -> None:
    assert bench.run(f"{name} v0, v1, v2 clamp").lanes(0) == each_lane(SATURATED[name], A, B)


@pytest.mark.parametrize("select", [0x05040100, 0x07060302, 0x0C0C0D08, 0x090A0B03, 0x02060307])
@pytest.mark.parametrize("uniform", [False, True])
def test_perm(bench: Bench, select: int, uniform: bool) -> None:
    bench.scalar(8, select)
    bench.set(3, [select] * 63 + [select ^ 0x01010101])
    found = bench.run(f"v_perm_b32 v0, v1, v2, {'s8' if uniform else 'v3'}").lanes(0)
    selects = [select] * 64 if uniform else bench.lanes(3)
    assert found == each_lane(perm, A, B, selects)


@pytest.mark.parametrize("table", [0x36, 0x6C, 0x78, 0x96, 0xC8, 0xF8, 0xFE, 0x1B, 0x80, 0x00, 0xFF])
@pytest.mark.parametrize("bits", [32, 16])
def test_bitop3(bench: Bench, table: int, bits: int) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(bits))

    bench.set(0, 0)
    found = bench.run(f"v_bitop3_b{bits} v0, v1, v2, v3 bitop3:{table:#x}").lanes(0)
    assert found == each_lane(oracle, A, B, C)


SHIFTS: dict[str, Callable[[int, int], int]] = {
    "v_lshlrev_b64": lambda by, v: v << (by & 63) & M64,
    "v_lshrrev_b64": lambda by, v: v >> (by & 63),
    "v_ashrrev_i64": lambda by, v: signed(v, 64) >> (by & 63) & M64,
}


@pytest.mark.parametrize("name", SHIFTS)
def test_wide_shifts(bench: Bench, name: str) -> None:
    assert bench.run(f"{name} v[8:9], v1, v[4:5]").wide(8) == each_lane(SHIFTS[name], A, WIDE_A)


def test_wide_moves_and_additions(bench: Bench) -> None:
    assert bench.run("v_mov_b64_e32 v[8:9], v[4:5]").wide(8) == WIDE_A
    bench.run("v_lshl_add_u64 v[8:9], v[4:5], v1, v[6:7]")
    assert bench.wide(8) == [((a << (by & 63)) + b) & M64 for a, by, b in zip(WIDE_A, A, WIDE_B, strict=True)]


def test_a_result_may_be_one_of_the_sources(bench: Bench) -> None:
    bench.run("v_lshl_add_u64 v[4:5], v[4:5], 3, v[4:5]\nv_sub_u32_e32 v1, v2, v1\nv_perm_b32 v3, v3, v2, v3")
    assert bench.wide(4) == [(9 * a) & M64 for a in WIDE_A]
    assert bench.lanes(1) == each_lane(lambda a, b: (b - a) & M32, A, B)
    assert bench.lanes(3) == each_lane(lambda b, c: perm(c, b, c), B, C)


def test_products_with_a_wide_addend(bench: Bench) -> None:
    bench.run("v_mad_u64_u32 v[8:9], s[10:11], v1, v2, v[4:5]")
    exact = [a * b + c for a, b, c in zip(A, B, WIDE_A, strict=True)]
    assert bench.wide(8) == [value & M64 for value in exact]
    assert bench.scalar(10, bits=64) == sum((value >> 64) << lane for lane, value in enumerate(exact))
    bench.run("v_mad_i64_i32 v[8:9], s[10:11], v1, v2, v[4:5]")
    exact = [s(a) * s(b) + signed(c, 64) for a, b, c in zip(A, B, WIDE_A, strict=True)]
    assert bench.wide(8) == [value & M64 for value in exact]
    assert bench.scalar(10, bits=64) == sum((value >> 64 & 1) << lane for lane, value in enumerate(exact))


CARRIES = {
    "v_add_co_u32_e32 v0, vcc, v1, v2": lambda a, b, _: a + b,
    "v_sub_co_u32_e32 v0, vcc, v1, v2": lambda a, b, _: a - b,
    "v_subrev_co_u32_e32 v0, vcc, v1, v2": lambda a, b, _: b - a,
    "v_addc_co_u32_e32 v0, vcc, v1, v2, vcc": lambda a, b, c: a + b + c,
    "v_subb_co_u32_e32 v0, vcc, v1, v2, vcc": lambda a, b, c: a - b - c,
    "v_subbrev_co_u32_e32 v0, vcc, v1, v2, vcc": lambda a, b, c: b - a - c,
}


@pytest.mark.parametrize("text", CARRIES)
def test_carries(bench: Bench, text: str) -> None:
    carry = 0x0F0F_F0F0_AAAA_5555
    bench.scalar(106, carry, bits=64)
    exact = [CARRIES[text](a, b, carry >> lane & 1) for lane, (a, b) in enumerate(zip(A, B, strict=True))]
    bench.run(text)
    assert bench.lanes(0) == [value & M32 for value in exact]
    assert bench.scalar(106, bits=64) == sum((not 0 <= value <= M32) << lane for lane, value in enumerate(exact))


@pytest.mark.parametrize("text", ["v_accvgpr_write_b32 a7, v1\nv_accvgpr_mov_b32 a8, a7\nv_accvgpr_read_b32 v0, a8"])
def test_accumulation_registers(bench: Bench, text: str) -> None:
    bench.run(text)
    assert bench.lanes(0) == A
    assert bench.lanes(256 + 7) == A


def test_inactive_lanes_keep_their_value(bench: Bench) -> None:
    bench.exec = 0x5555_0000_FFFF_0001
    bench.set(0, C)
    bench.run("v_add_u32_e32 v0, v1, v2")
    active = [bench.exec >> lane & 1 for lane in range(64)]
    assert bench.lanes(0) == [(a + b) & M32 if on else c for a, b, c, on in zip(A, B, C, active, strict=True)]


SELECTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
           "WORD_1": (16, 16), "DWORD": (0, 32)}  # fmt: skip


@pytest.mark.parametrize("first", SELECTS)
@pytest.mark.parametrize("second", ["WORD_1", "DWORD"])
@pytest.mark.parametrize("extend", [False, True])
def test_sdwa_sources(first: str, second: str, extend: bool) -> None:
    bench = Bench("gfx942")
    bench.set(1, A)
    bench.set(2, B)
    operand = "sext(v1)" if extend else "v1"
    bench.run(f"v_add_u32_sdwa v0, {operand}, v2 dst_sel:DWORD src0_sel:{first} src1_sel:{second}")

    def part(value: int, select: str) -> int:
        shift, width = SELECTS[select]
        return value >> shift & ((1 << width) - 1)

    expected = []
    for a, b in zip(A, B, strict=True):
        left = part(a, first)
        expected.append(((signed(left, SELECTS[first][1]) if extend else left) + part(b, second)) & M32)
    assert bench.lanes(0) == expected


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_sdwa_destinations(select: str, unused: str) -> None:
    bench = Bench("gfx942")
    for register, values in ((0, C), (1, A), (2, B)):
        bench.set(register, values)
    bench.run(f"v_xor_b32_sdwa v0, v1, v2 dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD")
    shift, width = SELECTS[select]
    field = ((1 << width) - 1) << shift

    def oracle(old: int, a: int, b: int) -> int:
        placed = (a ^ b) << shift & field
        if unused == "UNUSED_PRESERVE":
            return placed | old & ~field
        return signed(placed, shift + width) & M32 if unused == "UNUSED_SEXT" else placed

    assert bench.lanes(0) == each_lane(oracle, C, A, B)


def _source_lane(pattern: str, lane: int) -> int | None:
    row, inside = lane // 16 * 16, lane % 16
    name, _, value = pattern.partition(":")
    if name == "quad_perm":
        return lane // 4 * 4 + int(value.strip("[]").split(",")[lane % 4])
    if name == "row_mirror":
        return row + 15 - inside
    if name == "row_half_mirror":
        return lane // 8 * 8 + 7 - lane % 8
    if name == "row_bcast":
        return (row - 1 if row else None) if value == "15" else (31 if lane >= 32 else None)
    if name == "row_newbcast":
        return row + int(value)
    by = int(value)
    if name == "row_ror":
        return row + (inside - by) % 16
    if name in ("row_shl", "row_shr"):
        place = inside + by if name == "row_shl" else inside - by
        return row + place if 0 <= place < 16 else None
    if name == "wave_shr":
        return lane - 1 if lane else None
    if name == "wave_shl":
        return lane + 1 if lane < 63 else None
    return (lane - 1) % 64 if name == "wave_ror" else (lane + 1) % 64


PATTERNS = ["quad_perm:[2,3,0,1]", "quad_perm:[1,1,3,0]", "row_mirror", "row_half_mirror", "row_shl:3", "row_shr:8",
            "row_ror:5", "row_bcast:15", "row_bcast:31", "row_newbcast:6", "wave_shr:1", "wave_shl:1", "wave_ror:1",
            "wave_rol:1"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("exec_mask", [(1 << 64) - 1, 0xFFFF_0FF0_F00F_7FFE])
def test_dpp(pattern: str, bound: bool, exec_mask: int) -> None:
    bench = Bench("gfx942")
    bench.set(0, C)
    bench.set(1, A)
    bench.exec = exec_mask
    bench.run(f"v_mov_b32_dpp v0, v1 {pattern} row_mask:0xe bank_mask:0xd {'bound_ctrl:0' if bound else ''}")
    expected = []
    for lane in range(64):
        source = _source_lane(pattern, lane)
        there = source is not None and exec_mask >> source & 1
        written = exec_mask >> lane & 1 and 0xE >> lane // 16 & 1 and 0xD >> lane // 4 % 4 & 1 and (there or bound)
        expected.append((A[source] if there else 0) if written else C[lane])
    assert bench.lanes(0) == expected
