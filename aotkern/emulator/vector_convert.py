"""Conversions between number formats; scaled ones are in `vector_scaled`.

gfx942 reads and writes the FNUZ forms of fp8 and bf8, gfx950 the OCP forms: the same mnemonics, so the architecture
decides. Whether a conversion to f16 or fp8 clamps or overflows is a bit of MODE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.formats import FNUZ_BF8, FNUZ_FP8, OCP_BF8, OCP_FP8, Format, bf16_bits, bf16_values
from aotkern.emulator.operands import Kind, OperandError, Operands
from aotkern.emulator.valu import Alu, Bind, Step, bind_alu, pure, source
from aotkern.emulator.waves import Array, Waves

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32


def small_format(arch: str, name: str) -> Format:
    """What `fp8` or `bf8` means in the mnemonics of an architecture."""
    formats = {"fp8": FNUZ_FP8, "bf8": FNUZ_BF8} if arch == "gfx942" else {"fp8": OCP_FP8, "bf8": OCP_BF8}
    return formats[name]


def _to_integer(low: int, high: int, dtype: type[np.integer[Any]]) -> Callable[[Array], Array]:
    """Truncate, saturate; a NaN becomes 0."""

    def convert(value: Array) -> Array:
        wide = np.clip(np.trunc(np.nan_to_num(value.astype(F64), nan=0.0, posinf=high, neginf=low)), low, high)
        return wide.astype(np.int64).astype(dtype)

    return convert


def to_f16(value: Array, *, clamp: bool) -> Array:
    """float32 as float16; with `clamp` a finite value never becomes infinite."""
    result = value.astype(F16)
    if clamp:
        largest = np.copysign(F16(65504), result)
        result = np.where(np.isinf(result) & np.isfinite(value), largest, result)
    return result


def towards_zero_f16(value: Array) -> Array:
    """float32 as float16, rounded towards zero."""
    near = value.astype(F16)
    too_far = np.abs(near.astype(F32)) > np.abs(value)
    return np.where(too_far, np.nextafter(near, F16(0)), near)


def _f16_from_f32(instruction: Instruction, operands: Operands) -> Step:
    plain = bind_alu(Alu("f16", ("f32",), pure(lambda v: to_f16(v, clamp=False))), instruction, operands)
    clamped = bind_alu(Alu("f16", ("f32",), pure(lambda v: to_f16(v, clamp=True))), instruction, operands)
    return lambda w: clamped(w) if w.overflow else plain(w)


def _packed(convert: Callable[[Array, bool], Array]) -> Bind:
    """Two f32 sources to two 16-bit codes of one register."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        low, high = (operands.fetch(text, "f32") for text in instruction.operands[1:3])
        if len(instruction.operands) != 3:
            raise OperandError("expected two sources")

        def step(w: Waves) -> None:
            first, second = convert(low(w), w.overflow), convert(high(w), w.overflow)
            w.write(target, np.asarray(first | (second << U32(16))))

        return step

    return bind


def f16_code(value: Array) -> Array:
    """The bits of float16, as uint32."""
    return np.asarray(value).view(np.uint16).astype(U32)


def _from_small(name: str, *, two: bool) -> Bind:
    """fp8 or bf8 to one f32, or to two of neighbouring bytes; SDWA selects the byte or the word."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        table = small_format(operands.arch, name).values().astype(F32)
        target = operands.vector(instruction.operands[0], 2 if two else 1)
        fetch = source(instruction, operands, 0, instruction.operands[1], "u32")

        def step(w: Waves) -> None:
            codes = fetch(w)
            high = table[(codes >> U32(8)) & U32(0xFF)]  # before the source may be overwritten
            w.write(target, table[codes & U32(0xFF)].view(U32))
            if two:
                w.write(target + 1, high.view(U32))

        return step

    return bind


def _to_small(name: str) -> Bind:
    """Two f32 to two bytes of one half of the destination; the other half stays."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        form = small_format(operands.arch, name)
        target = operands.vector(instruction.operands[0])
        low, high = (operands.fetch(text, "f32") for text in instruction.operands[1:3])
        shift = half_shift(instruction, 2)

        def step(w: Waves) -> None:
            first, second = (form.encode(np.asarray(part(w), F64), clamp=w.overflow) for part in (low, high))
            insert(w, target, first | (second << U32(8)), shift)

        return step

    return bind


