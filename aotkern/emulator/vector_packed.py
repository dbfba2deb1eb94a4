"""Packed instructions (VOP3P): two f32 of a register pair, two 16-bit values of a register, and dot products.

`op_sel` and `op_sel_hi` choose which half of each source goes into the lower and the upper result; `neg_lo` and
`neg_hi` negate it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.formats import bf16_values
from aotkern.emulator.operands import Constant, Fetch, OperandError, Operands, Register
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.vector_float import fused, fused_f16
from aotkern.emulator.vector_half import clamped, greatest_of_three, least_of_three
from aotkern.emulator.waves import Array, Waves

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32
Operation = Callable[..., Any]


def _halves(instruction: Instruction, count: int) -> tuple[tuple[int, ...], ...]:
    """op_sel, op_sel_hi, neg_lo, neg_hi, each with one entry a source."""
    zero, one = (0,) * count, (1,) * count
    names = (("op_sel", zero), ("op_sel_hi", one), ("neg_lo", zero), ("neg_hi", zero))
    return tuple(instruction.bits(name, default) for name, default in names)


def _pair_half(operands: Operands, text: str, half: int, *, negate: bool) -> Fetch:
    """One f32 of a register pair; a constant has only its lower half."""
    found = operands.resolve(text)
    if isinstance(found, Constant):
        plain = operands.fetch(text, "f32")
    elif isinstance(found, Register) and found.count == 2:
        place = found.first + half
        if found.file == "v":
            plain = lambda w: w.vector_f32[place]  # noqa: E731
        else:
            at = (place // 2, slice(None), place % 2, None)
            plain = lambda w: w.scalar_f32[at]  # noqa: E731
    else:
        raise OperandError(f"expected a register pair, found {text}")
    return (lambda w: np.negative(plain(w))) if negate else plain


def _packed_f32(operation: Operation) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], 2)
        texts = instruction.operands[1:]
        select, select_high, negate, negate_high = _halves(instruction, len(texts))
        lows = [_pair_half(operands, t, h, negate=bool(n)) for t, h, n in zip(texts, select, negate, strict=True)]
        highs = [
            _pair_half(operands, t, h, negate=bool(n)) for t, h, n in zip(texts, select_high, negate_high, strict=True)
        ]

        clamp = instruction.modifier("clamp") is not None

        def step(w: Waves) -> None:
            low = operation(*[fetch(w) for fetch in lows])
            high = operation(*[fetch(w) for fetch in highs])
            if clamp:
                low, high = clamped(low), clamped(high)
            np.copyto(w.vector_f32[target], low, where=w.mask)
            np.copyto(w.vector_f32[target + 1], high, where=w.mask)

        return step

    return bind


def _move_pair(instruction: Instruction, operands: Operands) -> Step:
    """`v_pk_mov_b32`: a half of the first source, then a half of the second; `op_sel` chooses both."""
    if instruction.modifier("clamp") is not None:
        raise OperandError("clamp on a move")
    target = operands.vector(instruction.operands[0], 2)
    select, *_ = _halves(instruction, 2)
    low = _pair_half(operands, instruction.operands[1], select[0], negate=False)
    high = _pair_half(operands, instruction.operands[2], select[1], negate=False)

    def step(w: Waves) -> None:
        first, second = np.copy(low(w)), np.copy(high(w))
        np.copyto(w.vector_f32[target], first, where=w.mask)
        np.copyto(w.vector_f32[target + 1], second, where=w.mask)

    return step


def _word(whole: Fetch, half: int, *, negate: bool, real: bool, signed: bool) -> Fetch:
    """One 16-bit half of a source: a float16, or a 32-bit integer extended by zeros or its sign."""
    shift = U32(16 * half)

    def fetch(w: Waves) -> Array:
        bits = (whole(w) >> shift) & U32(0xFFFF)
        if real:
            value = bits.astype(np.uint16).view(F16)
            return np.asarray(np.negative(value) if negate else value)
        return np.asarray(bits.astype(np.uint16).view(np.int16).astype(np.int32) if signed else bits)

    return fetch


def _whole(operands: Operands, text: str, *, real: bool) -> Fetch:
    """A source of two halves; a float constant is an f16 in the lower one, and zero in the upper one."""
    found = operands.resolve(text)
    if not isinstance(found, Constant) or "." not in text:
        return operands.fetch(text, "u32")
    if not real:
        raise OperandError("a float constant in a packed integer instruction")
    fixed = np.array(found.bits("u16"), U32)
    return lambda _: fixed


def _packed_words(operation: Operation, *, real: bool = False, signed: bool = False) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        texts = instruction.operands[1:]
        wholes = [_whole(operands, text, real=real) for text in texts]
        clamp = instruction.modifier("clamp") is not None
        least, most = (-(1 << 15), (1 << 15) - 1) if signed else (0, (1 << 16) - 1)

        def compute(fetches: list[Fetch], w: Waves) -> Array:
            values = [fetch(w) for fetch in fetches]
            if not clamp:
                return np.asarray(operation(*values))
            if real:
                return clamped(np.asarray(operation(*values)))
            return np.asarray(np.clip(operation(*[value.astype(np.int64) for value in values]), least, most))

        select, select_high, negate, negate_high = _halves(instruction, len(texts))
        lows, highs = (
            [
                _word(whole, half, negate=bool(sign), real=real, signed=signed)
                for whole, half, sign in zip(wholes, halves, signs, strict=True)
            ]
            for halves, signs in ((select, negate), (select_high, negate_high))
        )

        def code(value: Array) -> Array:
            bits = value.view(np.uint16).astype(U32) if real else value.astype(np.int64).astype(U32)
            return np.asarray(bits & U32(0xFFFF))

        def step(w: Waves) -> None:
            low, high = code(compute(lows, w)), code(compute(highs, w))
            w.write(target, low | (high << U32(16)))

        return step

    return bind


def _by(operation: Operation, bits: int = 15) -> Operation:
    """A reversed shift: the amount is the first source."""
    return lambda by, value: operation(value, by & bits)


def _dot(parse: Callable[[Array], tuple[Array, ...]], *, accumulates: bool) -> Bind:
    """A dot product of the small values in one register with those of another, added to a third or the result."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        texts = instruction.operands[1:3]
        addend_text = instruction.operands[0] if accumulates else instruction.operands[3]
        left, right = (operands.fetch(text, "u32") for text in texts)
        integer = "_i32_" in instruction.name or "_u32_" in instruction.name
        signed = "_i32_" in instruction.name
        low, high = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        clamp = instruction.modifier("clamp") is not None
        addend = operands.fetch(addend_text, ("i32" if signed else "u32") if integer else "f32")

        def step(w: Waves) -> None:
            products = [a * b for a, b in zip(parse(left(w)), parse(right(w)), strict=True)]
            total = sum(products[1:], products[0]) + addend(w)
            if clamp:
                total = np.clip(total, low, high) if integer else clamped(total)
            result = total.astype(np.int64).astype(U32) if integer else total.astype(F32).view(U32)
            w.write(target, result)

        return step

    return bind


