"""Vector float arithmetic against exact fractions rounded once, and the transcendental functions against `math`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest
from bench import Bench, each_lane
from isa import F16, F32, F64, M32, NAN, Ieee, add, agree, floats, fma, integers, is_nan, multiply, negate, signed, ulps

A, B, C = floats(1), floats(2), floats(3)
HALF_A, HALF_B, HALF_C = ([value & 0xFFFF for value in integers(seed, 16)] for seed in (4, 5, 6))


def wide(seed: int) -> list[int]:
    return [struct.unpack("<Q", struct.pack("<d", float(F32.decode(bits)) * (1 + 2**-40)))[0] for bits in floats(seed)]


DOUBLE_A, DOUBLE_B, DOUBLE_C = wide(7), wide(8), wide(9)
FORMS: dict[str, tuple[Ieee, list[int], list[int], list[int]]] = {
    "f32": (F32, A, B, C),
    "f16": (F16, HALF_A, HALF_B, HALF_C),
    "f64": (F64, DOUBLE_A, DOUBLE_B, DOUBLE_C),
}


def key(bits: int, form: Ieee) -> float:
    return float(form.decode(bits))


def least(form: Ieee, *values: int) -> int:
    numbers = [value for value in values if not is_nan(value, form)]
    return min(numbers, key=lambda bits: key(bits, form)) if numbers else NAN


def most(form: Ieee, *values: int) -> int:
    numbers = [value for value in values if not is_nan(value, form)]
    return max(numbers, key=lambda bits: key(bits, form)) if numbers else NAN


def median(form: Ieee, *values: int) -> int:
    if any(is_nan(value, form) for value in values):
        return least(form, *values)
    return sorted(values, key=lambda bits: key(bits, form))[1]


def whole(form: Ieee, bits: int, function: Callable[[Fraction], int]) -> int:
    number = form.decode(bits)
    if number.kind != "finite":
        return NAN if number.kind == "nan" else bits
    return form.encode(Fraction(function(number.value)), negative_zero=number.negative)


def fract(form: Ieee, bits: int) -> int:
    number = form.decode(bits)
    if number.kind != "finite":
        return NAN
    part = number.value - math.floor(number.value)
    return min(form.encode(part), form.encode(Fraction(1)) - 1)


def mantissa(form: Ieee, bits: int) -> int:
    number = form.decode(bits)
    if number.kind != "finite" or number.value == 0:
        return NAN if number.kind == "nan" else bits
    size = abs(number.value)
    while size >= 1:
        size /= 2
    while size < Fraction(1, 2):
        size *= 2
    return form.encode(-size if number.negative else size)


COMMON: dict[str, tuple[int, Callable[..., int]]] = {
    "add": (2, lambda f, a, b: add(a, b, f)),
    "sub": (2, lambda f, a, b: add(a, negate(b, f), f)),
    "subrev": (2, lambda f, a, b: add(b, negate(a, f), f)),
    "mul": (2, lambda f, a, b: multiply(a, b, f)),
    "min": (2, least),
    "max": (2, most),
    "min3": (3, least),
    "max3": (3, most),
    "med3": (3, median),
    "fma": (3, lambda f, a, b, c: fma(a, b, c, f)),
    "floor": (1, lambda f, a: whole(f, a, math.floor)),
    "ceil": (1, lambda f, a: whole(f, a, math.ceil)),
    "trunc": (1, lambda f, a: whole(f, a, math.trunc)),
    "rndne": (1, lambda f, a: whole(f, a, round)),
    "fract": (1, fract),
    "frexp_mant": (1, mantissa),
}
MISSING = {("subrev", "f64"), ("sub", "f64"), ("min3", "f64"), ("max3", "f64"), ("med3", "f64")}


def loaded(kind: str) -> Bench:
    bench = Bench()
    for register, values in zip((2, 4, 6), FORMS[kind][1:], strict=True):
        (bench.set_wide if kind == "f64" else bench.set)(register, values)
    return bench


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in COMMON for k in FORMS if (n, k) not in MISSING])
def test_arithmetic(name: str, kind: str) -> None:
    form, *columns = FORMS[kind]
    count, oracle = COMMON[name]
    spelling = "mnemonic"
    bench = loaded(kind)
    registers = [f"v[{r}:{r + 1}]" if kind == "f64" else f"v{r}" for r in (2, 4, 6)[:count]]
    spelling = {"min": "min", "max": "max"}.get(name, name)
    target = "v[0:1]" if kind == "f64" else "v0"
    bench.set(0, [0] * 64)
    bench.run(f"v_{spelling}_{kind} {target}, {', '.join(registers)}")
    found = bench.wide(0) if kind == "f64" else bench.lanes(0)
    expected = each_lane(lambda *lane: oracle(form, *lane), *columns[:count])
    zeros = {1 << (form.exponent + form.mantissa): 0}  # which zero a minimum gives is not specified
    if name in ("min", "max", "min3", "max3", "med3"):
        found, expected = ([zeros.get(value, value) for value in values] for values in (found, expected))
    assert agree(found, expected, form)


@pytest.mark.parametrize("text", ["v_fmac_f32_e32 v0, v2, v4", "v_fma_f32 v0, v2, v4, v0"])
def test_f32_multiply_accumulate(text: str) -> None:
    bench = loaded("f32")
    bench.set(0, C)
    assert agree(bench.run(text).lanes(0), each_lane(fma, A, B, C))


def test_f32_multiply_add_with_a_literal() -> None:
    literal = 0x3D2AABF7
    bench = loaded("f32")
    assert agree(
        bench.run(f"v_fmaak_f32 v0, v2, v4, {literal:#x}").lanes(0), each_lane(lambda a, b: fma(a, b, literal), A, B)
    )
    assert agree(
        bench.run(f"v_fmamk_f32 v0, v2, {literal:#x}, v4").lanes(0), each_lane(lambda a, b: fma(a, literal, b), A, B)
    )


def test_fused_results_that_lie_halfway_in_double_precision() -> None:
    # 1 + 2**-24 is halfway between two f32; what is left of the product decides, and float64 alone loses it.
    one, half_ulp = 0x3F800000, F32.encode(Fraction(1, 2**24))
    tiny = F32.encode(Fraction(1, 2**70))
    bench = Bench()
    cases = [(half_ulp, one, one), (tiny, tiny, half_ulp), (half_ulp, 0x3F800001, one), (half_ulp, 0x3F7FFFFF, one),
             (0x00800001, 0x3F000000, 1), (0x80000001, 0x3F000000, 0x00800000)]  # fmt: skip
    columns = [[case[i] for case in cases * 11][:64] for i in range(3)]
    for register, column in zip((1, 2, 3), columns, strict=True):
        bench.set(register, column)
    assert bench.run("v_fma_f32 v0, v1, v2, v3").lanes(0) == each_lane(fma, *columns)


def scaled(bits: int, factor: int) -> int:
    return NAN if bits == NAN else multiply(bits, factor)


@pytest.mark.parametrize(
    ("modifiers", "oracle"),
    [
        ("-v2, v4", lambda a, b: add(negate(a), b)),
        ("|v2|, -|v4|", lambda a, b: add(a & 0x7FFFFFFF, b | 0x80000000)),
        ("v2, 0.5", lambda a, b: add(a, 0x3F000000)),
        ("v2, v4 mul:2", lambda a, b: scaled(add(a, b), 0x40000000)),
        ("v2, v4 div:2", lambda a, b: scaled(add(a, b), 0x3F000000)),
    ],
)
def test_sign_and_output_modifiers(modifiers: str, oracle: Callable[[int, int], int]) -> None:
    expected = each_lane(oracle, A, B)
    assert agree(loaded("f32").run(f"v_add_f32_e64 v0, {modifiers}").lanes(0), expected)


def test_clamp() -> None:
    def oracle(a: int, b: int) -> int:
        total = add(a, b)
        if total == NAN or F32.decode(total).negative:
            return 0
        return min(total, 0x3F800000)

    found = loaded("f32").run("v_add_f32_e64 v0, v2, v4 clamp").lanes(0)
    assert [value & 0x7FFFFFFF for value in found] == each_lane(oracle, A, B)


def flushed(bits: int) -> int:
    return bits & 0x80000000 if bits & 0x7F800000 == 0 else bits


def log2(x: float) -> float:
    return math.nan if x < 0 else -math.inf if x == 0 else math.log2(x) if x < math.inf else x


def exp2(x: float) -> float:
    return math.inf if x >= 1024 else 0.0 if x < -1000 else 2.0**x


def sqrt(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def inverse(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def turned(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(2 * math.pi * math.fmod(x, 1.0)) if math.isfinite(x) else math.nan


TRANSCENDENTAL: dict[str, Callable[[float], float]] = {
    "v_exp_f32_e32": exp2,
    "v_log_f32_e32": log2,
    "v_rcp_f32_e32": inverse,
    "v_rcp_iflag_f32_e32": inverse,
    "v_rsq_f32_e32": lambda x: inverse(sqrt(x)),
    "v_sqrt_f32_e32": sqrt,
    "v_sin_f32_e32": turned(math.sin),
    "v_cos_f32_e32": turned(math.cos),
}


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_transcendental_functions_are_within_one_ulp(name: str) -> None:
    found = loaded("f32").run(f"{name} v0, v2").lanes(0)
    for bits, result in zip(A, found, strict=True):
        exact = TRANSCENDENTAL[name](float(F32.decode(flushed(bits))))
        if abs(exact) < 2.0**-126:
            assert result & 0x7FFFFFFF == 0
        else:
            assert ulps(result, exact) <= 1, hex(bits)


HALF_FUNCTIONS = {"exp": exp2, "log": log2, "rcp": inverse, "rsq": lambda x: inverse(sqrt(x)), "sqrt": sqrt}


@pytest.mark.parametrize("name", HALF_FUNCTIONS)
def test_f16_transcendental_functions(name: str) -> None:
    found = loaded("f16").run(f"v_{name}_f16_e32 v0, v2").lanes(0)
    for bits, result in zip(HALF_A, found, strict=True):
        assert ulps(result, HALF_FUNCTIONS[name](float(F16.decode(bits))), F16) <= 1, hex(bits)


@pytest.mark.parametrize("name", ["rcp", "rsq", "sqrt"])
def test_f64_transcendental_functions(name: str) -> None:
    found = loaded("f64").run(f"v_{name}_f64_e32 v[0:1], v[2:3]").wide(0)
    for bits, result in zip(DOUBLE_A, found, strict=True):
        assert ulps(result, HALF_FUNCTIONS[name](float(F64.decode(bits))), F64) <= 2, hex(bits)


def test_scaling_by_powers_of_two() -> None:
    bench = loaded("f32")
    shifts = [signed(value) % 300 - 150 for value in integers(20)]
    bench.set(1, [shift & M32 for shift in shifts])

    def oracle(bits: int, shift: int) -> int:
        number = F32.decode(bits)
        if number.kind != "finite":
            return NAN if number.kind == "nan" else bits
        return F32.encode(number.value * Fraction(2) ** shift, negative_zero=number.negative)

    assert agree(bench.run("v_ldexp_f32 v0, v2, v1").lanes(0), each_lane(oracle, A, shifts))
    bench.run("v_frexp_exp_i32_f32_e32 v0, v2")
    for bits, found in zip(A, bench.lanes(0), strict=True):
        value = float(F32.decode(bits))
        assert signed(found) == (math.frexp(value)[1] if math.isfinite(value) else 0)


DIVIDE = """
v_div_scale_f32 v10, s[10:11], v4, v4, v2
v_div_scale_f32 v11, vcc, v2, v4, v2
v_rcp_f32_e32 v12, v10
v_fma_f32 v13, -v10, v12, 1.0
v_fma_f32 v12, v13, v12, v12
v_mul_f32_e32 v13, v11, v12
v_fma_f32 v14, -v10, v13, v11
v_fma_f32 v13, v14, v12, v13
v_fma_f32 v14, -v10, v13, v11
v_div_fmas_f32 v12, v14, v12, v13
v_div_fixup_f32 v0, v12, v4, v2
"""
DIVIDE_WIDE = """
v_div_scale_f64 v[10:11], s[10:11], v[4:5], v[4:5], v[2:3]
v_rcp_f64_e32 v[12:13], v[10:11]
v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0
v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0
v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
v_div_scale_f64 v[14:15], vcc, v[2:3], v[4:5], v[2:3]
v_mul_f64 v[16:17], v[14:15], v[12:13]
v_fma_f64 v[10:11], -v[10:11], v[16:17], v[14:15]
v_div_fmas_f64 v[10:11], v[10:11], v[12:13], v[16:17]
v_div_fixup_f64 v[0:1], v[10:11], v[4:5], v[2:3]
"""


def quotient(a: int, b: int, form: Ieee) -> int:
    x, y = form.decode(a), form.decode(b)
    sign = (x.negative ^ y.negative) << (form.exponent + form.mantissa)
    if "nan" in (x.kind, y.kind) or (x.kind == y.kind == "inf"):
        return NAN
    if x.kind == "inf" or (y.kind == "finite" and y.value == 0):
        return NAN if x.kind == "finite" and x.value == 0 else form.infinity | sign
    if y.kind == "inf" or x.value == 0:
        return sign
    return form.encode(x.value / y.value)


@pytest.mark.parametrize(("a", "b"), [(A, B), (B, A), (A, A), (floats(30, special=False), floats(31, special=False))])
def test_the_division_sequence_is_correctly_rounded(a: list[int], b: list[int]) -> None:
    bench = Bench()
    bench.set(2, a)
    bench.set(4, b)
    found = bench.run(DIVIDE).lanes(0)
    for x, y, got in zip(a, b, found, strict=True):
        expected = quotient(x, y, F32)
        if expected != NAN and expected & 0x7F800000 == 0 and expected & 0x7FFFFFFF:
            assert abs(got - expected) <= 1  # a denormal quotient is scaled back after it was rounded
        else:
            assert agree([got], [expected]), (hex(x), hex(y), hex(got))


def test_the_f64_division_sequence() -> None:
    found = loaded("f64").run(DIVIDE_WIDE).wide(0)
    assert agree(found, each_lane(lambda a, b: quotient(a, b, F64), DOUBLE_A, DOUBLE_B), F64)
