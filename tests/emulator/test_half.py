"""Mixed multiply-adds, packing, minima that keep NaN, division and argument reduction, against exact statements."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from bench import Bench
from isa import F16, F32, NAN, agree, floats, fma, integers, is_nan, negate

A, B, C = ([value & 0xFFFF for value in integers(seed, 16)] for seed in (1, 2, 3))
X, Y, Z = floats(4), floats(5), floats(6)


def widened(bits: int) -> int:
    """f16 bits as f32 bits."""
    if is_nan(bits, F16):
        return 0x7FC00000
    return struct.unpack("<I", struct.pack("<f", struct.unpack("<e", struct.pack("<H", bits))[0]))[0]


def narrowed(bits: int) -> int:
    """f32 bits rounded to f16."""
    number = F32.decode(bits)
    if number.kind == "nan":
        return NAN
    if number.kind != "finite":
        return 0x7C00 | (0x8000 if bits >> 31 else 0)
    return F16.encode(number.value, negative_zero=number.negative)


def bench() -> Bench:
    made = Bench()
    made.set(1, [a | b << 16 for a, b in zip(A, B, strict=True)])
    made.set(2, X)
    made.set(3, Y)
    made.set(4, [c | a << 16 for c, a in zip(C, A, strict=True)])
    made.set(0, [0xABCD1234] * 64)
    return made


def test_a_mixed_multiply_add_reads_halves_and_floats() -> None:
    made = bench().run("v_fma_mix_f32 v0, v1, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,0,1]")
    for found, b, x, c in zip(made.lanes(0), B, X, C, strict=True):
        assert agree([found], [fma(widened(b), x, widened(c), F32)], F32), (hex(b), hex(x), hex(c))


def test_its_signs_and_its_clamp() -> None:
    made = bench().run("v_fma_mix_f32 v0, -v1, |v2|, v3 op_sel_hi:[1,0,0] clamp")
    for found, a, x, y in zip(made.lanes(0), A, X, Y, strict=True):
        exact = F32.decode(fma(negate(widened(a), F32), x & 0x7FFFFFFF, y, F32))
        value = 0.0 if exact.kind == "nan" else min(max(float(exact), 0.0), 1.0)
        assert struct.unpack("<f", struct.pack("<I", found))[0] == value


@pytest.mark.parametrize(("name", "shift"), [("v_fma_mixlo_f16", 0), ("v_fma_mixhi_f16", 16)])
def test_a_mixed_result_is_one_half_and_the_other_stays(name: str, shift: int) -> None:
    made = bench().run(f"{name} v0, v1, 2.0, v3 op_sel_hi:[1,0,0]")
    for found, a, y in zip(made.lanes(0), A, Y, strict=True):
        exact = narrowed(fma(widened(a), 0x40000000, y, F32))
        assert agree([found >> shift & 0xFFFF], [exact], F16), (hex(a), hex(y))
        assert found >> (16 - shift) & 0xFFFF == (0xABCD1234 >> (16 - shift)) & 0xFFFF


def test_packing_takes_a_half_of_each_source_with_its_sign() -> None:
    made = bench().run("v_pack_b32_f16 v0, v1, v4\nv_pack_b32_f16 v5, -v1, |v4| op_sel:[1,1,0]")
    for plain, other, a, b, c in zip(made.lanes(0), made.lanes(5), A, B, C, strict=True):
        assert plain == a | c << 16
        assert other == (b ^ 0x8000) | (a & 0x7FFF) << 16


def test_a_float_constant_of_a_packed_instruction_is_in_the_lower_half() -> None:
    made = bench().run("v_pk_fma_f16 v0, v1, 2.0, 1.0 op_sel_hi:[1,0,0]\nv_pk_add_f16 v5, v1, 1.0 op_sel_hi:[1,1]")
    for found, other, a, b in zip(made.lanes(0), made.lanes(5), A, B, strict=True):
        for half, value in ((found & 0xFFFF, a), (found >> 16, b)):
            assert agree([half], [fma(value, 0x4000, 0x3C00, F16)], F16)
        assert agree([other & 0xFFFF], [fma(a, 0x3C00, 0x3C00, F16)], F16)
        assert agree([other >> 16], [fma(b, 0x3C00, 0, F16)], F16)


def ordered(bits: int) -> float:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return math.copysign(1e-300, -1) if bits == 0x80000000 else 1e-300 if bits == 0 else value


@pytest.mark.parametrize(("name", "choose"), [("v_minimum3_f32", min), ("v_maximum3_f32", max)])
def test_minima_of_ieee_keep_nan_and_order_the_zeros(name: str, choose: object) -> None:
    x, y, z = list(X), list(Y), list(Z)
    x[:4], y[:4], z[:4] = [0, 0x80000000, 0x80000000, 0], [0x80000000, 0, 0x80000000, 0], [0, 0, 0x80000000, 0]
    made = Bench()
    for register, values in zip((1, 2, 3), (x, y, z), strict=True):
        made.set(register, values)
    made.run(f"{name} v0, v1, v2, v3")
    for found, *sources in zip(made.lanes(0), x, y, z, strict=True):
        if any(is_nan(source, F32) for source in sources):
            assert is_nan(found, F32)
        else:
            assert found == choose(sources, key=ordered)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["v_pk_minimum3_f16", "v_pk_maximum3_f16"])
def test_packed_minima(name: str) -> None:
    made = bench().run(f"{name} v0, v1, v4, v4")
    for found, a, b, c in zip(made.lanes(0), A, B, C, strict=True):
        for half, first, second in ((found & 0xFFFF, a, c), (found >> 16, b, a)):
            if is_nan(first, F16) or is_nan(second, F16):
                assert is_nan(half, F16)
            else:
                values = [struct.unpack("<e", struct.pack("<H", bits))[0] for bits in (half, first, second)]
                assert values[0] == (min if "min" in name else max)(values[1:])


def test_packed_accumulation() -> None:
    made = bench()
    made.set(0, [c | c << 16 for c in C])
    made.run("v_pk_fmac_f16 v0, v1, v4")
    for found, a, b, c in zip(made.lanes(0), A, B, C, strict=True):
        assert agree([found & 0xFFFF], [fma(a, c, c, F16)], F16)
        assert agree([found >> 16], [fma(b, a, c, F16)], F16)


def test_the_end_of_a_half_division() -> None:
    made = bench()
    cases = [
        (0x3C00, 0x4000, 0x4000, 0x3C00), (0x3C00, 0xC000, 0x4000, 0xBC00), (0x3C00, 0, 0x4000, 0x7C00),
        (0x3C00, 0x8000, 0x4000, 0xFC00), (0x3C00, 0, 0, None), (0x3C00, 0x7C00, 0x4000, 0), (0x3C00, 0x7C00, 0x7C00, None),
        (0x3C00, 0x4000, 0xFC00, 0xFC00), (0x3C00, 0x7E01, 0x4000, None), (0x3C00, 0x4000, 0x7E01, None),
        (0x3C00, 0x4000, 0x8000, 0x8000),
    ]  # fmt: skip
    for register in range(3):
        made.set(register + 1, [case[register] for case in cases] + [0] * (64 - len(cases)))
    made.run("v_div_fixup_f16 v0, v1, v2, v3")
    for found, case in zip(made.lanes(0), cases, strict=False):
        half = found & 0xFFFF
        assert is_nan(half, F16) if case[3] is None else half == case[3], (hex(half), [str(part) for part in case])
        assert found >> 16 == 0xABCD


def test_pieces_of_two_over_pi_reduce_an_argument() -> None:
    """The pieces that a large argument asks for, added exactly, are 2/pi as far as the argument needs it."""
    made = Bench()
    argument = 2.0**50 * 1.2345
    made.set_wide(2, [struct.unpack("<Q", struct.pack("<d", argument))[0]] * 64)
    made.run("\n".join(f"v_trig_preop_f64 v[{10 + 2 * n}:{11 + 2 * n}], v[2:3], {n}" for n in range(3)))
    pieces = [struct.unpack("<d", struct.pack("<Q", made.wide(10 + 2 * n)[0]))[0] for n in range(3)]
    exact = sum(map(Fraction, pieces))
    pi = Fraction(3141592653589793238462643383279502884197169399375105820974944592307816406286, 10**75)
    assert abs(exact - 2 / pi) < Fraction(1, 2**157)
    assert pieces == sorted(pieces, reverse=True)


@pytest.mark.parametrize(("name", "function"), [("v_sin_f16", math.sin), ("v_cos_f16", math.cos)])
def test_sine_and_cosine_of_half_turns(name: str, function: object) -> None:
    made = bench().run(f"{name}_e32 v0, v1")
    for found, a in zip(made.lanes(0), A, strict=True):
        value = struct.unpack("<e", struct.pack("<H", a))[0]
        if not math.isfinite(value):
            assert is_nan(found & 0xFFFF, F16)
            continue
        exact = function(math.fmod(value, 1.0) * 2 * math.pi)  # type: ignore[operator]
        assert abs(struct.unpack("<e", struct.pack("<H", found & 0xFFFF))[0] - exact) < 1e-3


def test_exponents_of_halves() -> None:
    made = bench().run("v_frexp_exp_i16_f16_e32 v0, v1")
    for found, a in zip(made.lanes(0), A, strict=True):
        value = struct.unpack("<e", struct.pack("<H", a))[0]
        exact = math.frexp(value)[1] if math.isfinite(value) else 0
        assert np.array(found & 0xFFFF, np.uint16).view(np.int16) == exact
