"""Vector float arithmetic in f32, f64 and f16.

Denormals are kept, rounding is to nearest even, and a fused multiply-add is rounded once. The transcendental
instructions (exp, log, rcp, rsq, sqrt, sin, cos) are the double-precision function rounded to the result's type, with
denormal f32 inputs and results flushed as hardware does; hardware's own last-place error is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Kind, Operands
from aotkern.emulator.valu import Alu, Bind, Function, Step, bind_alu, pure
from aotkern.emulator.waves import VCC, Array, Mask, Waves

F32, F64, U32, U64, I64 = np.float32, np.float64, np.uint32, np.uint64, np.int64
_TINY = F32(2.0**-126)
_HALFWAY, _BELOW = U64(0x1000_0000), U64(0x1FFF_FFFF)  # of a float64: the bits that float32 drops


def fused(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float32 rounded once.

    The product is exact in float64. The sum is rounded there first, which can only change the result when it falls
    exactly between two float32 values or into their denormal range; then it is made odd before it is rounded again.
    """
    product = np.multiply(a, b, dtype=F64)
    total = np.asarray(product + c)
    doubtful = (total.view(U64) & _BELOW) == _HALFWAY
    doubtful |= np.abs(total) < 2 * F64(_TINY)
    if not doubtful.any():
        return total.astype(F32)
    return rounded_to_odd(product, np.asarray(c, F64), total).astype(F32)


def rounded_to_odd(a: Array, b: Array, total: Array) -> Array:
    """`a + b` rounded to odd in float64, `total` being that sum rounded to nearest."""
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(I64)
    away = (error > 0) == (total > 0)  # the exact sum is farther from zero than `total`
    fix = (error != 0) & (bits & 1 == 0) & np.isfinite(total) & (total != 0)
    return np.where(fix, bits + np.where(away, 1, -1), bits).view(F64)


def fused_f64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float64 rounded once.

    Product and sum are taken apart into exact pairs; what is left over is added with its sticky bit made odd. Products
    beyond the range of float64 lose the exactness of the pair, and are rounded twice.
    """
    product = a * b
    split = F64(2.0**27 + 1)
    a_high, b_high = a * split - (a * split - a), b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    tail = np.asarray(error + rest)
    exact = total + rounded_to_odd(error, rest, tail)
    return np.where(np.isfinite(total) & np.isfinite(rest), exact, total)


def fused_f16(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float16 rounded once: the product is exact in float64, the sum is made odd there."""
    product = np.multiply(a, b, dtype=F64)
    addend = np.asarray(c, F64)
    return rounded_to_odd(product, addend, np.asarray(product + addend)).astype(np.float16)


def flushed(value: Array) -> Array:
    """float32 with denormals replaced by zeros of their sign."""
    return np.where(np.abs(value) < _TINY, np.copysign(F32(0), value), value)


def rounded(function: Callable[[Array], Any]) -> Function:
    """A transcendental f32 instruction: `function` in float64, rounded, denormals flushed on both sides."""
    return pure(lambda value: flushed(np.asarray(function(flushed(value).astype(F64))).astype(F32)))


