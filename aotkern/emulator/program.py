"""Code as bound basic blocks: each is decoded once, when a wave first comes there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aotkern.emulator.control import Code, Next, ending, program_counter
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.errors import UnsupportedError
from aotkern.emulator.operands import OperandError, Operands, UndeclaredError
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
        poll: The last instruction with which a wave may wait for another one's store, if there is one.
    """

    instructions: tuple[Instruction, ...]
    steps: tuple[Step, ...]
    after: Next
    poll: Instruction | None = None


def _polls(instruction: Instruction) -> bool:
    """Whether an instruction gets a value that other waves may change at any time: atomics, coherent loads."""
    name = instruction.name
    if "_atomic_" in name or name.startswith(("ds_cmpst_rtn", "ds_wrxchg_rtn")):
        return True
    coherent = instruction.modifier("sc0") is not None or instruction.modifier("sc1") is not None
    return coherent and name.startswith(("global_load", "flat_load", "buffer_load"))


class Wrap(Protocol):
    """What stands around the code of a program."""

    def step(self, instruction: Instruction, step: Step) -> Step:
        """Around the step of an instruction."""

    def end(self, instruction: Instruction, after: Next) -> Next:
        """Around the end of a block."""


class Program:
    """The text of a kernel, decoded block by block.

    Args:
        image: The code object's image; offsets in it are program counters.
        start: Where the text begins.
        end: Where it ends.
        target: Whose instructions these are.
        operands: What the kernel declares.
        code: Where the image lies.
        wrap: What stands around each step, and around the end of each block.
    """

    def __init__(
        self,
        image: bytes,
        start: int,
        end: int,
        target: Target,
        operands: Operands,
        code: Code,
        wrap: Wrap | None = None,
    ) -> None:
        self._wrap = wrap
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
                    poll = next((one for one in reversed(instructions) if _polls(one)), None)
                    if self._wrap is not None:
                        after = self._wrap.end(instruction, after)
                    return Block(tuple(instructions), tuple(steps), after, poll)
                if self._wrap is not None and instruction.name != "s_getpc_b64":
                    step = self._wrap.step(instruction, step)
                steps.append(step)
            except UndeclaredError as error:
                raise EmulatorError(f"{error}", instruction.pc, instruction.text) from error
            except (OperandError, ValueError, KeyError, IndexError) as error:
                raise UnsupportedError(f"{error}", instruction.pc, instruction.text) from error


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
