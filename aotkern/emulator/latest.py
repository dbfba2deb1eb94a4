"""Memory instructions that take effect as late as their waits allow.

A wave's memory instructions are outstanding until a wait guarantees that they are done: `s_waitcnt` for the loads from
memory and LDS of its counters, in the order in which they were issued where hardware keeps it, and the end of the wave
for all. A counter that is full holds up further instructions, so the oldest is done by then. A barrier waits for
nothing. Until an instruction is done,

- a register that it loads must not be touched: `MissingWaitError`;
- what it does to LDS has not happened: LDS reads, writes and atomics, and loads from memory into LDS;
- what a wave publishes (`buffer_wbl2`) is not published.

Loads from memory into registers read at once, and stores to memory happen at once: compilers leave them outstanding at
barriers within a workgroup, where they stay in order on the way to memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aotkern.emulator.arena import AccessError
from aotkern.emulator.control import Next
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.effects import Counter, Effects, effects, register_name
from aotkern.emulator.errors import MissingWaitError
from aotkern.emulator.observing import Observed, is_wide_cache_control, watch_of
from aotkern.emulator.operands import Operands
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import SCALARS, Array, Mask, Waves
from aotkern.errors import EmulatorError

_MOST = {Counter.VECTOR: 63, Counter.LDS: 15}
"""What the counters that keep an order can count."""
_NO_WAIT = 1 << 30
_WAIT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_MOVES_LANES = re.compile(r"ds_(b?permute|swizzle)")


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
            self.loading |= _bits(entry.effect.writes)

    def add(self, w: Waves, entry: Outstanding) -> None:
        """One more; the oldest is done when its counter was full."""
        self.entries.append(entry)
        self.loading |= _bits(entry.effect.writes)
        counter = entry.effect.counter
        if counter in _MOST:
            same = [one for one in self.entries if one.effect.counter is counter]
            if len(same) > _MOST[counter]:
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


@dataclass(frozen=True, slots=True)
class Late:
    """Puts what is late around each step of a program.

    Attributes:
        operands: What the kernel declares.
        watched: Whether a `Races` is told of every access.
    """

    operands: Operands
    watched: bool

    def step(self, instruction: Instruction, step: Step) -> Step:
        """Around the step of an instruction."""
        observed = Observed().step(instruction, step) if self.watched else step
        if instruction.name == "s_waitcnt":
            limits = {name: int(value) for name, value in _WAIT.findall(instruction.text)}
            vector, lds = limits.get("vmcnt", _NO_WAIT), limits.get("lgkmcnt", _NO_WAIT)
            return lambda w: w.queue.wait(w, vector, lds)
        effect = effects(instruction, self.operands)
        check = self._check(instruction, effect)
        if instruction.name == "buffer_wbl2" and is_wide_cache_control(instruction):
            effect = Effects(counter=Counter.VECTOR)
            return lambda w: w.queue.add(w, Outstanding(instruction, effect, observed))
        if effect.counter is None:
            return _checked(check, effect, observed)
        if _is_late(instruction):
            return _checked(check, effect, self._issue(instruction, effect, step))
        left = frozenset(("vmcnt", "lgkmcnt") if effect.counter is Counter.FLAT else ())

        def at_once(w: Waves) -> None:
            observed(w)
            w.queue.add(w, Outstanding(instruction, effect, left=left))

        return _checked(check, effect, at_once)

    def end(self, instruction: Instruction, after: Next) -> Next:
        """Around the end of a block, which may need registers too."""
        effect = effects(instruction, self.operands)
        check, touched = self._check(instruction, effect), _bits(effect.reads | effect.writes)

        def checked(w: Waves) -> int | Array:
            if w.queue.loading & touched:
                check(w)
            return after(w)

        return checked

    def _issue(self, instruction: Instruction, effect: Effects, step: Step) -> Step:
        vector = sorted(number - SCALARS for number in effect.reads if number >= SCALARS)
        scalar = sorted(number for number in effect.reads if number < SCALARS)

        def issue(w: Waves) -> None:
            issued = None if w.arena.watch is None else watch_of(w).segments(w)
            inputs = Inputs.taken(w, vector, scalar)
            w.queue.add(w, Outstanding(instruction, effect, step, inputs, issued))

        return issue

    def _check(self, instruction: Instruction, effect: Effects) -> Step:
        """Raises `MissingWaitError` when the instruction touches a register that is still to be loaded."""

        def check(w: Waves) -> None:
            for entry in w.queue.entries:
                touched = entry.effect.writes & effect.reads
                in_order = effect.counter in _MOST and entry.effect.counter is effect.counter
                if not in_order:  # else the later one's result comes later, too
                    touched |= entry.effect.writes & effect.writes
                if touched:
                    load, counter = entry.instruction, entry.effect.counter
                    name = register_name(min(touched), self.operands)
                    waits = "" if counter is None else counter.value
                    raise MissingWaitError(name, load.pc, load.text, waits, instruction.pc, instruction.text)

        return check


def _checked(check: Step, effect: Effects, step: Step) -> Step:
    touched = _bits(effect.reads | effect.writes)

    def run(w: Waves) -> None:
        if w.queue.loading & touched:
            check(w)
        step(w)

    return run


def _is_late(instruction: Instruction) -> bool:
    """Whether an instruction does something to LDS."""
    name = instruction.name
    if name.startswith("ds_"):
        return not _MOVES_LANES.match(name)
    return name.startswith("global_load_lds") or instruction.modifier("lds") is not None


def _bits(registers: frozenset[int]) -> int:
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits
