"""What is outstanding of waves: memory instructions that no wait has finished yet, with their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aotkern.emulator.arena import AccessError
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.effects import Counter, Effects
from aotkern.emulator.observing import watch_of
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import SCALARS, Array, Mask, Waves
from aotkern.errors import EmulatorError

IN_ORDER = {Counter.VECTOR: 63, Counter.LDS: 15}
"""What the counters that keep an order can count."""


@dataclass(slots=True)
class Inputs:
    """Registers as they were when an instruction was issued.

    Attributes:
        vector: Numbers of vector registers.
        scalar: Numbers of scalar registers.
        vector_values: `(registers, waves, 64)` uint32.
        scalar_values: `(registers, waves)` uint32.
        mask: The active lanes.
    """

    vector: Sequence[int]
    scalar: Sequence[int]
    vector_values: Array
    scalar_values: Array
    mask: Mask

    @classmethod
    def taken(cls, w: Waves, vector: Sequence[int], scalar: Sequence[int]) -> Inputs:
        """As they are now."""
        halves = [w.scalar[number // 2, :, number % 2] for number in scalar]
        scalars = np.array(halves) if halves else np.zeros((0, w.count), np.uint32)
        mask = w.mask if isinstance(w.mask, bool) else w.mask.copy()
        return cls(vector, scalar, w.vector[list(vector)], scalars, mask)

    def put(self, w: Waves, skip: frozenset[int] = frozenset()) -> None:
        """Make them the registers again, but for those in `skip` (numbers as in `Effects`)."""
        for place, number in enumerate(self.vector):
            if number + SCALARS not in skip:
                w.vector[number] = self.vector_values[place]
        for place, number in enumerate(self.scalar):
            if number not in skip:
                w.scalar[number // 2, :, number % 2] = self.scalar_values[place]
        w.mask = self.mask

    def part(self, which: Array) -> Inputs:
        """Those of some of the waves."""
        mask = self.mask if isinstance(self.mask, bool) else self.mask[which]
        vector, scalar = self.vector_values[:, which], self.scalar_values[:, which]
        return Inputs(self.vector, self.scalar, vector, scalar, mask)

    @staticmethod
    def merged(parts: Sequence[Inputs], counts: Sequence[int], order: Array) -> Inputs:
        """Those of all waves of some objects with so many waves each, put into an order."""
        vector = np.concatenate([part.vector_values for part in parts], axis=1)[:, order]
        scalar = np.concatenate([part.scalar_values for part in parts], axis=1)[:, order]
        mask: Mask = True
        if not all(isinstance(part.mask, bool) for part in parts):
            shapes = [(count, 64) for count in counts]
            masks = [np.broadcast_to(part.mask, shape) for part, shape in zip(parts, shapes, strict=True)]
            mask = np.concatenate(masks)[order]
        return Inputs(parts[0].vector, parts[0].scalar, vector, scalar, mask)


@dataclass(slots=True)
class Outstanding:
    """An instruction that is not known to be done.

    Attributes:
        instruction: The instruction.
        effect: Its registers and counter.
        step: What is still to happen; None when it has happened but for the registers that it loads.
        inputs: What the step needs.
        issued: `(waves,)` the segments in which it was issued, when races are looked for.
        left: The counters that must still be waited for, where any order is possible.
    """

    instruction: Instruction
    effect: Effects
    step: Step | None = None
    inputs: Inputs | None = None
    issued: Array | None = None
    left: frozenset[str] = field(default_factory=frozenset)

    def finish(self, w: Waves) -> None:
        """Let it happen.

        Raises:
            EmulatorError: It does what it must not.
        """
        if self.step is None:
            return
        now = None
        if self.inputs is not None:
            now = Inputs.taken(w, self.inputs.vector, self.inputs.scalar)
            self.inputs.put(w)
        if w.arena.watch is not None:
            watch_of(w).at(w, self.instruction, self.issued)
        try:
            self.step(w)
        except AccessError as error:
            at = self.instruction
            raise EmulatorError(error.reason, at.pc, at.text, error.lane, error.address) from None
        if now is not None:
            now.put(w, skip=self.effect.writes)

    def part(self, which: Array) -> Outstanding:
        """That of some of the waves."""
        inputs = None if self.inputs is None else self.inputs.part(which)
        issued = None if self.issued is None else self.issued[which]
        return Outstanding(self.instruction, self.effect, self.step, inputs, issued, self.left)


class Queue:
    """What is outstanding of waves that execute together, oldest first.

    Attributes:
        loading: The registers that are still to be loaded, one bit each, numbered as in `Effects`.
    """

    __slots__ = ("entries", "loading")

    def __init__(self, entries: Iterable[Outstanding] = ()) -> None:
        self.entries = list(entries)
        self.loading = 0
        self._count_loading()

    def _count_loading(self) -> None:
        self.loading = 0
        for entry in self.entries:
            self.loading |= bits_of(entry.effect.writes)

    def add(self, w: Waves, entry: Outstanding) -> None:
        """One more; the oldest is done when its counter was full."""
        self.entries.append(entry)
        self.loading |= bits_of(entry.effect.writes)
        counter = entry.effect.counter
        if counter in IN_ORDER:
            same = [one for one in self.entries if one.effect.counter is counter]
            if len(same) > IN_ORDER[counter]:
                self._finish(w, same[:1])

    def wait(self, w: Waves, vector: int, lds: int) -> None:
        """Finish what is guaranteed when at most so many are outstanding of each counter."""
        done: list[Outstanding] = []
        for counter, most in ((Counter.VECTOR, vector), (Counter.LDS, lds)):
            same = [one for one in self.entries if one.effect.counter is counter]
            done += same[: max(0, len(same) - most)]
        for entry in self.entries:
            if entry.effect.counter is Counter.SCALAR and lds == 0:
                done.append(entry)
            elif entry.effect.counter is Counter.FLAT:
                waited = {name for name, most in (("vmcnt", vector), ("lgkmcnt", lds)) if most == 0}
                entry.left -= waited
                if not entry.left:
                    done.append(entry)
        self._finish(w, done)

    def finish(self, w: Waves) -> None:
        """Finish everything: the wave ends."""
        self._finish(w, list(self.entries))

    def _finish(self, w: Waves, done: list[Outstanding]) -> None:
        if not done:
            return
        for entry in done:
            entry.finish(w)
        self.entries = [one for one in self.entries if not any(one is other for other in done)]
        self._count_loading()

    def part(self, which: Array) -> Queue:
        """That of some of the waves."""
        return Queue(entry.part(which) for entry in self.entries)

    def like(self, other: Queue) -> bool:
        """Whether the same instructions are outstanding."""
        if len(self.entries) != len(other.entries):
            return False
        pairs = zip(self.entries, other.entries, strict=True)
        return all(one.instruction.pc == two.instruction.pc and one.left == two.left for one, two in pairs)

    @staticmethod
    def merged(queues: Sequence[Queue], counts: Sequence[int], order: Array) -> Queue:
        """One for the waves of several objects, whose queues are alike, put into an order."""
        return Queue(
            _merged(entries, counts, order) for entries in zip(*(queue.entries for queue in queues), strict=True)
        )


def _merged(entries: Sequence[Outstanding], counts: Sequence[int], order: Array) -> Outstanding:
    first = entries[0]
    inputs = [entry.inputs for entry in entries if entry.inputs is not None]
    issued = [entry.issued for entry in entries if entry.issued is not None]
    return Outstanding(
        first.instruction,
        first.effect,
        first.step,
        Inputs.merged(inputs, counts, order) if inputs else None,
        np.concatenate(issued)[order] if issued else None,
        first.left,
    )


def bits_of(registers: frozenset[int]) -> int:
    """Registers as one bit each."""
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits
