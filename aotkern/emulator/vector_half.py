"""Half precision beyond plain arithmetic: mixed multiply-adds, packing, and minima that keep NaN.

A mixed instruction reads each source as f32 or as one half of a register, which `op_sel_hi` and `op_sel` say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Fetch, OperandError, Operands, Spelling, narrowed, signed
from aotkern.emulator.valu import Alu, Bind, Step, pure
from aotkern.emulator.vector_convert import to_f16
from aotkern.emulator.vector_float import fused, fused_f16
from aotkern.emulator.waves import Array, Waves

F16, F32, F64, U16, U32, I64 = np.float16, np.float32, np.float64, np.uint16, np.uint32, np.int64


def _mixed_source(operands: Operands, text: str, *, half: bool, high: bool) -> Fetch:
    """One source as float32."""
    if not half:
        return operands.fetch(text, "f32")
    if not high:
        narrow = operands.fetch(text, "f16")
        return lambda w: narrow(w).astype(F32)
    spelling = Spelling.parse(text)
    whole, word = operands.fetch(spelling.body, "u32"), narrowed("f16")
    assert word is not None
    upper: Fetch = lambda w: word(whole(w) >> U32(16))  # noqa: E731
    value = signed(upper, spelling, "f16")
    return lambda w: value(w).astype(F32)


def _mixed(part: str) -> Bind:
    """`v_fma_mix_f32`, `v_fma_mixlo_f16`, `v_fma_mixhi_f16`: an f32 multiply-add, maybe rounded to f16."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        none = (0, 0, 0)
        halves, highs = instruction.bits("op_sel_hi", none), instruction.bits("op_sel", none)
        fetches = [
            _mixed_source(operands, text, half=bool(half), high=bool(high))
            for text, half, high in zip(instruction.operands[1:], halves, highs, strict=True)
        ]
        clamp = instruction.modifier("clamp") is not None
        shift = U32(16 if part == "hi" else 0)
        keep = U32(0x0000FFFF if part == "hi" else 0xFFFF0000)

        def step(w: Waves) -> None:
            total = fused(*[fetch(w) for fetch in fetches])
            if part == "f32":
                w.write(target, clamped(total).view(U32) if clamp else total.view(U32))
                return
            short = to_f16(total, clamp=w.overflow)
            code = (clamped(short) if clamp else short).view(U16).astype(U32)
            w.write(target, (w.vector[target] & keep) | (code << shift))

        return step

    return bind


def clamped(value: Array) -> Array:
    """Between 0 and 1; a NaN becomes 0."""
    zero, one = value.dtype.type(0), value.dtype.type(1)
    return np.asarray(np.fmin(np.fmax(value, zero), one))


def _packed(low: Array, high: Array) -> Array:
    first, second = (np.asarray(half).view(U16).astype(U32) for half in (low, high))
    return np.asarray(first | (second << U32(16)))


