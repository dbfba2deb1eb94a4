"""Short integers, saturating conversions, scalar leftovers, LDS leftovers, clocks and stops."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from bench import GLOBAL, Bench, each_lane
from isa import integers, signed

from aotkern.emulator.arena import AccessError
from aotkern.emulator.operands import OperandError

A, B, C = (integers(seed) for seed in (1, 2, 3))
M16, M32 = 0xFFFF, 0xFFFFFFFF


def s16(value: int) -> int:
    return signed(value & M16, 16)


def middle(*values: int) -> int:
    return sorted(values)[1]


def clip(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def parts(value: int) -> list[int]:
    return [value >> at & 0xFF for at in (0, 8, 16, 24)]


def sad(a: int, b: int, c: int, shift: int = 0, masked: bool = False) -> int:
    total = sum(abs(x - y) for x, y in zip(parts(a), parts(b), strict=True) if not (masked and y == 0))
    return (total << shift) + c & M32


KEPT = 0xABCD0000
FORMS: dict[str, Callable[[int, int, int], int]] = {
    "v_min3_i16": lambda a, b, c: min(s16(a), s16(b), s16(c)) & M16 | KEPT,
    "v_max3_i16": lambda a, b, c: max(s16(a), s16(b), s16(c)) & M16 | KEPT,
    "v_med3_i16": lambda a, b, c: middle(s16(a), s16(b), s16(c)) & M16 | KEPT,
    "v_min3_u16": lambda a, b, c: min(a & M16, b & M16, c & M16) | KEPT,
    "v_max3_u16": lambda a, b, c: max(a & M16, b & M16, c & M16) | KEPT,
    "v_med3_u16": lambda a, b, c: middle(a & M16, b & M16, c & M16) | KEPT,
    "v_mad_i16": lambda a, b, c: s16(a) * s16(b) + s16(c) & M16 | KEPT,
    "v_mad_u32_u16": lambda a, b, c: (a & M16) * (b & M16) + c & M32,
    "v_mad_i32_i16": lambda a, b, c: s16(a) * s16(b) + c & M32,
    "v_sad_u8": sad,
    "v_sad_hi_u8": lambda a, b, c: sad(a, b, c, 16),
    "v_msad_u8": lambda a, b, c: sad(a, b, c, masked=True),
    "v_sad_u16": lambda a, b, c: abs((a & M16) - (b & M16)) + abs((a >> 16) - (b >> 16)) + c & M32,
    "v_lerp_u8": lambda a, b, c: sum(
        (x + y + (z & 1) >> 1) << 8 * at for at, (x, y, z) in enumerate(zip(parts(a), parts(b), parts(c), strict=True))
    ),
    "v_ashr_pk_i8_i32": lambda a, b, c: sum(
        (clip(signed(v) >> (c & 31), -128, 127) & 0xFF) << 8 * at for at, v in enumerate((a, b))
    ) | KEPT,
    "v_ashr_pk_u8_i32": lambda a, b, c: sum(
        clip(signed(v) >> (c & 31), 0, 255) << 8 * at for at, v in enumerate((a, b))
    ) | KEPT,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_three_sources(name: str) -> None:
    bench = Bench()
    for register, values in enumerate((A, B, C), 1):
        bench.set(register, values)
    bench.set(0, [0xABCD1234] * 64)
    bench.run(f"{name} v0, v1, v2, v3")
    assert bench.lanes(0) == each_lane(FORMS[name], A, B, C)


@pytest.mark.parametrize("name", ["v_max3_i16", "v_mad_i32_i16"])
def test_the_upper_half_of_a_source(name: str) -> None:
    bench = Bench()
    for register, values in enumerate((A, B, C), 1):
        bench.set(register, values)
    bench.set(0, [0xABCD1234] * 64)
    bench.run(f"{name} v0, v1, v2, v3 op_sel:[1,0,0,0]")
    assert bench.lanes(0) == each_lane(lambda a, b, c: FORMS[name](a >> 16, b, c), A, B, C)


TWO: dict[str, Callable[[int, int], int]] = {
    "v_cvt_pk_u16_u32": lambda a, b: min(a, M16) | min(b, M16) << 16,
    "v_cvt_pk_i16_i32": lambda a, b: (
        (clip(signed(a), -32768, 32767) & M16) | (clip(signed(b), -32768, 32767) & M16) << 16
    ),
    "v_mul_hi_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32,
    "v_mul_hi_i32_i24": lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) >> 32 & M32,
}


@pytest.mark.parametrize("name", TWO)
def test_two_sources(name: str) -> None:
    bench = Bench()
    bench.set(1, A)
    bench.set(2, B)
    bench.run(f"{name}{'' if 'pk' in name else '_e32'} v0, v1, v2")
    assert bench.lanes(0) == each_lane(TWO[name], A, B)


DOTS: dict[str, Callable[[int, int], int]] = {
    "v_dot2_i32_i16": lambda a, b: s16(a) * s16(b) + s16(a >> 16) * s16(b >> 16),
    "v_dot2_u32_u16": lambda a, b: (a & M16) * (b & M16) + (a >> 16) * (b >> 16),
    "v_dot8_i32_i4": lambda a, b: sum(signed(a >> n & 15, 4) * signed(b >> n & 15, 4) for n in range(0, 32, 4)),
    "v_dot8_u32_u4": lambda a, b: sum((a >> n & 15) * (b >> n & 15) for n in range(0, 32, 4)),
}


@pytest.mark.parametrize("name", DOTS)
@pytest.mark.parametrize("clamp", [False, True])
def test_dot_products_of_integers(name: str, clamp: bool) -> None:
    bench = Bench()
    for register, values in enumerate((A, B, C), 1):
        bench.set(register, values)
    bench.run(f"{name} v0, v1, v2, v3{' clamp' if clamp else ''}")

    def exact(a: int, b: int, c: int) -> int:
        low, high = (-(2**31), 2**31 - 1) if "_i32_" in name else (0, M32)
        total = DOTS[name](a, b) + (signed(c) if low else c)
        return (clip(total, low, high) if clamp else total) & M32

    assert bench.lanes(0) == each_lane(exact, A, B, C)


def test_cndmask_into_a_half() -> None:
    bench = Bench()
    bench.set(0, [0xABCD1234] * 64)
    bench.set(1, A)
    bench.set(2, B)
    bench.scalar(106, 0x5555_5555_5555_5555, 64)
    bench.run(
        "v_cndmask_b32_sdwa v0, v1, v2, vcc dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:WORD_1"
    )
    expected = [
        ((b >> 16 if lane % 2 == 0 else a) & M16) << 16 | 0x1234 for lane, (a, b) in enumerate(zip(A, B, strict=True))
    ]
    assert bench.lanes(0) == expected


SCALARS: dict[str, tuple[int, int, Callable[[int], int]]] = {
    "s_bcnt0_i32_b32": (32, 32, lambda v: 32 - v.bit_count()),
    "s_bcnt0_i32_b64": (64, 32, lambda v: 64 - v.bit_count()),
    "s_ff0_i32_b32": (32, 32, lambda v: next((n for n in range(32) if not v >> n & 1), M32)),
    "s_ff0_i32_b64": (64, 32, lambda v: next((n for n in range(64) if not v >> n & 1), M32)),
    "s_brev_b64": (64, 64, lambda v: int(f"{v:064b}"[::-1], 2)),
    "s_quadmask_b32": (32, 32, lambda v: sum(bool(v >> 4 * n & 15) << n for n in range(8))),
    "s_quadmask_b64": (64, 64, lambda v: sum(bool(v >> 4 * n & 15) << n for n in range(16))),
    "s_wqm_b32": (32, 32, lambda v: sum((15 if v >> 4 * n & 15 else 0) << 4 * n for n in range(8))),
    "s_wqm_b64": (64, 64, lambda v: sum((15 if v >> 4 * n & 15 else 0) << 4 * n for n in range(16))),
    "s_bitreplicate_b64_b32": (32, 64, lambda v: sum((v >> n & 1) * 3 << 2 * n for n in range(32))),
    "s_flbit_i32_i64": (
        64, 32, lambda v: next((n for n in range(1, 64) if (v >> (63 - n) & 1) != v >> 63), M32)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("value", [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678_9ABC_DEF0, 2**64 - 1, 0xF << 40, 2**63])
def test_scalar_bit_operations(name: str, value: int) -> None:
    size, result, function = SCALARS[name]
    value &= (1 << size) - 1
    bench = Bench()
    bench.scalar(4, value, size)
    texts = {32: ("s2", "s4"), 64: ("s[2:3]", "s[4:5]")}
    bench.run(f"{name} {texts[result][0]}, {texts[size][1]}")
    assert bench.scalar(2, bits=result) == function(value)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("s_nand_saveexec_b64", lambda s, e: ~(s & e)), ("s_nor_saveexec_b64", lambda s, e: ~(s | e)),
        ("s_xnor_saveexec_b64", lambda s, e: ~(s ^ e)), ("s_orn1_saveexec_b64", lambda s, e: ~s | e),
        ("s_andn1_wrexec_b64", lambda s, e: ~s & e), ("s_andn2_wrexec_b64", lambda s, e: s & ~e),
    ],
)  # fmt: skip
def test_lane_masks(name: str, function: Callable[[int, int], int]) -> None:
    bench = Bench()
    old, given = 0x00FF_00FF_FF00_FF0F, 0x0F0F_1234_5678_FFFF
    bench.exec = old
    bench.scalar(4, given, 64)
    bench.run(f"{name} s[2:3], s[4:5]")
    new = function(given, old) & (1 << 64) - 1
    assert bench.exec == new
    assert bench.scalar(2, bits=64) == (new if "wrexec" in name else old)


def test_bits_of_pairs_and_short_moves() -> None:
    bench = Bench()
    bench.scalar(2, 1 << 40, 64)
    bench.run("s_bitset1_b64 s[2:3], 63\ns_bitset0_b64 s[2:3], 40\ns_bitcmp1_b64 s[2:3], 63\ns_cmovk_i32 s6, -5")
    assert bench.scalar(2, bits=64) == 1 << 63
    assert bench.scalar(6) == M32 - 4


@pytest.mark.parametrize(("name", "choose"), [("min", min), ("max", max)])
@pytest.mark.parametrize("returns", [False, True])
def test_lds_extremes_of_doubles(name: str, choose: Callable[[float, float], float], returns: bool) -> None:
    bench = Bench()
    there = np.arange(64, dtype=np.float64) - 20.5
    given = np.arange(64, dtype=np.float64)[::-1] * 0.5 - 9
    bench.lds[:512] = there.view(np.uint8)
    bench.set(1, np.arange(64, dtype=np.uint32) * 8)
    bench.set_wide(2, given.view(np.uint64))
    bench.run(f"ds_{name}{'_rtn' if returns else ''}_f64 {'v[4:5], ' if returns else ''}v1, v[2:3]")
    assert bench.lds[:512].view(np.float64).tolist() == [choose(a, b) for a, b in zip(there, given, strict=True)]
    if returns:
        assert bench.wide(4) == there.view(np.uint64).tolist()


def test_transposed_reads_of_four_bits() -> None:
    bench = Bench()
    rng = np.random.default_rng(3)
    nibbles = rng.integers(0, 16, (4, 16, 16), dtype=np.uint8)  # rows of 16 elements, 16 of them, 4 blocks
    bench.lds[:512] = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).reshape(-1)
    bench.set(1, np.arange(64, dtype=np.uint32) * 8)
    bench.run("ds_read_b64_tr_b4 v[2:3], v1")
    for lane, bits in enumerate(bench.wide(2)):
        column = nibbles[lane // 16, :, lane % 16]
        assert bits == sum(int(value) << 4 * row for row, value in enumerate(column))


def test_clocks_go_forward() -> None:
    bench = Bench().run("s_memtime s[2:3]\ns_memrealtime s[4:5]\ns_memtime s[6:7]")
    first, second, third = (bench.scalar(register, bits=64) for register in (2, 4, 6))
    assert 0 < first < second < third


def test_hardware_registers() -> None:
    bench = Bench().run("s_getreg_b32 s2, hwreg(HW_REG_MODE)\ns_getreg_b32 s3, hwreg(HW_REG_MODE, 4, 4)")
    assert bench.scalar(2) & 0xFF == 0xF0
    assert bench.scalar(3) == 0xF
    bench.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\ns_getreg_b32 s4, hwreg(HW_REG_MODE, 23, 1)")
    assert bench.scalar(4) == 1
    bench.run("s_getreg_b32 s5, hwreg(HW_REG_XCC_ID)")
    assert bench.scalar(5) == 0
    with pytest.raises(OperandError, match="HW_REG_STATUS"):
        bench.run("s_getreg_b32 s2, hwreg(HW_REG_STATUS)")


@pytest.mark.parametrize(
    ("text", "reason"), [("s_trap 2", "trap"), ("s_sendmsg sendmsg(MSG_INTERRUPT)", "host calls are not modelled")]
)
def test_what_stops_the_code_says_so(text: str, reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        Bench().run(text)


def test_bytes_from_floats() -> None:
    bench = Bench()
    values = np.array([0.4, 0.5, 1.5, 255.5, 300.0, -3.0, np.nan, 7.0] * 8, np.float32)
    bench.set(1, values)
    bench.set(2, list(range(64)))
    bench.set(3, A)
    bench.run("v_cvt_pk_u8_f32 v0, v1, v2, v3")
    codes = [0, 0, 2, 255, 255, 0, 0, 7] * 8
    shifts = [8 * (lane & 3) for lane in range(64)]
    assert bench.lanes(0) == [a & ~(0xFF << s) | c << s for a, c, s in zip(A, codes, shifts, strict=True)]


def test_small_leftovers() -> None:
    bench = Bench()
    bench.set(1, np.array([1.5, -1.5, 2.4, -0.5, 3e9, np.nan, 0.49, -7.0] * 8, np.float32))
    bench.set(2, list(range(64)))
    bench.set(3, A)
    bench.run("v_cvt_rpi_i32_f32 v0, v1\nv_cvt_off_f32_i4 v4, v2\nv_prng_b32 v5, v3")
    expected = [2, -1, 2, 0, 2**31 - 1, 0, 0, -7] * 8
    assert bench.lanes(0) == [value & M32 for value in expected]
    sixteenths = [signed(lane & 15, 4) / 16 for lane in range(64)]
    assert bench.lanes(4) == [struct.unpack("<I", struct.pack("<f", value))[0] for value in sixteenths]
    assert bench.lanes(5) == [(a << 1 & M32) ^ (197 if a >> 31 else 0) for a in A]
    assert GLOBAL


@pytest.mark.parametrize(
    ("name", "sign"), [("v_pk_add_u16", 1), ("v_pk_sub_u16", -1), ("v_pk_add_i16", 1), ("v_pk_sub_i16", -1)]
)
def test_packed_integers_saturate(name: str, sign: int) -> None:
    bench = Bench()
    bench.set(1, A)
    bench.set(2, B)
    bench.run(f"{name} v0, v1, v2 clamp")
    low, high, read = (-32768, 32767, s16) if name.endswith("i16") else (0, M16, lambda value: value & M16)

    def exact(a: int, b: int) -> int:
        halves = [clip(read(a >> at) + sign * read(b >> at), low, high) & M16 for at in (0, 16)]
        return halves[0] | halves[1] << 16

    assert bench.lanes(0) == each_lane(exact, A, B)