def half_shift(instruction: Instruction, position: int) -> int:
    """Bits by which op_sel's entry for the destination shifts a 16-bit result."""
    select = instruction.bits("op_sel", ())
    return 16 if len(select) > position and select[position] else 0


def insert(w: Waves, target: int, halfword: Array, shift: int) -> None:
    """Put 16 bits into one half of a register; the other half stays."""
    keep = w.vector[target] & U32(0xFFFF0000 >> shift)
    w.write(target, keep | (halfword << U32(shift)))


def _byte(index: int) -> Alu:
    return Alu("f32", ("u32",), pure(lambda value: ((value >> U32(8 * index)) & U32(0xFF)).astype(F32)))


def _simple(result: Kind, origin: Kind, function: Callable[[Array], Any]) -> Alu:
    return Alu(result, (origin,), pure(function))


CONVERT: dict[str, Bind] = {
    "v_cvt_f32_i32": _simple("f32", "i32", lambda v: v.astype(F32)),
    "v_cvt_f32_u32": _simple("f32", "u32", lambda v: v.astype(F32)),
    "v_cvt_i32_f32": _simple("i32", "f32", _to_integer(-(2**31), 2**31 - 1, np.int32)),
    "v_cvt_u32_f32": _simple("u32", "f32", _to_integer(0, 2**32 - 1, np.uint32)),
    "v_cvt_flr_i32_f32": _simple("i32", "f32", lambda v: _to_integer(-(2**31), 2**31 - 1, np.int32)(np.floor(v))),
    "v_cvt_f64_f32": _simple("f64", "f32", lambda v: v.astype(F64)),
    "v_cvt_f32_f64": _simple("f32", "f64", lambda v: v.astype(F32)),
    "v_cvt_f64_i32": _simple("f64", "i32", lambda v: v.astype(F64)),
    "v_cvt_f64_u32": _simple("f64", "u32", lambda v: v.astype(F64)),
    "v_cvt_i32_f64": _simple("i32", "f64", _to_integer(-(2**31), 2**31 - 1, np.int32)),
    "v_cvt_u32_f64": _simple("u32", "f64", _to_integer(0, 2**32 - 1, np.uint32)),
    "v_cvt_f16_f32": _f16_from_f32,
    "v_cvt_f32_f16": _simple("f32", "f16", lambda v: v.astype(F32)),
    "v_cvt_f32_bf16": _simple("f32", "u16", bf16_values),
    "v_cvt_f16_u16": _simple("f16", "u16", lambda v: v.astype(F16)),
    "v_cvt_f16_i16": _simple("f16", "i16", lambda v: v.astype(F16)),
    "v_cvt_u16_f16": _simple("u16", "f16", _to_integer(0, 2**16 - 1, np.uint32)),
    "v_cvt_i16_f16": _simple("i16", "f16", _to_integer(-(2**15), 2**15 - 1, np.int32)),
    "v_cvt_f32_ubyte0": _byte(0),
    "v_cvt_f32_ubyte1": _byte(1),
    "v_cvt_f32_ubyte2": _byte(2),
    "v_cvt_f32_ubyte3": _byte(3),
    "v_cvt_pk_bf16_f32": _packed(lambda v, _: bf16_bits(v)),
    "v_cvt_pk_f16_f32": _packed(lambda v, clamp: f16_code(to_f16(v, clamp=clamp))),
    "v_cvt_pkrtz_f16_f32": _packed(lambda v, _: f16_code(towards_zero_f16(v))),
    "v_cvt_f32_fp8": _from_small("fp8", two=False),
    "v_cvt_f32_bf8": _from_small("bf8", two=False),
    "v_cvt_pk_f32_fp8": _from_small("fp8", two=True),
    "v_cvt_pk_f32_bf8": _from_small("bf8", two=True),
    "v_cvt_pk_fp8_f32": _to_small("fp8"),
    "v_cvt_pk_bf8_f32": _to_small("bf8"),
}
"""Mnemonic without its encoding suffix, to how it is bound."""