def _bf16_pair(bits: Array) -> tuple[Array, ...]:
    return bf16_values(bits).astype(F64), (bits & U32(0xFFFF0000)).view(F32).astype(F64)


def _f16_pair(bits: Array) -> tuple[Array, ...]:
    return tuple(((bits >> U32(at)) & U32(0xFFFF)).astype(np.uint16).view(F16).astype(F64) for at in (0, 16))


def _short_pair(bits: Array) -> tuple[Array, ...]:
    return tuple(((bits >> U32(at)) & U32(0xFFFF)).astype(np.uint16).view(np.int16).astype(np.int64) for at in (0, 16))


def _plain_short_pair(bits: Array) -> tuple[Array, ...]:
    return tuple(((bits >> U32(at)) & U32(0xFFFF)).astype(np.int64) for at in (0, 16))


def _nibbles(bits: Array) -> tuple[Array, ...]:
    return tuple(((bits >> U32(at)) & U32(15)).astype(np.int64) for at in range(0, 32, 4))


def _signed_nibbles(bits: Array) -> tuple[Array, ...]:
    return tuple((part ^ 8) - 8 for part in _nibbles(bits))


def _signed_bytes(bits: Array) -> tuple[Array, ...]:
    return tuple(value.astype(np.uint8).view(np.int8).astype(np.int64) for value in _plain_bytes(bits))


