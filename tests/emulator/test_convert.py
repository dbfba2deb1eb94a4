"""Conversions, fp8 ones against the formats' definitions as tables of fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from bench import Bench, each_lane
from isa import BF16, F16, F32, F64, M16, M32, NAN, Ieee, agree, floats, integers, is_nan, signed

A, B = floats(1), floats(2)
INTEGERS = integers(3)


def small(name: str, fnuz: bool) -> dict[int, Fraction | float]:
    """What each code of a format means: a fraction, or a float for infinities and NaN."""
    mantissa = 3 if name == "fp8" else 2
    bias = {("fp8", False): 7, ("fp8", True): 8, ("bf8", False): 15, ("bf8", True): 16}[name, fnuz]
    table: dict[int, Fraction | float] = {}
    for code in range(256):
        sign = -1 if code & 0x80 else 1
        field, part = (code & 0x7F) >> mantissa, code & ((1 << mantissa) - 1)
        whole = part + ((1 << mantissa) if field else 0)
        table[code] = sign * Fraction(whole) * Fraction(2) ** (max(field, 1) - bias - mantissa)
        if fnuz and code == 0x80:
            table[code] = math.nan
        if not fnuz and name == "fp8" and code & 0x7F == 0x7F:
            table[code] = math.nan
        if not fnuz and name == "bf8" and field == 31:
            table[code] = sign * math.inf if part == 0 else math.nan
    return table


def to_f32(value: Fraction | float, negative: bool) -> int:
    if isinstance(value, float):
        return NAN if math.isnan(value) else 0xFF800000 if value < 0 else 0x7F800000
    return F32.encode(value, negative_zero=negative)


def nearest(value: int, name: str, fnuz: bool, clamp: bool) -> set[int]:
    """The codes that rounding to nearest even may give for the bits of an f32: one, or any NaN code."""
    table = small(name, fnuz)
    nans = {code for code, meaning in table.items() if isinstance(meaning, float) and math.isnan(meaning)}
    number = F32.decode(value)
    if number.kind == "nan":
        return nans
    finite = {code: meaning for code, meaning in table.items() if isinstance(meaning, Fraction) and not code & 0x80}
    largest = max(finite, key=lambda code: finite[code])
    step = finite[largest] - finite[largest - 1]
    size = abs(number.value) if number.kind == "finite" else finite[largest] * 4
    sign = 0x80 if number.negative else 0
    if size > finite[largest] + step / 2 or (size == finite[largest] + step / 2 and largest & 1):
        if clamp:
            return {largest | sign}
        return {0x7C | sign} if name == "bf8" and not fnuz else nans
    best = min(finite, key=lambda code: (abs(finite[code] - size), code & 1))
    return {best if fnuz and best == 0 else best | sign}


def to_integer(low: int, high: int) -> Callable[[int], int]:
    def convert(bits: int) -> int:
        number = F32.decode(bits)
        if number.kind == "nan":
            return 0
        if number.kind == "inf":
            return (low if number.negative else high) & M32
        return max(low, min(high, math.trunc(number.value))) & M32

    return convert


def half_bits(bits: int, form: Ieee = F16) -> int:
    number = F32.decode(bits)
    if number.kind == "nan":
        return NAN
    if number.kind == "inf":
        return form.infinity | int(number.negative) << 15
    return form.encode(number.value, negative_zero=number.negative)


ONE: dict[str, Callable[[int], int]] = {
    "v_cvt_f32_i32_e32": lambda a: F32.encode(Fraction(signed(a))),
    "v_cvt_f32_u32_e32": lambda a: F32.encode(Fraction(a)),
    "v_cvt_f32_ubyte0_e32": lambda a: F32.encode(Fraction(a & 0xFF)),
    "v_cvt_f32_ubyte1_e32": lambda a: F32.encode(Fraction(a >> 8 & 0xFF)),
    "v_cvt_f32_ubyte2_e32": lambda a: F32.encode(Fraction(a >> 16 & 0xFF)),
    "v_cvt_f32_ubyte3_e32": lambda a: F32.encode(Fraction(a >> 24)),
    "v_cvt_f32_f16_e32": lambda a: to_f32_from(a & M16, F16),
    "v_cvt_f16_u16_e32": lambda a: F16.encode(Fraction(a & M16)),
    "v_cvt_f16_i16_e32": lambda a: F16.encode(Fraction(signed(a & M16, 16))),
    "v_cvt_u16_f16_e32": lambda a: half_to_integer(a & M16, 0, M16),
    "v_cvt_i16_f16_e32": lambda a: half_to_integer(a & M16, -(2**15), 2**15 - 1) & M16,
}


def to_f32_from(bits: int, form: Ieee) -> int:
    number = form.decode(bits)
    if number.kind == "nan":
        return NAN
    if number.kind == "inf":
        return 0xFF800000 if number.negative else 0x7F800000
    return F32.encode(number.value, negative_zero=number.negative)


def half_to_integer(bits: int, low: int, high: int) -> int:
    number = F16.decode(bits)
    if number.kind == "nan":
        return 0
    if number.kind == "inf":
        return low if number.negative else high
    return max(low, min(high, math.trunc(number.value)))


@pytest.mark.parametrize("name", ONE)
def test_from_bits(name: str) -> None:
    bench = Bench()
    bench.set(1, INTEGERS)
    found = bench.run(f"{name} v0, v1").lanes(0)
    form = F16 if name.startswith("v_cvt_f16") else F32
    assert agree(found, each_lane(ONE[name], INTEGERS), form)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("v_cvt_i32_f32_e32", to_integer(-(2**31), 2**31 - 1)),
        ("v_cvt_u32_f32_e32", to_integer(0, 2**32 - 1)),
    ],
)
def test_floats_to_integers(name: str, oracle: Callable[[int], int]) -> None:
    bench = Bench()
    bench.set(1, A)
    assert bench.run(f"{name} v0, v1").lanes(0) == each_lane(oracle, A)


def test_floor_to_integer() -> None:
    bench = Bench()
    bench.set(1, A)
    found = bench.run("v_cvt_flr_i32_f32_e32 v0, v1").lanes(0)
    for bits, got in zip(A, found, strict=True):
        number = F32.decode(bits)
        if number.kind == "finite":
            assert signed(got) == max(-(2**31), min(2**31 - 1, math.floor(number.value)))


def test_double_precision() -> None:
    bench = Bench()
    bench.set(1, A)
    bench.run("v_cvt_f64_f32_e32 v[2:3], v1\nv_cvt_f32_f64_e32 v0, v[2:3]")
    assert agree(bench.lanes(0), [NAN if is_nan(value) else value for value in A])
    for bits, wide in zip(A, bench.wide(2), strict=True):
        number = F32.decode(bits)
        if number.kind == "finite":
            assert F64.decode(wide).value == number.value
    bench.set(1, INTEGERS)
    for name, read in (("i32", signed), ("u32", lambda value: value)):
        bench.run(f"v_cvt_f64_{name}_e32 v[2:3], v1\nv_cvt_{name}_f64_e32 v0, v[2:3]")
        assert [F64.decode(wide).value for wide in bench.wide(2)] == [read(value) for value in INTEGERS]
        assert bench.lanes(0) == INTEGERS


@pytest.mark.parametrize("overflow", [False, True])
def test_f16_and_bf16(overflow: bool) -> None:
    bench = Bench()
    bench.waves.overflow = overflow
    bench.set(1, A)
    bench.set(2, B)
    expected = each_lane(half_bits, A)
    if overflow:
        expected = [e & 0x8000 | 0x7BFF if e & 0x7FFF == 0x7C00 and a & 0x7FFFFFFF != 0x7F800000 else e
                    for a, e in zip(A, expected, strict=True)]  # fmt: skip
    assert agree(bench.run("v_cvt_f16_f32_e32 v0, v1").lanes(0), expected, F16)
    bench.run("v_cvt_pk_f16_f32 v0, v1, v2")
    assert agree([value & M16 for value in bench.lanes(0)], expected, F16)
    bench.run("v_cvt_pk_bf16_f32 v0, v1, v2")
    assert agree([value & M16 for value in bench.lanes(0)], each_lane(lambda a: half_bits(a, BF16), A), BF16)
    assert agree([value >> 16 for value in bench.lanes(0)], each_lane(lambda b: half_bits(b, BF16), B), BF16)


def test_f16_towards_zero() -> None:
    bench = Bench()
    bench.set(1, A)
    bench.set(2, B)
    found = bench.run("v_cvt_pkrtz_f16_f32 v0, v1, v2").lanes(0)
    for a, got in zip(A, found, strict=True):
        number, result = F32.decode(a), F16.decode(got & M16)
        if number.kind == "finite":
            assert abs(result.value) <= abs(number.value)
            if result.kind == "finite" and got & 0x7FFF < 0x7BFF:
                assert abs(F16.decode((got & 0x7FFF) + 1).value) > abs(number.value)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_fp8_to_f32(arch: str, name: str) -> None:
    table = small(name, arch == "gfx942")
    bench = Bench(arch)
    for first in range(0, 256, 64):
        codes = [
            (first + lane) | (first + lane ^ 0x15) << 8 | (first + lane ^ 0xAA) << 16 | lane << 24 for lane in range(64)
        ]
        bench.set(1, codes)
        expected = [
            [to_f32(table[code >> 8 * i & 0xFF], bool(code >> 8 * i & 0x80)) for code in codes] for i in range(4)
        ]
        bench.run(f"v_cvt_f32_{name}_e32 v0, v1\nv_cvt_pk_f32_{name}_e32 v[2:3], v1")
        assert agree(bench.lanes(0), expected[0])
        assert agree(bench.lanes(2), expected[0])
        assert agree(bench.lanes(3), expected[1])
        bench.run(f"v_cvt_pk_f32_{name}_sdwa v[2:3], v1 src0_sel:WORD_1\nv_cvt_f32_{name}_sdwa v0, v1 src0_sel:BYTE_3")
        assert agree(bench.lanes(0), expected[3])
        assert agree(bench.lanes(2), expected[2])
        assert agree(bench.lanes(3), expected[3])
        bench.set(2, codes)
        bench.run(f"v_cvt_pk_f32_{name}_e32 v[2:3], v2")
        assert agree(bench.lanes(3), expected[1])


def sized(seed: int) -> list[int]:
    """f32 around the range of fp8, with ties."""
    values = floats(seed)
    ties = [
        F32.encode(Fraction(n, 16) * Fraction(2) ** e) for n in (17, 19, 21, 31, 1, 3) for e in (-9, -6, 0, 7, 8, 4)
    ]
    return [*ties, *values][:64]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("clamp", [False, True])
def test_f32_to_fp8(arch: str, name: str, clamp: bool) -> None:
    a, b = sized(4), floats(5)
    bench = Bench(arch)
    bench.waves.overflow = clamp
    bench.set(1, a)
    bench.set(2, b)
    bench.set(0, [0x5A5A5A5A] * 64)
    bench.run(f"v_cvt_pk_{name}_f32 v0, v1, v2 op_sel:[0,0,1]")
    for x, y, got in zip(a, b, bench.lanes(0), strict=True):
        assert got & M16 == 0x5A5A
        assert got >> 16 & 0xFF in nearest(x, name, arch == "gfx942", clamp), hex(x)
        assert got >> 24 in nearest(y, name, arch == "gfx942", clamp), hex(y)
    bench.run(f"v_cvt_pk_{name}_f32 v0, v2, v1")
    for x, got in zip(a, bench.lanes(0), strict=True):
        assert got >> 8 & 0xFF in nearest(x, name, arch == "gfx942", clamp)


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("exponent", [0, 3, -5])
def test_scaled_conversions(name: str, exponent: int) -> None:
    scale, table = Fraction(2) ** exponent, small(name, fnuz=False)
    codes = integers(6)
    bench = Bench()
    bench.set(1, codes)
    bench.scalar(8, F32.encode(scale))
    for select, shift in (("", 0), ("op_sel:[1,0,0]", 16)):
        bench.run(f"v_cvt_scalef32_pk_f32_{name} v[2:3], v1, s8 {select}")
        for register, byte in ((2, shift), (3, shift + 8)):
            expected = []
            for code in codes:
                meaning = table[code >> byte & 0xFF]
                times = meaning * scale if isinstance(meaning, Fraction) else meaning
                expected.append(to_f32(times, bool(code >> byte & 0x80)))
            assert agree(bench.lanes(register), expected)
    bench.run(f"v_cvt_scalef32_pk_bf16_{name} v2, v1, s8\nv_cvt_scalef32_pk_f16_{name} v3, v1, s8")
    for code, brain, half in zip(codes, bench.lanes(2), bench.lanes(3), strict=True):
        meaning = table[code & 0xFF]
        if isinstance(meaning, Fraction):
            assert BF16.decode(brain & M16).value == meaning * scale
            assert half & M16 == F16.encode(meaning * scale, negative_zero=bool(code & 0x80))
    a, b = sized(7), floats(8)
    bench.set(4, a)
    bench.set(5, b)
    bench.set(0, [0x5A5A5A5A] * 64)
    bench.run(f"v_cvt_scalef32_pk_{name}_f32 v0, v4, v5, s8 op_sel:[0,0,0,1]")
    for x, got in zip(a, bench.lanes(0), strict=True):
        number = F32.decode(x)
        assert got & M16 == 0x5A5A
        if number.kind == "finite":
            scaled = F32.encode(number.value / scale, negative_zero=number.negative)
            assert got >> 16 & 0xFF in nearest(scaled, name, fnuz=False, clamp=False)


FP4 = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]


@pytest.mark.parametrize("byte", range(4))
def test_fp4_conversions(byte: int) -> None:
    scale, codes = Fraction(8), integers(9)
    bench = Bench()
    bench.set(1, codes)
    bench.scalar(8, F32.encode(scale))
    select = f"op_sel:[{byte & 1},{byte >> 1},0]"
    for result in ("f32 v[2:3]", "bf16 v4", "f16 v5"):
        kind, target = result.split()
        bench.run(f"v_cvt_scalef32_pk_{kind}_fp4 {target}, v1, s8 {select}")
    for lane, code in enumerate(codes):
        for half in (0, 1):
            nibble = code >> (8 * byte + 4 * half) & 15
            exact = FP4[nibble & 7] * (-1 if nibble & 8 else 1) * scale
            assert F32.decode(bench.lanes(2 + half)[lane]).value == exact
            assert BF16.decode(bench.lanes(4)[lane] >> 16 * half & M16).value == exact
            assert F16.decode(bench.lanes(5)[lane] >> 16 * half & M16).value == exact
