"""Where a wave goes next, and what has no effect in a functional emulator.

A branch is bound to a function from waves to their next program counter: one number when they agree, `(waves,)` when
they part. Program counters are offsets in the code object's image; registers hold addresses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aotkern.emulator.arena import AccessError, UnmodelledError
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.waves import EXEC, VCC, Array, Waves

I64, U64 = np.int64, np.uint64
Next = Callable[[Waves], "int | Array"]
END, BARRIER = -1, -2
"""In place of a program counter: the waves are done; the waves wait for their workgroup."""


@dataclass(frozen=True, slots=True)
class Code:
    """Where the code object's image lies: `address` is that of image offset 0."""

    address: int


_CONDITIONS: dict[str, Callable[[Waves], Array]] = {
    "s_cbranch_scc0": lambda w: ~w.scc,
    "s_cbranch_scc1": lambda w: w.scc,
    "s_cbranch_vccz": lambda w: w.scalar_u64[VCC // 2] == 0,
    "s_cbranch_vccnz": lambda w: w.scalar_u64[VCC // 2] != 0,
    "s_cbranch_execz": lambda w: w.scalar_u64[EXEC // 2] == 0,
    "s_cbranch_execnz": lambda w: w.scalar_u64[EXEC // 2] != 0,
}


def branch_target(instruction: Instruction) -> int:
    """Where a direct branch leads: its 16-bit constant counts words from the next instruction."""
    words = int(instruction.operands[0], 0) & 0xFFFF
    return instruction.end + 4 * (words - 0x10000 if words & 0x8000 else words)


def _conditional(instruction: Instruction) -> Next:
    condition = _CONDITIONS[instruction.name]
    taken, other = branch_target(instruction), instruction.end

    def after(w: Waves) -> int | Array:
        flags = condition(w)
        if flags.all():
            return taken
        return np.where(flags, taken, other) if flags.any() else other

    return after


def _agreed(places: Array) -> int | Array:
    first = int(places[0])
    return first if (places == first).all() else places


def ending(instruction: Instruction, operands: Operands, code: Code) -> Next | None:
    """How a block ends with this instruction; None when it does not."""
    name = instruction.name
    if name in _CONDITIONS:
        return _conditional(instruction)
    if name == "s_branch":
        target = branch_target(instruction)
        return lambda _: target
    if name == "s_endpgm":
        return lambda _: END
    if name == "s_barrier":
        return lambda _: BARRIER
    if name == "s_call_b64":
        return _called(instruction, operands, code)
    if name in ("s_setpc_b64", "s_swappc_b64"):
        source = operands.scalar(instruction.operands[-1], 2) // 2
        back = operands.scalar(instruction.operands[0], 2) // 2 if name == "s_swappc_b64" else None

        def jump(w: Waves) -> int | Array:
            places = (w.scalar_u64[source] - U64(code.address)).view(I64)
            if back is not None:
                w.scalar_u64[back] = U64(code.address + instruction.end)
            return _agreed(places)

        return jump
    return None


def called(instruction: Instruction) -> int:
    """Where `s_call_b64` leads."""
    words = int(instruction.operands[1], 0) & 0xFFFF
    return instruction.end + 4 * (words - 0x10000 if words & 0x8000 else words)


def _called(instruction: Instruction, operands: Operands, code: Code) -> Next:
    back = operands.scalar(instruction.operands[0], 2) // 2
    target = called(instruction)

    def call(w: Waves) -> int:
        w.scalar_u64[back] = U64(code.address + instruction.end)
        return target

    return call


def program_counter(instruction: Instruction, operands: Operands, code: Code) -> Step:
    """`s_getpc_b64`: the address of the next instruction."""
    target = operands.scalar(instruction.operands[0], 2) // 2
    value = U64(code.address + instruction.end)

    def step(w: Waves) -> None:
        w.scalar_u64[target] = value

    return step


_FIELD = re.compile(r"hwreg\((\w+)(?:, (\d+), (\d+))?\)")
_OVERFLOW_BIT = 23
_MODE_FIXED = {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}
"""Bits of MODE that must stay as they are: round to nearest even, denormals kept."""


def set_register(instruction: Instruction, operands: Operands) -> Step:
    """`s_setreg`: only MODE, and there only what is modelled."""
    match = _FIELD.fullmatch(instruction.operands[0])
    if match is None or match[1] != "HW_REG_MODE":
        raise OperandError(f"write to {instruction.operands[0]}")
    start, size = int(match[2] or 0), int(match[3] or 32)
    if instruction.name == "s_setreg_imm32_b32":
        constant = np.array([int(instruction.operands[1], 0) & 0xFFFFFFFF], np.uint32)
        fetch: Callable[[Waves], Array] = lambda _: constant  # noqa: E731
    else:
        fetch = operands.fetch_scalar(instruction.operands[1], "u32")

    def step(w: Waves) -> None:
        values = np.unique(fetch(w))
        if len(values) != 1:
            raise UnmodelledError("waves that execute together set MODE differently")
        for bit in range(start, start + size):
            flag = int(values[0]) >> (bit - start) & 1
            if bit == _OVERFLOW_BIT:
                w.overflow = bool(flag)
            elif _MODE_FIXED.get(bit, flag) != flag:
                raise UnmodelledError(f"bit {bit} of MODE set to {flag}: rounding and denormal modes are not modelled")

    return step


_READABLE = ("HW_REG_MODE", "HW_REG_HW_ID", "HW_REG_XCC_ID")
_MODE = 0xF0 | 1 << 8 | 1 << 9
"""MODE as waves have it: denormals, DX10 clamp and IEEE on; the overflow bit is each wave's."""


def get_register(instruction: Instruction, operands: Operands) -> Step:
    """`s_getreg`: MODE as it is; which unit runs the wave is always the first one."""
    match = _FIELD.fullmatch(instruction.operands[1])
    if match is None or match[1] not in _READABLE:
        raise OperandError(f"read of {instruction.operands[1]}, which is not modelled")
    start, size = int(match[2] or 0), int(match[3] or 32)
    register = operands.scalar(instruction.operands[0])
    mode = match[1] == "HW_REG_MODE"

    def step(w: Waves) -> None:
        whole = _MODE | int(w.overflow) << _OVERFLOW_BIT if mode else 0
        w.scalar[register // 2, :, register % 2] = whole >> start & (1 << size) - 1

    return step


_ticks = itertools.count(1)


def clock(instruction: Instruction, operands: Operands) -> Step:
    """`s_memtime` and `s_memrealtime`: a number that grows with every reading and says nothing about time."""
    pair = operands.scalar(instruction.operands[0], 2) // 2

    def step(w: Waves) -> None:
        w.scalar_u64[pair] = U64(next(_ticks))

    return step


def _stopped(reason: str, kind: type[AccessError] = AccessError) -> Bind:
    """What ends a launch when it is executed, and does no harm where it is not."""

    def bind(_: Instruction, __: Operands) -> Step:
        def step(_: Waves) -> None:
            raise kind(reason)

        return step

    return bind


def _nothing(_: Instruction, __: Operands) -> Step:
    return lambda _: None


_WITHOUT_EFFECT = (
    "s_nop",
    "s_waitcnt",
    "s_sleep",
    "s_sethalt",
    "s_wakeup",
    "s_incperflevel",
    "s_decperflevel",
    "s_dcache_inv_vol",
    "s_dcache_wb_vol",
    "s_setprio",
    "s_icache_inv",
    "s_dcache_inv",
    "s_dcache_wb",
    "s_ttracedata",
    "buffer_inv",
    "buffer_wbl2",
    "v_nop",
)

CONTROL: dict[str, Bind] = {
    **dict.fromkeys(_WITHOUT_EFFECT, _nothing),
    "s_setreg_imm32_b32": set_register,
    "s_setreg_b32": set_register,
    "s_getreg_b32": get_register,
    "s_memtime": clock,
    "s_memrealtime": clock,
    "s_trap": _stopped("the code stops itself here (a trap: a failed assertion, or a place that is never reached)"),
    "s_sendmsg": _stopped("a message to the host: host calls are not modelled", UnmodelledError),
    "s_sendmsghalt": _stopped("a message to the host: host calls are not modelled", UnmodelledError),
}
"""Mnemonic, to how it is bound; what ends a block is in `ending`."""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT)
