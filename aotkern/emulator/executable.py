"""Which instructions of a code object the emulator cannot execute, found by binding all of them without running any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aotkern.emulator.control import Code
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.program import bound
from aotkern.errors import EmulatorError


@dataclass(frozen=True, slots=True, order=True)
class Unknown:
    """A kind of instruction that cannot be executed.

    Attributes:
        mnemonic: Its mnemonic, with the encoding suffix.
        reason: What the emulator does not know about it.
        instruction: The first of its kind, as the disassembler spells it.
        pc: Where that one stands in the code object's image.
        count: How many there are.
    """

    mnemonic: str
    reason: str
    instruction: str
    pc: int
    count: int


def unknown(code: bytes, where: str = "code object") -> tuple[Unknown, ...]:
    """What in an HSACO's text cannot be executed, by mnemonic and reason. Bytes that are no instruction do not count.

    Raises:
        IntegrityError: Not an HSACO of a known architecture with exactly one kernel.
        MissingToolError: The decoder is not installed.
    """
    kernel = Kernel.read(code, where)
    operands = Operands(kernel.vgprs, kernel.agprs, arch=kernel.target.arch)
    start, end = kernel.text
    whole = listing(kernel.image[start:end], kernel.target, start)
    first: dict[tuple[str, str], Instruction] = {}
    counts: Counter[tuple[str, str]] = Counter()
    at = start
    while at < end:
        try:
            instruction = whole.at(at)
        except EmulatorError:  # no instruction: the static walk tells, where code leads there
            at += 4
            continue
        at = instruction.end
        reason = _refusal(instruction, operands)
        if reason is not None:
            kind = instruction.mnemonic, reason
            first.setdefault(kind, instruction)
            counts[kind] += 1
    return _sorted(first, counts)


def _refusal(instruction: Instruction, operands: Operands) -> str | None:
    try:
        bound(instruction, operands, Code(0))
    except (OperandError, ValueError, KeyError, IndexError) as error:
        return f"{error}"
    return None


def _sorted(first: Mapping[tuple[str, str], Instruction], counts: Mapping[tuple[str, str], int]) -> tuple[Unknown, ...]:
    made = [Unknown(*kind, one.text, one.pc, counts[kind]) for kind, one in first.items()]
    return tuple(sorted(made))
