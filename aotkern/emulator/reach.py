"""Which instructions of a code object a launch can come to, and which of them it did not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aotkern.emulator.control import branch_target
from aotkern.emulator.disassembler import Instruction, Listing, listing
from aotkern.emulator.kernel import Kernel
from aotkern.errors import EmulatorError

_PRELOAD_ENTRY = 256
_ENDS = ("s_endpgm", "s_setpc_b64", "s_trap")


@dataclass(frozen=True, slots=True)
class Gap:
    """Instructions that lie one after another and never ran.

    Attributes:
        first: Offset of the first one, in the code object's image.
        last: Offset of the last one.
        count: How many they are.
        text: The first one, as the disassembler spells it.
    """

    first: int
    last: int
    count: int
    text: str

    def __str__(self) -> str:
        more = f" and {self.count - 1} more up to {self.last:#x}" if self.count > 1 else ""
        return f"{self.first:#x} {self.text}{more}"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a launch can come to: every path from the kernel's entries, both ways at each conditional branch.

    Attributes:
        instructions: Offset and text of each instruction, ascending.
        complete: Whether every jump could be followed; if not, what lies behind one is here only if it ran.
    """

    instructions: tuple[tuple[int, str], ...]
    complete: bool

    def gaps(self, ran: Collection[int]) -> tuple[Gap, ...]:
        """The instructions that are not among `ran`, neighbours together."""
        found: list[Gap] = []
        open_gap = False
        for pc, text in self.instructions:
            if pc in ran:
                open_gap = False
            elif open_gap:
                last = found.pop()
                found.append(Gap(last.first, pc, last.count + 1, last.text))
            else:
                found.append(Gap(pc, pc, 1, text))
                open_gap = True
        return tuple(found)


def reach(code: bytes, ran: Collection[int] = ()) -> Reach:
    """Follow the code.

    Args:
        code: An HSACO.
        ran: Offsets of instructions that were executed: they count as reachable, behind whatever jump they lie.

    Raises:
        IntegrityError: Not an HSACO of a known architecture with exactly one kernel.
        MissingToolError: The decoder is not installed.
    """
    kernel = Kernel.read(code)
    first, last = kernel.text
    text = listing(kernel.image[first:last], kernel.target, first)
    entries = [kernel.entry]
    if kernel.descriptor.preload_dwords:
        entries.append(kernel.entry + _PRELOAD_ENTRY)
    known: dict[int, str] = {}
    complete = True
    todo = [*entries, *ran]
    while todo:
        pc = todo.pop()
        if pc in known:
            continue
        instruction = _decoded(text, kernel, pc)
        if instruction is None:
            continue
        known[pc] = instruction.text
        complete = complete and instruction.name not in ("s_setpc_b64", "s_swappc_b64")
        todo.extend(_successors(instruction))
    return Reach(tuple(sorted(known.items())), complete)


def _decoded(text: Listing, kernel: Kernel, pc: int) -> Instruction | None:
    if not kernel.text[0] <= pc < kernel.text[1]:
        return None
    try:
        return text.at(pc)
    except EmulatorError:  # it cannot run either; `audit static` reports it
        return None


def _successors(instruction: Instruction) -> tuple[int, ...]:
    if instruction.name == "s_branch":
        return (branch_target(instruction),)
    if instruction.name.startswith("s_cbranch_"):
        return instruction.end, branch_target(instruction)
    return () if instruction.name in _ENDS else (instruction.end,)
