"""Code addresses in scalar registers, followed without running the code: targets of calls and long branches.

Only what compilers use for them is followed: the program counter, additions with constants, moves, and the lanes of a
vector register in which a function keeps its return address. Everything else that is written becomes unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Constant, OperandError, Operands, Register
from aotkern.emulator.waves import SCALARS

Place = int | tuple[int, int]
"""A scalar register by its number, or a lane of a vector register."""
Values = dict[Place, int]
_CARRY = -1  # in place of a register: SCC after an addition of known values
_M32 = 0xFFFFFFFF


class Constants:
    """Follows values through instructions, for the registers that a kernel declares."""

    def __init__(self, operands: Operands) -> None:
        self._operands = operands

    def address(self, text: str, values: Values) -> int | None:
        """The value of a register pair, when it is known."""
        first = self._scalar(text)
        if first is None:
            return None
        low, high = values.get(first), values.get(first + 1)
        return None if low is None or high is None else low | high << 32

    def follow(self, instruction: Instruction, writes: Iterable[int], values: Values) -> None:
        """Change what is known by one instruction."""
        made = self._made(instruction, values)
        if instruction.name == "v_writelane_b32":  # of all lanes it sets one
            values.pop(self._lane(instruction.operands[0], instruction.operands[2]) or -2, None)
        else:
            _forget(writes, values)
        if _CARRY in values and _CARRY not in made and _may_set_carry(instruction):
            del values[_CARRY]
        values |= made

    def _made(self, instruction: Instruction, values: Values) -> Values:
        name, texts = instruction.name, instruction.operands
        if name in ("s_getpc_b64", "s_swappc_b64", "s_call_b64"):
            return self._pair(texts[0], instruction.end)
        if name == "s_mov_b64":
            known = self.address(texts[1], values)
            return {} if known is None else self._pair(texts[0], known)
        if name in ("s_mov_b32", "v_readlane_b32", "v_writelane_b32"):
            return self._moved(name, texts, values)
        if name in ("s_add_u32", "s_addc_u32"):
            return self._added(name, texts, values)
        return {}

    def _pair(self, text: str, value: int) -> Values:
        first = self._scalar(text)
        return {} if first is None else {first: value & _M32, first + 1: value >> 32}

    def _moved(self, name: str, texts: tuple[str, ...], values: Values) -> Values:
        if name == "v_readlane_b32":
            origin, target = self._lane(texts[1], texts[2]), self._scalar(texts[0])
            value = None if origin is None else values.get(origin)
            return {} if value is None or target is None else {target: value}
        place = self._lane(texts[0], texts[2]) if name == "v_writelane_b32" else self._scalar(texts[0])
        value = self._value(texts[1], values)
        return {} if value is None or place is None else {place: value}

    def _added(self, name: str, texts: tuple[str, ...], values: Values) -> Values:
        target = self._scalar(texts[0])
        left, right = (self._value(text, values) for text in texts[1:3])
        carry = 0 if name == "s_add_u32" else values.get(_CARRY)
        if target is None or left is None or right is None or carry is None:
            return {}
        total = left + right + carry
        return {target: total & _M32, _CARRY: total >> 32}

    def _value(self, text: str, values: Values) -> int | None:
        try:
            found = self._operands.resolve(text)
        except OperandError:
            return None
        if isinstance(found, Constant):
            return found.bits("u32")
        return values.get(found.first) if isinstance(found, Register) and found.file == "s" else None

    def _scalar(self, text: str) -> int | None:
        try:
            found = self._operands.resolve(text)
        except OperandError:
            return None
        return found.first if isinstance(found, Register) and found.file == "s" else None

    def _lane(self, register: str, lane: str) -> tuple[int, int] | None:
        try:
            return self._operands.vector(register), int(lane, 0)
        except (OperandError, ValueError):
            return None


def _forget(writes: Iterable[int], values: Values) -> None:
    """What is written becomes unknown: a scalar register, or every lane of a vector register."""
    for register in writes:
        values.pop(register, None)
        if register >= SCALARS:
            for place in [place for place in values if isinstance(place, tuple) and place[0] == register - SCALARS]:
                del values[place]


def _may_set_carry(instruction: Instruction) -> bool:
    """Whether SCC may change: any scalar arithmetic but moves."""
    return instruction.name.startswith("s_") and not instruction.name.startswith(
        ("s_mov", "s_getpc", "s_load", "s_nop", "s_waitcnt", "s_cbranch", "s_branch", "s_cselect", "s_barrier")
    )
