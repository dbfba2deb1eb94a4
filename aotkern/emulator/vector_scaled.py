"""Conversions of gfx950 between small formats and wider ones that share a scale: fp8, bf8 and fp4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.formats import FP4, bf16_bits, bf16_values
from aotkern.emulator.operands import Fetch, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.vector_convert import f16_code, half_shift, insert, small_format
from aotkern.emulator.waves import Array, Waves

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32


def _scale(bits: Array) -> Array:
    """The scale of a scaled conversion: a power of two, of which only the exponent counts."""
    return np.asarray(np.exp2(((bits >> U32(23)) & U32(0xFF)).astype(F64) - 127.0))


def _scaled_from_small(name: str, result: str) -> Bind:
    """`v_cvt_scalef32_pk_{f32,f16,bf16}_{fp8,bf8}`: two codes of one half, times the scale."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        table = small_format(operands.arch, name).values()
        target = operands.vector(instruction.operands[0], 2 if result == "f32" else 1)
        codes, scale = (operands.fetch(text, "u32") for text in instruction.operands[1:3])
        shift = U32(half_shift(instruction, 0))

        def step(w: Waves) -> None:
            bits, factor = codes(w) >> shift, _scale(scale(w))
            low, high = ((table[(bits >> U32(at)) & U32(0xFF)] * factor).astype(F32) for at in (0, 8))
            _deliver_pair(w, target, low, high, result)

        return step

    return bind


def _scaled_from_fp4(result: str) -> Bind:
    """`v_cvt_scalef32_pk_{f32,f16,bf16}_fp4`: the two codes of the byte that `op_sel` names, times the scale."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        table = FP4.values()
        target = operands.vector(instruction.operands[0], 2 if result == "f32" else 1)
        codes, scale = (operands.fetch(text, "u32") for text in instruction.operands[1:3])
        low_bit, high_bit, *_ = instruction.bits("op_sel", (0, 0))
        shift = U32(8 * (low_bit + 2 * high_bit))

        def step(w: Waves) -> None:
            bits, factor = codes(w) >> shift, _scale(scale(w))
            low, high = ((table[(bits >> U32(at)) & U32(15)] * factor).astype(F32) for at in (0, 4))
            _deliver_pair(w, target, low, high, result)

        return step

    return bind


def _deliver_pair(w: Waves, target: int, low: Array, high: Array, result: str) -> None:
    """Two f32 as two registers, or as the halves of one."""
    if result == "f32":
        w.write(target, low.view(U32))
        w.write(target + 1, high.view(U32))
        return
    encode = bf16_bits if result == "bf16" else lambda value: f16_code(value.astype(F16))
    w.write(target, encode(low) | (encode(high) << U32(16)))


def _two_values(operands: Operands, texts: Sequence[str], origin: str) -> tuple[Fetch, Fetch]:
    """Two sources of f32, or the halves of one of f16 or bf16, as float64 or float32."""
    if origin == "f32":
        first, second = (operands.fetch(text, "f32") for text in texts)
        return first, second
    (text,) = texts
    whole = operands.fetch(text, "u32")
    if origin == "bf16":
        return (lambda w: bf16_values(whole(w))), (lambda w: bf16_values(whole(w) >> U32(16)))
    return (
        lambda w: whole(w).astype(np.uint16).view(F16),
        lambda w: (whole(w) >> U32(16)).astype(np.uint16).view(F16),
    )


def _scaled_to_small(name: str, origin: str) -> Bind:
    """`v_cvt_scalef32_pk_{fp8,bf8}_*`: two values divided by the scale, into one half of the destination."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        form = small_format(operands.arch, name)
        target = operands.vector(instruction.operands[0])
        *sources, scale_text = instruction.operands[1:]
        low, high = _two_values(operands, sources, origin)
        scale = operands.fetch(scale_text, "u32")
        shift = half_shift(instruction, len(sources) + 1)

        def step(w: Waves) -> None:
            factor = _scale(scale(w))
            first, second = (
                form.encode(np.asarray(part(w).astype(F64) / factor, F64), clamp=w.overflow) for part in (low, high)
            )
            insert(w, target, first | (second << U32(8)), shift)

        return step

    return bind


def _scaled_to_fp4(origin: str) -> Bind:
    """`v_cvt_scalef32_pk_fp4_*`: two values divided by the scale, into the byte that op_sel names."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        *sources, scale_text = instruction.operands[1:]
        low, high = _two_values(operands, sources, origin)
        scale = operands.fetch(scale_text, "u32")
        low_bit, high_bit = instruction.bits("op_sel", (0, 0, 0, 0))[2:4]
        shift = U32(8 * (low_bit + 2 * high_bit))
        keep = ~(U32(0xFF) << shift)

        def step(w: Waves) -> None:
            factor = _scale(scale(w))
            first, second = (FP4.encode(np.asarray(part(w).astype(F64) / factor), clamp=True) for part in (low, high))
            w.write(target, (w.vector[target] & keep) | ((first | (second << U32(4))) << shift))

        return step

    return bind


SCALED: dict[str, Bind] = {
    **{
        f"v_cvt_scalef32_pk_{name}_{origin}": _scaled_to_small(name, origin)
        for name in ("fp8", "bf8")
        for origin in ("f32", "f16", "bf16")
    },
    **{f"v_cvt_scalef32_pk_fp4_{origin}": _scaled_to_fp4(origin) for origin in ("f32", "f16", "bf16")},
    **{f"v_cvt_scalef32_pk_{result}_fp4": _scaled_from_fp4(result) for result in ("f32", "f16", "bf16")},
    **{
        f"v_cvt_scalef32_pk_{result}_{name}": _scaled_from_small(name, result)
        for name in ("fp8", "bf8")
        for result in ("f32", "f16", "bf16")
    },
}
"""Mnemonic without its encoding suffix, to how it is bound."""