def _plain_bytes(bits: Array) -> tuple[Array, ...]:
    return tuple(((bits >> U32(at)) & U32(0xFF)).astype(np.int64) for at in (0, 8, 16, 24))


PACKED: dict[str, Bind] = {
    "v_pk_add_f32": _packed_f32(np.add),
    "v_pk_mul_f32": _packed_f32(np.multiply),
    "v_pk_fma_f32": _packed_f32(fused),
    "v_pk_mov_b32": _move_pair,
    "v_pk_add_f16": _packed_words(np.add, real=True),
    "v_pk_mul_f16": _packed_words(np.multiply, real=True),
    "v_pk_fma_f16": _packed_words(fused_f16, real=True),
    "v_pk_min_f16": _packed_words(np.fmin, real=True),
    "v_pk_max_f16": _packed_words(np.fmax, real=True),
    "v_pk_minimum3_f16": _packed_words(least_of_three, real=True),
    "v_pk_maximum3_f16": _packed_words(greatest_of_three, real=True),
    "v_pk_add_u16": _packed_words(np.add),
    "v_pk_sub_u16": _packed_words(np.subtract),
    "v_pk_add_i16": _packed_words(np.add, signed=True),
    "v_pk_sub_i16": _packed_words(np.subtract, signed=True),
    "v_pk_mul_lo_u16": _packed_words(np.multiply),
    "v_pk_mad_u16": _packed_words(lambda a, b, c: a * b + c),
    "v_pk_mad_i16": _packed_words(lambda a, b, c: a * b + c, signed=True),
    "v_pk_min_u16": _packed_words(np.minimum),
    "v_pk_max_u16": _packed_words(np.maximum),
    "v_pk_min_i16": _packed_words(np.minimum, signed=True),
    "v_pk_max_i16": _packed_words(np.maximum, signed=True),
    "v_pk_lshlrev_b16": _packed_words(_by(np.left_shift)),
    "v_pk_lshrrev_b16": _packed_words(_by(np.right_shift)),
    "v_pk_ashrrev_i16": _packed_words(_by(np.right_shift), signed=True),
    "v_dot2_f32_f16": _dot(_f16_pair, accumulates=False),
    "v_dot2_f32_bf16": _dot(_bf16_pair, accumulates=False),
    "v_dot2c_f32_f16": _dot(_f16_pair, accumulates=True),
    "v_dot2c_f32_bf16": _dot(_bf16_pair, accumulates=True),
    "v_dot4_i32_i8": _dot(_signed_bytes, accumulates=False),
    "v_dot4c_i32_i8": _dot(_signed_bytes, accumulates=True),
    "v_dot4_u32_u8": _dot(_plain_bytes, accumulates=False),
    "v_dot2_i32_i16": _dot(_short_pair, accumulates=False),
    "v_dot2c_i32_i16": _dot(_short_pair, accumulates=True),
    "v_dot2_u32_u16": _dot(_plain_short_pair, accumulates=False),
    "v_dot8_i32_i4": _dot(_signed_nibbles, accumulates=False),
    "v_dot8c_i32_i4": _dot(_signed_nibbles, accumulates=True),
    "v_dot8_u32_u4": _dot(_nibbles, accumulates=False),
}
"""Mnemonic without its encoding suffix, to how it is bound."""
