"""Why a launch in the emulator was given up, or what waves did to each other: typed, without numpy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aotkern.errors import EmulatorError


class UndecidedError(EmulatorError):
    """The emulator gave a launch up before it could tell whether the code is right."""


class LimitError(UndecidedError):
    """A launch ran more instructions, or for more seconds, than it was allowed."""


class UnsupportedError(UndecidedError):
    """The code asks for what the emulator does not know: an instruction, an operand, a mode, a host call."""


class WaitingError(UndecidedError):
    """Waves only wait for others, and no wave is left that could end their wait.

    Attributes:
        spins: The places where they spin: offset in the image, the instruction that polls, the waves.
        workgroups: Workgroups that are alive.
        unstarted: Workgroups that never started.
    """

    def __init__(self, spins: Iterable[tuple[int, str, tuple[int, ...]]], workgroups: int, unstarted: int) -> None:
        self.spins, self.workgroups, self.unstarted = tuple(spins), workgroups, unstarted
        places = "; ".join(f"{_numbers('wave', waves)} at {pc:#x} ({text})" for pc, text, waves in self.spins)
        alone = "1 workgroup waits for what never comes"
        who = alone if workgroups == 1 else f"{workgroups} workgroups wait for each other"
        super().__init__(f"{who} and {unstarted} never started: {places or 'all at barriers'}")

    def __reduce__(self) -> Any:
        return type(self), (self.spins, self.workgroups, self.unstarted)


class MissingWaitError(EmulatorError):
    """An instruction touches a register whose load is still outstanding.

    Attributes:
        register: The register, as the disassembler spells it.
        load: Offset of the load in the image.
        load_text: The load as the disassembler spells it.
        counter: The counter that should have been waited for.
    """

    def __init__(self, register: str, load: int, load_text: str, counter: str, pc: int, instruction: str) -> None:
        self.register, self.load, self.load_text, self.counter = register, load, load_text, counter
        reason = f"{register} is used before a wait for {counter} of {load_text} at {load:#x}"
        super().__init__(reason, pc, instruction)

    def __reduce__(self) -> Any:
        given = (self.register, self.load, self.load_text, self.counter, self.pc, self.instruction)
        return type(self), given


@dataclass(frozen=True, slots=True)
class Touch:
    """One side of a race.

    Attributes:
        pc: Offset of the instruction in the image.
        instruction: As the disassembler spells it.
        writes: Whether it writes; an atomic does.
        wave: Number of the wave in its workgroup.
        workgroup: Number of the workgroup in the order of the launch, x fastest.
    """

    pc: int
    instruction: str
    writes: bool
    wave: int
    workgroup: int

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        who = f"wave {self.wave} of workgroup {self.workgroup}"
        return f"{who} {verb} at {self.pc:#x} ({self.instruction})"


@dataclass(frozen=True, slots=True)
class Race:
    """Two waves touch the same memory, one of them writes, and nothing orders them.

    Attributes:
        memory: `LDS`, or the name of the buffer.
        offset: The first byte concerned, from the beginning of the workgroup's LDS or of the buffer.
        size: How many bytes are concerned from there on at most (the unit of the record).
        address: The address of that byte; None in LDS.
        earlier: The access that was executed first here.
        later: The other one.
        count: How often this pair of instructions was met.
    """

    memory: str
    offset: int
    size: int
    address: int | None
    earlier: Touch
    later: Touch
    count: int

    def __str__(self) -> str:
        where = f"{self.memory}, bytes {self.offset} to {self.offset + self.size - 1}"
        return f"{where}: {self.earlier}; {self.later}; {self.count} time(s)"


class RaceError(EmulatorError):
    """Waves touched the same memory without an order between them.

    Attributes:
        kernel: The kernel's symbol, when it is known.
        races: Each pair of instructions once.
    """

    def __init__(self, races: Iterable[Race], kernel: str = "") -> None:
        self.races, self.kernel = tuple(races), kernel
        first = self.races[0]
        more = f"; and {len(self.races) - 1} more pairs of instructions" if len(self.races) > 1 else ""
        name = f" of {kernel}" if kernel else ""
        reason = f"race{name}: {first}{more}"
        super().__init__(reason, first.later.pc, first.later.instruction)

    def __reduce__(self) -> Any:
        return type(self), (self.races, self.kernel)


def _numbers(noun: str, numbers: tuple[int, ...], most: int = 8) -> str:
    shown = ", ".join(str(number) for number in numbers[:most])
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {shown}{more}"
