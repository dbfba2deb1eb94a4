"""Who runs next: waves that part, meet, wait at barriers, poll and end.

Waves take turns. A turn ends at a barrier, after `_TURN` instructions, or where a loop that polls begins anew: after an
atomic or a coherent load, another wave may have to run before the answer can change. Waves that had fewer turns go
first, so a wave that only polls does not keep others from working.

When every wave that could run only polls, in the same state as before and with nothing stored meanwhile, no order of
turns can end their wait: then further workgroups are started, as long as the device has room for them, and when there
are none left the launch is given up with `WaitingError`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aotkern.emulator.arena import AccessError, UnmodelledError, Watch
from aotkern.emulator.control import BARRIER, END
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.errors import LimitError, UnsupportedError, WaitingError
from aotkern.emulator.operands import OperandError
from aotkern.emulator.polling import Polling, Probe
from aotkern.emulator.program import Block, Program
from aotkern.emulator.waves import Array, Waves, merged
from aotkern.errors import EmulatorError

WaveOrder = Literal["lockstep", "forward", "reverse", "random"]
_BARRIER_BYTES = 4
_TURN = 20_000  # instructions after which other waves get a turn


@dataclass(frozen=True, slots=True)
class Plan:
    """How a launch is run.

    Attributes:
        order: `lockstep`, or the order of single waves.
        seed: For the shuffled order.
        limit: Most wave instructions.
        timeout: Most seconds; None for no bound.
        groups: Workgroups of the launch.
        waves: Waves of one workgroup.
        room: Workgroups that may be alive at once.
    """

    order: WaveOrder
    seed: int
    limit: int
    timeout: float | None
    groups: int
    waves: int
    room: int


class Scheduler:
    """Runs the waves of a launch to their end.

    Args:
        program: The code.
        plan: How to run it.
        batches: Fresh waves of some workgroups each; the next ones start when the others have ended, or only wait.
        watch: Who is told of barriers.
    """

    def __init__(self, program: Program, plan: Plan, batches: Iterator[Waves], watch: Watch | None = None) -> None:
        self._program, self._plan, self._batches, self._watch = program, plan, batches, watch
        self._left = plan.limit
        self._deadline = None if plan.timeout is None else time.monotonic() + plan.timeout
        self._random = random.Random(plan.seed)  # noqa: S311 - an order of execution, not a secret
        self.executed: Counter[int] = Counter()
        """How many waves ran each block, by where it begins."""
        self._ready: list[Waves] = []
        self._waiting: list[Waves] = []
        self._alive: Array = np.zeros(plan.groups, np.int64)
        self._arrived: Array = np.zeros(plan.groups, np.int64)
        self._started = 0
        self._polling = Polling()

    def run(self) -> None:
        """Run all waves.

        Raises:
            EmulatorError: As `machine.run`.
        """
        while self._ready or self._admit():
            current = min(self._ready, key=_turn_of)
            self._ready.remove(current)
            self._turn(current)
            if self._polling.endless(len(self._ready) + len(self._waiting)) and not self._admit():
                raise self._stuck()
        if self._waiting:
            place = self._waiting[0].pc - _BARRIER_BYTES
            reason = "waves wait at a barrier that others of their workgroup never reach"
            raise EmulatorError(reason, place, "s_barrier")

    def _admit(self) -> bool:
        """Start the next workgroups; whether there are any, and room for them."""
        alive = int(np.count_nonzero(self._alive))
        waves = next(self._batches, None) if alive < self._plan.room else None
        if waves is None:
            return False
        places = _groups(waves)
        np.add.at(self._alive, places, 1)
        self._started += len(np.unique(places))
        self._polling.forget()
        self._enter([waves] if self._plan.order == "lockstep" else _apart(waves, self._plan.waves))
        return True

    def _stuck(self) -> WaitingError:
        """Who waits for whom, in words."""
        spins = [
            (one.pc, "a loop", one.numbers()) if one.spin is None else (one.spin.pc, one.spin.text, one.numbers())
            for one in self._ready
        ]
        alive = int(np.count_nonzero(self._alive))
        return WaitingError(_by_place(spins), alive, self._plan.groups - self._started)

    def _enter(self, parts: list[Waves]) -> None:
        """Make waves ready, with the rank by which they take turns."""
        for part in parts:
            if self._plan.order == "lockstep":
                part.rank = part.pc
            elif self._plan.order == "random":
                part.rank = self._random.random()
            else:
                part.rank = self._place_in_order(part)
            self._ready.append(part)

    def _place_in_order(self, part: Waves) -> int:
        group, wave = divmod(int(part.number[0]) + part.arena.first_wave, self._plan.waves)
        forward = self._plan.order == "forward"
        return group * self._plan.waves + (wave if forward else self._plan.waves - 1 - wave)

    def _turn(self, current: Waves) -> None:
        """Run waves until they wait, end, part, or others should run."""
        lockstep = self._plan.order == "lockstep"
        probe = Probe(current) if current.worked else None
        while True:
            block = self._program.block(current.pc)
            size = len(block.instructions)
            self.executed[current.pc] += current.count
            self._pay(size * current.count, block.instructions[0])
            after = _execute(block, current)
            current.spent += size
            if block.poll is not None:
                current.poll = block.poll
            if not isinstance(after, int):
                self._part(current, after)
                return
            if after in (END, BARRIER):
                self._stop(current, after, block.instructions[-1].end)
                return
            back = after <= current.pc
            current.pc = after
            if back and self._turn_ends(current, probe):
                self._join(current)
                return
            if lockstep and self._ready and self._meets(current):
                self._join(current)
                return

    def _turn_ends(self, current: Waves, probe: Probe | None) -> bool:
        """Whether others should run, now that a loop begins anew; notes what came of the turn."""
        if current.poll is not None:
            self._polling.polled(current)
            current.end_turn(worked=False)
        elif probe is not None and probe.repeats(current):
            self._polling.repeated(current)
            current.end_turn(worked=True)
        elif current.spent >= _TURN:
            self._polling.forget()
            current.end_turn(worked=True)
        else:
            return False
        return True

    def _part(self, current: Waves, after: Array) -> None:
        """Let waves go different ways; those that poll again have had their turn."""
        parts = _parted(current, after)
        for part in parts:
            if part.pc <= current.pc and part.poll is not None:
                self._polling.polled(part)
                part.end_turn(worked=False)
        self._enter(parts)

    def _pay(self, count: int, at: Instruction) -> None:
        """Count instructions of a block that begins at one of them."""
        self._left -= count
        if self._left < 0:
            reason = f"more than {self._plan.limit:,} wave instructions, the limit of a launch"
            raise LimitError(reason, at.pc, at.text)
        if self._deadline is not None and time.monotonic() > self._deadline:
            reason = f"more than {self._plan.timeout:g} seconds, the most that a launch may take"
            raise LimitError(reason, at.pc, at.text)

    def _meets(self, current: Waves) -> bool:
        """Whether other waves are at or behind this place."""
        return any(other.pc <= current.pc and other.turns <= current.turns for other in self._ready)

    def _join(self, current: Waves) -> None:
        """Back among the ready ones; in lockstep together with those at the same place."""
        if self._plan.order != "lockstep":
            self._ready.append(current)  # with its rank, so that it goes on where its turn is
            return
        here = [other for other in self._ready if _go_together(other, current)]
        if here:
            self._ready = [other for other in self._ready if all(other is not one for one in here)]
            current = merged((current, *here))
        self._enter([current])

    def _stop(self, current: Waves, why: int, after: int) -> None:
        places = _groups(current)
        if why == END:
            if current.queue is not None:
                current.queue.finish(current)
            np.subtract.at(self._alive, places, 1)
            self._polling.forget()
        else:
            current.pc = after
            np.add.at(self._arrived, places, 1)
            self._waiting.append(current)
        arrived = self._arrived[places]
        if ((arrived > 0) & (arrived == self._alive[places])).any():
            self._release()

    def _release(self) -> None:
        """Let go on those waves whose whole workgroup has arrived."""
        still: list[Waves] = []
        freed: list[Waves] = []
        for waves in self._waiting:
            places = _groups(waves)
            free = self._arrived[places] == self._alive[places]
            if free.all():
                freed.append(waves)
            elif free.any():
                freed.append(waves.part(np.flatnonzero(free)))
                still.append(waves.part(np.flatnonzero(~free)))
            else:
                still.append(waves)
        self._waiting = still
        groups = np.unique(np.concatenate([_groups(waves) for waves in freed]))
        self._arrived[groups] = 0
        if self._watch is not None:
            self._watch.barrier(groups)
        for waves in freed:
            self._join(waves) if self._plan.order == "lockstep" else self._enter([waves])


def _turn_of(waves: Waves) -> tuple[int, float]:
    return waves.turns, waves.rank


def _groups(waves: Waves) -> Array:
    """The numbers of the workgroups in the launch, `(waves,)`."""
    return np.asarray(waves.group + waves.arena.first_group)


def _go_together(one: Waves, other: Waves) -> bool:
    alike = one.pc == other.pc and one.overflow == other.overflow and one.arena is other.arena
    return alike and (one.queue is None or one.queue.like(other.queue))


def _by_place(spins: list[tuple[int, str, tuple[int, ...]]]) -> list[tuple[int, str, tuple[int, ...]]]:
    """Waves that spin at the same place in one entry."""
    found: dict[tuple[int, str], list[int]] = {}
    for pc, text, waves in spins:
        found.setdefault((pc, text), []).extend(waves)
    return [(pc, text, tuple(sorted(waves))) for (pc, text), waves in sorted(found.items())]


def _apart(waves: Waves, group: int) -> list[Waves]:
    """The waves by their place in a workgroup of so many: only those at the same place go together."""
    places = waves.number % group
    return [waves.part(np.flatnonzero(places == place)) for place in np.unique(places)]


def _parted(waves: Waves, places: Array) -> list[Waves]:
    """The waves sorted out by where they go."""
    parts = []
    for place in np.unique(places):
        part = waves.part(np.flatnonzero(places == place))
        part.pc = int(place)
        parts.append(part)
    return parts


def _execute(block: Block, waves: Waves) -> int | Array:
    """Run a block; where its waves go next."""
    index = 0
    try:
        for index, step in enumerate(block.steps):  # noqa: B007 - the handler needs the index
            step(waves)
        return block.after(waves)
    except UnmodelledError as error:
        at = block.instructions[index]
        raise UnsupportedError(error.reason, at.pc, at.text, error.lane, error.address) from None
    except AccessError as error:
        at = block.instructions[index]
        raise EmulatorError(error.reason, at.pc, at.text, error.lane, error.address) from None
    except OperandError as error:
        at = block.instructions[index]
        raise UnsupportedError(str(error), at.pc, at.text) from None
