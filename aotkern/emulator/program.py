"""Code as bound basic blocks: each is decoded once, when a wave first comes there."""

from __future__ import annotations

from dataclasses import dataclass

from aotkern.emulator.control import Code, Next, ending, program_counter
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.table import bind
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import Waves
from aotkern.errors import EmulatorError
from aotkern.target import Target


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that always run one after another.

    Attributes:
        instructions: All of them, with the one that ends the block.
        steps: What each does, without the one that ends the block.
        after: Where the waves go next.
    """

    instructions: tuple[Instruction, ...]
    steps: tuple[Step, ...]
    after: Next


class Program:
    """The text of a kernel, decoded block by block.

    Args:
        image: The code object's image; offsets in it are program counters.
        start: Where the text begins.
        end: Where it ends.
        target: Whose instructions these are.
        operands: What the kernel declares.
        code: Where the image lies.
    """

    def __init__(self, image: bytes, start: int, end: int, target: Target, operands: Operands, code: Code) -> None:
        self._start, self._end = start, end
        self._listing = listing(image[start:end], target, start)
        self._operands, self._code = operands, code
        self.blocks: dict[int, Block] = {}

    def block(self, pc: int) -> Block:
        """The block that begins at an offset.

        Raises:
            EmulatorError: It leaves the text, or something in it cannot be decoded or bound.
        """
        known = self.blocks.get(pc)
        if known is None:
            known = self.blocks[pc] = self._decoded(pc)
        return known

    def _decoded(self, pc: int) -> Block:
        instructions: list[Instruction] = []
        steps: list[Step] = []
        while True:
            if not self._start <= pc < self._end or pc % 4:
                raise EmulatorError("the code runs out of its text", pc)
            instruction = self._listing.at(pc)
            instructions.append(instruction)
            pc = instruction.end
            try:
                step, after = bound(instruction, self._operands, self._code)
                if after is not None:
                    return Block(tuple(instructions), tuple(steps), after)
                steps.append(step)
            except (OperandError, ValueError, KeyError, IndexError) as error:
                raise EmulatorError(f"{error}", instruction.pc, instruction.text) from error


def bound(instruction: Instruction, operands: Operands, code: Code) -> tuple[Step, Next | None]:
    """What an instruction does, and how it ends its block; None when the block goes on.

    Raises:
        OperandError: The emulator does not know it, a modifier or an operand of it.
        ValueError, KeyError, IndexError: It is spelt as no compiler spells it.
    """
    after = ending(instruction, operands, code)
    if after is not None:
        return _nothing, after
    if instruction.name == "s_getpc_b64":
        return program_counter(instruction, operands, code), None
    return bind(instruction, operands), None


def _nothing(_: Waves) -> None:
    """The step of what ends a block."""