def _ordered(choose: Callable[[Array, Array], Array], zero: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    """IEEE 754-2019 `minimum` or `maximum` of two: NaN stays, and the zeros differ by their sign."""

    def run(a: Array, b: Array) -> Array:
        result = np.asarray(choose(a, b))
        both = (a == 0) & (b == 0)
        if not both.any():
            return result
        sign = zero(np.signbit(a), np.signbit(b))
        return np.where(both, np.where(sign, result.dtype.type(-0.0), result.dtype.type(0)), result)

    return run


minimum = _ordered(np.minimum, np.logical_or)
maximum = _ordered(np.maximum, np.logical_and)


def least_of_three(a: Array, b: Array, c: Array) -> Array:
    """`minimum` of three."""
    return minimum(minimum(a, b), c)


def greatest_of_three(a: Array, b: Array, c: Array) -> Array:
    """`maximum` of three."""
    return maximum(maximum(a, b), c)


def fixed_half_division(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """`v_div_fixup_f16`: the special cases and the sign of a division whose magnitude is `quotient`."""
    sign = np.signbit(denominator) ^ np.signbit(numerator)
    no_number = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    size = np.abs(quotient)
    size = np.where(np.isinf(denominator) | (numerator == 0), F16(0), size)
    size = np.where((denominator == 0) | np.isinf(numerator), F16(np.inf), size)
    result = np.where(sign, -size, size)
    result = np.where(no_number, -F16(np.nan), result)
    result = np.where(np.isnan(denominator), denominator, result)
    return np.where(np.isnan(numerator), numerator, result)


def _turned(function: Callable[[Array], Any]) -> Callable[[Array], Array]:
    def run(value: Array) -> Array:
        wide = value.astype(F64)
        turns = np.where(np.isfinite(wide), np.fmod(wide, 1.0), np.nan)
        return np.asarray(function(turns * (2 * np.pi))).astype(F16)

    return run


def _exponent(value: Array) -> Array:
    return np.where(np.isfinite(value), np.frexp(value)[1], 0).astype(np.int32)


_FRACTION_BITS, _TAKEN = 1201, 53


@cache
def _two_over_pi() -> int:
    """The first 1201 bits of 2/pi behind the point, as an integer; pi by Machin's formula."""
    bits = _FRACTION_BITS + 64

    def inverse_tangent(denominator: int) -> int:
        power = total = (1 << bits) // denominator
        divisor, sign = 3, -1
        while power:
            power //= denominator * denominator
            total += sign * (power // divisor)
            divisor, sign = divisor + 2, -sign
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (2 << (2 * bits)) // pi >> (bits - _FRACTION_BITS)


def piece_of_two_over_pi(exponent: int, segment: int) -> float:
    """53 bits of 2/pi, at the place where a reduction of an argument needs them (`v_trig_preop_f64`).

    Args:
        exponent: Biased exponent of the argument.
        segment: Which piece, 0 to 31.
    """
    shift = _TAKEN * segment + max(0, exponent - 1077)
    left = _two_over_pi() << shift & (1 << _FRACTION_BITS) - 1
    scale = -_TAKEN - shift + (128 if exponent >= 1968 else 0)
    return float(np.ldexp(float(left >> (_FRACTION_BITS - _TAKEN)), scale))


def _pieces(value: Array, segment: Array) -> Array:
    exponents = (np.asarray(value).view(np.uint64) >> np.uint64(52)).astype(I64) & 0x7FF
    # All arguments whose exponent is small need the same piece.
    pairs = np.stack(np.broadcast_arrays(np.maximum(exponents, 1077), segment.astype(I64)), axis=-1)
    distinct, where = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    pieces = np.array([piece_of_two_over_pi(int(e), int(s)) for e, s in distinct])
    return np.asarray(pieces[where.reshape(-1)].reshape(pairs.shape[:-1]))


def _packed_accumulation(instruction: Instruction, operands: Operands) -> Step:
    """`v_pk_fmac_f16`: both halves multiplied and added to the destination."""
    if instruction.modifiers:
        raise OperandError("a modifier on v_pk_fmac_f16")
    target = operands.vector(instruction.operands[0])
    left, right = (operands.fetch(text, "u32") for text in instruction.operands[1:3])

    def step(w: Waves) -> None:
        parts = []
        for shift in (U32(0), U32(16)):
            words = [(bits >> shift).astype(U16).view(F16) for bits in (left(w), right(w), w.vector[target])]
            parts.append(fused_f16(*words))
        w.write(target, _packed(parts[0], parts[1]))

    return step


HALF: dict[str, Bind] = {
    "v_pack_b32_f16": Alu("u32", ("f16", "f16"), pure(_packed)),
    "v_div_fixup_f16": Alu("f16", ("f16",) * 3, pure(fixed_half_division), keeps_high=True),
    "v_sin_f16": Alu("f16", ("f16",), pure(_turned(np.sin))),
    "v_cos_f16": Alu("f16", ("f16",), pure(_turned(np.cos))),
    "v_frexp_exp_i16_f16": Alu("i16", ("f16",), pure(_exponent)),
    "v_minimum3_f32": Alu("f32", ("f32",) * 3, pure(least_of_three)),
    "v_maximum3_f32": Alu("f32", ("f32",) * 3, pure(greatest_of_three)),
    "v_trig_preop_f64": Alu("f64", ("f64", "u5"), pure(_pieces)),
    "v_pk_fmac_f16": _packed_accumulation,
}
"""Mnemonic without its encoding suffix, to how it is bound."""
MIXED: dict[str, Bind] = {
    "v_fma_mix_f32": _mixed("f32"),
    "v_fma_mixlo_f16": _mixed("lo"),
    "v_fma_mixhi_f16": _mixed("hi"),
}
"""The same, for those whose sources are f32 or f16 each."""