def _turned(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Sine and cosine take turns, not radians."""
    return lambda value: function(np.where(np.isfinite(value), np.fmod(value, 1.0), np.nan) * (2 * np.pi))


def fraction(value: Array) -> Array:
    """The part above the next lower integer, kept below one."""
    below = np.nextafter(value.dtype.type(1), value.dtype.type(0))
    return np.asarray(np.minimum(value - np.floor(value), below))


def middle(a: Array, b: Array, c: Array) -> Array:
    """The median of three floats; with a NaN among them, the least of the others."""
    median = np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), np.fmin(np.fmin(a, b), c), median)


def _exponent(value: Array) -> Array:
    """The biased exponent field."""
    if value.dtype == F64:
        return np.asarray(((value.view(U64) >> U64(52)) & U64(0x7FF)).astype(I64))
    return np.asarray(((value.view(U32) >> U32(23)) & U32(0xFF)).astype(I64))


def _mantissa(value: Array) -> Array:
    return np.where(np.isfinite(value), np.frexp(value)[0], value)


def _exponent_of(value: Array) -> Array:
    return np.where(np.isfinite(value), np.frexp(value)[1], 0).astype(np.int32)


def scaled_for_division(
    value: Array, denominator: Array, numerator: Array, *, by: int, apart: int, small: int
) -> tuple[Array, Array]:
    """`v_div_scale`: the value moved out of the range where a division would lose bits, and whether to scale back.

    Args:
        value: The numerator or the denominator, whichever is to be scaled.
        denominator: As given to the division.
        numerator: Likewise.
        by: Binary exponent of the scale, 64 for f32.
        apart: Difference of exponents from which the quotient is near overflow, 96 for f32.
        small: Biased exponent up to which a numerator counts as tiny, 23 for f32.
    """
    least = np.finfo(value.dtype).tiny
    wide = np.longdouble if value.dtype == F64 else F64
    quotient = np.abs(numerator.astype(wide) / denominator.astype(wide))
    inverse = np.abs(1 / denominator.astype(wide))
    is_denominator = value == denominator
    up, down = np.ldexp(value, by), np.ldexp(value, -by)
    low_quotient, low_inverse = (quotient < least) & (quotient > 0), inverse < least
    denormal = (np.abs(denominator) < least) & (denominator != 0)
    cases = (
        (numerator == 0) | (denominator == 0),
        _exponent(numerator) - _exponent(denominator) >= apart,
        denormal,
        low_inverse & low_quotient,
        low_inverse,
        low_quotient,
        _exponent(numerator) <= small,
    )
    alone_up, alone_down = (np.where(is_denominator, moved, value) for moved in (up, down))
    results = (np.full_like(up, np.nan), alone_up, up, alone_down, down, np.where(value == numerator, up, value), up)
    flags = (False, True, False, True, False, True, False)
    return np.select(cases, results, value), np.select(cases, flags, default=False)


def _div_scale(kind: Kind, by: int, apart: int, small: int) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        wide = kind == "f64"
        target = operands.vector(instruction.operands[0], 2 if wide else 1)
        flag = operands.scalar(instruction.operands[1], 2)
        sources = [operands.fetch(text, kind) for text in instruction.operands[2:]]

        def step(w: Waves) -> None:
            given = np.broadcast_arrays(w.vector_f32[0], *[fetch(w) for fetch in sources])[1:]
            result, flags = scaled_for_division(*given, by=by, apart=apart, small=small)
            w.write_mask(flag, flags)
            if wide:
                w.write_pair(target, result)
            else:
                w.write(target, result.view(U32))

        return step

    return bind


def _div_fmas(kind: Kind, by: int) -> Bind:
    """The last multiply-add of a division; where VCC says so, its result is scaled back."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        fuse = fused if kind == "f32" else fused_f64
        middle_exponent = 127 if kind == "f32" else 1023
        scaled: list[Array] = []

        def function(a: Array, b: Array, c: Array, *, out: Array, where: Mask) -> None:
            result = fuse(a, b, c)
            flags = scaled.pop()
            if flags.any():
                direction = np.where(_exponent(np.asarray(c)) > middle_exponent, by, -by)
                result = np.where(flags, np.ldexp(result, direction), result)
            np.copyto(out, result, where=where)

        inner = bind_alu(Alu(kind, (kind,) * 3, function), instruction, operands)

        def step(w: Waves) -> None:
            scaled.append(w.flags(VCC))
            inner(w)

        return step

    return bind


def fixed_division(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """`v_div_fixup`: the special cases and the sign of a division whose magnitude is `quotient`.

    A quotient that is NaN although neither operand is special comes from a division that overflowed on the way.
    """
    sign = np.signbit(denominator) ^ np.signbit(numerator)
    zero_below, zero_above = denominator == 0, numerator == 0
    infinite_below, infinite_above = np.isinf(denominator), np.isinf(numerator)
    dtype = quotient.dtype.type
    size = np.where(np.isnan(quotient), dtype(np.inf), np.abs(quotient))
    lost = _exponent(numerator) - _exponent(denominator) < (-1075 if size.dtype == F64 else -150)
    size = np.where(infinite_below | zero_above | lost, dtype(0), size)
    size = np.where(zero_below | infinite_above, dtype(np.inf), size)
    result = np.where(sign, -size, size)
    result = np.where((zero_below & zero_above) | (infinite_below & infinite_above), -dtype(np.nan), result)
    result = np.where(np.isnan(denominator), denominator, result)
    return np.where(np.isnan(numerator), numerator, result)


def _fma(kind: Kind, function: Callable[[Array, Array, Array], Array]) -> Alu:
    return Alu(kind, (kind,) * 3, pure(function))


def _ufunc_family(suffix: Kind) -> dict[str, Bind]:
    """What f16, f32 and f64 have in common and numpy computes directly."""
    one, two = (suffix,), (suffix,) * 2
    return {
        f"v_add_{suffix}": Alu(suffix, two, np.add),
        f"v_mul_{suffix}": Alu(suffix, two, np.multiply),
        f"v_min_{suffix}": Alu(suffix, two, np.fmin),
        f"v_max_{suffix}": Alu(suffix, two, np.fmax),
        f"v_floor_{suffix}": Alu(suffix, one, np.floor),
        f"v_ceil_{suffix}": Alu(suffix, one, np.ceil),
        f"v_trunc_{suffix}": Alu(suffix, one, np.trunc),
        f"v_rndne_{suffix}": Alu(suffix, one, np.rint),
        f"v_fract_{suffix}": Alu(suffix, one, pure(fraction)),
        f"v_frexp_mant_{suffix}": Alu(suffix, one, pure(_mantissa)),
    }


def _narrow_family(suffix: Kind) -> dict[str, Bind]:
    """What f16 and f32 have and f64 has not."""
    two, three = (suffix,) * 2, (suffix,) * 3
    return {
        f"v_sub_{suffix}": Alu(suffix, two, np.subtract),
        f"v_subrev_{suffix}": Alu(suffix, two, np.subtract, order=(1, 0)),
        f"v_min3_{suffix}": Alu(suffix, three, pure(lambda a, b, c: np.fmin(np.fmin(a, b), c))),
        f"v_max3_{suffix}": Alu(suffix, three, pure(lambda a, b, c: np.fmax(np.fmax(a, b), c))),
        f"v_med3_{suffix}": Alu(suffix, three, pure(middle)),
    }


def _wide(function: Callable[[Array], Any], dtype: type[np.floating[Any]]) -> Function:
    return pure(lambda value: np.asarray(function(value.astype(F64))).astype(dtype))


FLOAT: dict[str, Bind] = {
    **_ufunc_family("f32"),
    **_ufunc_family("f64"),
    **_ufunc_family("f16"),
    **_narrow_family("f32"),
    **_narrow_family("f16"),
    "v_fma_f32": _fma("f32", fused),
    "v_fmac_f32": Alu("f32", ("f32", "f32"), pure(fused), reads_result=True),
    "v_fmaak_f32": _fma("f32", fused),
    "v_fmamk_f32": _fma("f32", fused),
    "v_fma_f64": _fma("f64", fused_f64),
    "v_fmac_f64": Alu("f64", ("f64", "f64"), pure(fused_f64), reads_result=True),
    "v_fma_f16": Alu("f16", ("f16",) * 3, pure(fused_f16), keeps_high=True),
    "v_fmac_f16": Alu("f16", ("f16", "f16"), pure(fused_f16), reads_result=True),
    "v_ldexp_f32": Alu("f32", ("f32", "i32"), pure(np.ldexp)),
    "v_ldexp_f64": Alu("f64", ("f64", "i32"), pure(np.ldexp)),
    "v_ldexp_f16": Alu("f16", ("f16", "i16"), pure(np.ldexp)),
    "v_frexp_exp_i32_f32": Alu("i32", ("f32",), pure(_exponent_of)),
    "v_frexp_exp_i32_f64": Alu("i32", ("f64",), pure(_exponent_of)),
    "v_exp_f32": Alu("f32", ("f32",), rounded(np.exp2)),
    "v_log_f32": Alu("f32", ("f32",), rounded(np.log2)),
    "v_rcp_f32": Alu("f32", ("f32",), rounded(np.reciprocal)),
    "v_rcp_iflag_f32": Alu("f32", ("f32",), rounded(np.reciprocal)),
    "v_rsq_f32": Alu("f32", ("f32",), rounded(lambda value: 1 / np.sqrt(value))),
    "v_sqrt_f32": Alu("f32", ("f32",), rounded(np.sqrt)),
    "v_sin_f32": Alu("f32", ("f32",), rounded(_turned(np.sin))),
    "v_cos_f32": Alu("f32", ("f32",), rounded(_turned(np.cos))),
    "v_rcp_f64": Alu("f64", ("f64",), np.reciprocal),
    "v_rsq_f64": Alu("f64", ("f64",), pure(lambda value: 1 / np.sqrt(value))),
    "v_sqrt_f64": Alu("f64", ("f64",), np.sqrt),
    "v_exp_f16": Alu("f16", ("f16",), _wide(np.exp2, np.float16)),
    "v_log_f16": Alu("f16", ("f16",), _wide(np.log2, np.float16)),
    "v_rcp_f16": Alu("f16", ("f16",), _wide(np.reciprocal, np.float16)),
    "v_rsq_f16": Alu("f16", ("f16",), _wide(lambda value: 1 / np.sqrt(value), np.float16)),
    "v_sqrt_f16": Alu("f16", ("f16",), _wide(np.sqrt, np.float16)),
    "v_div_scale_f32": _div_scale("f32", 64, 96, 23),
    "v_div_scale_f64": _div_scale("f64", 128, 768, 53),
    "v_div_fmas_f32": _div_fmas("f32", 64),
    "v_div_fmas_f64": _div_fmas("f64", 128),
    "v_div_fixup_f32": _fma("f32", fixed_division),
    "v_div_fixup_f64": _fma("f64", fixed_division),
}
"""Mnemonic without its encoding suffix, to how it is bound."""
