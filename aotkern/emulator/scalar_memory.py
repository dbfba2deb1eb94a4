"""Scalar loads, from the kernel arguments, the code object and the given buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aotkern.emulator.access import Transfer, gather
from aotkern.emulator.arena import AccessError
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.waves import EXEC, Array, Waves

U32, U64 = np.uint32, np.uint64
SCALAR_MEMORY_MODIFIERS = frozenset(("glc", "offset"))


def _offset(instruction: Instruction, operands: Operands) -> Callable[[Waves], Array]:
    """The third operand, a constant or a scalar register, and the constant beside a register."""
    text = instruction.operands[2]
    extra = np.array(instruction.number("offset"), np.int64).view(U64)
    if text.lstrip("-").isdigit() or text.startswith(("0x", "-0x")):
        fixed = np.array(int(text, 0), np.int64).view(U64) + extra
        return lambda _: fixed
    fetch = operands.fetch_scalar(text, "u32")
    return lambda w: fetch(w).astype(U64) + extra


def _store(w: Waves, target: int, values: Array) -> None:
    for index, value in enumerate(values):
        register = target + index
        w.scalar[register // 2, :, register % 2] = value
    if target <= EXEC + 1 < target + len(values) + 1:
        w.exec_changed()


def _load(count: int) -> Bind:
    transfer = Transfer(4, count)

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.scalar(instruction.operands[0], count)
        base = operands.scalar(instruction.operands[1], 2) // 2
        offset = _offset(instruction, operands)

        def step(w: Waves) -> None:
            # Scalar loads ignore the two low bits of an address.
            address = (w.scalar_u64[base] + offset(w)) & ~U64(3)
            _store(w, target, gather(w.arena, address, True, transfer))

        return step

    return bind


def _buffer_load(count: int) -> Bind:
    transfer = Transfer(4, count)

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.scalar(instruction.operands[0], count)
        pair = operands.scalar(instruction.operands[1], 4) // 2
        offset = _offset(instruction, operands)
        if target >= EXEC - 16:
            raise OperandError("scalar buffer load into special registers")

        def step(w: Waves) -> None:
            low, high = w.scalar_u64[pair], w.scalar_u64[pair + 1]
            place = offset(w)
            if ((place + U64(4 * count)) > (high & U64(0xFFFFFFFF))).any():
                raise AccessError("scalar buffer load beyond its records")
            address = ((low & U64(0xFFFF_FFFF_FFFF)) + place) & ~U64(3)
            _store(w, target, gather(w.arena, address, True, transfer))

        return step

    return bind


_COUNTS = {"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}

SCALAR_MEMORY: dict[str, Bind] = {
    **{f"s_load_{name}": _load(count) for name, count in _COUNTS.items()},
    **{f"s_buffer_load_{name}": _buffer_load(count) for name, count in _COUNTS.items()},
}
"""Mnemonic, to how it is bound."""
