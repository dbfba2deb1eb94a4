"""Who runs next: waves that part, meet, wait at barriers and end."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Literal

import numpy as np

from aotkern.emulator.arena import AccessError, UnmodelledError
from aotkern.emulator.control import BARRIER, END
from aotkern.emulator.errors import LimitError, UnsupportedError
from aotkern.emulator.operands import OperandError
from aotkern.emulator.program import Block, Program
from aotkern.emulator.waves import Array, Waves, merged
from aotkern.errors import EmulatorError

_TURN = 20_000  # instructions after which other waves get a turn, so that a wave may spin until another one writes


class Scheduler:
    """Runs batches of waves to their end.

    Args:
        program: The code.
        order: `lockstep`, or the order of single waves.
        seed: For the shuffled order.
        limit: Most wave instructions over all batches.
        timeout: Most seconds over all batches; None for as long as it takes.
        waves: Waves of a workgroup.
    """

    def __init__(
        self,
        program: Program,
        order: Literal["lockstep", "forward", "reverse", "random"],
        seed: int,
        limit: int,
        timeout: float | None = None,
        waves: int = 1,
    ) -> None:
        self._program, self._order, self._limit, self._left = program, order, limit, limit
        self._timeout, self._waves = timeout, waves
        self._end = float("inf") if timeout is None else time.monotonic() + timeout
        self._random = random.Random(seed)  # noqa: S311 - an order of execution, not a secret
        self.executed: Counter[int] = Counter()
        """How many waves ran each block, by where it begins."""
        self._ready: list[Waves] = []
        self._waiting: list[Waves] = []
        self._alive: Array = np.zeros(0, np.int64)
        self._arrived: Array = np.zeros(0, np.int64)

    def run(self, waves: Waves, groups: int) -> None:
        """Run all waves of a batch of `groups` workgroups.

        Raises:
            EmulatorError: As `machine.run`.
        """
        self._alive = np.bincount(waves.group, minlength=groups)
        self._arrived = np.zeros(groups, np.int64)
        self._ready, self._waiting = [], []
        self._enter([waves] if self._order == "lockstep" else _apart(waves, self._waves))
        while self._ready:
            current = min(self._ready, key=lambda one: (one.spent // _TURN, one.rank))
            self._ready.remove(current)
            self._turn(current)
            if not self._ready:
                self._release()
        if self._waiting:
            place = self._waiting[0].pc
            raise EmulatorError("waves wait at a barrier that others of their workgroup never reach", place)

    def _enter(self, parts: list[Waves]) -> None:
        """Make waves ready, with the rank by which they take turns."""
        for part in parts:
            if self._order == "lockstep":
                part.rank = part.pc
            elif self._order == "random":
                part.rank = self._random.random()
            else:
                part.rank = int(part.number[0]) * (1 if self._order == "forward" else -1)
            self._ready.append(part)

    def _turn(self, current: Waves) -> None:
        """Run waves until they wait, end, part, or others should run."""
        lockstep = self._order == "lockstep"
        turn = current.spent // _TURN
        while True:
            block = self._program.block(current.pc)
            size = len(block.instructions)
            self.executed[current.pc] += current.count
            self._pay(size * current.count, current)
            after = _execute(block, current)
            current.spent += size
            if not isinstance(after, int):
                self._enter(_parted(current, after))
                return
            if after in (END, BARRIER):
                self._stop(current, after, block.instructions[-1].end)
                return
            current.pc = after
            if self._ready and (current.spent // _TURN != turn or (lockstep and self._meets(current))):
                self._join(current)
                return

    def _pay(self, count: int, current: Waves) -> None:
        self._left -= count
        if self._left < 0:
            raise LimitError(f"more than {self._limit:,} wave instructions, the limit of a launch", current.pc)
        if time.monotonic() > self._end:
            raise LimitError(f"more than {self._timeout:g} seconds, the most that a launch may take", current.pc)

    def _meets(self, current: Waves) -> bool:
        """Whether other waves are at or behind this place."""
        return min(other.pc for other in self._ready) <= current.pc

    def _join(self, current: Waves) -> None:
        """Back among the ready ones; in lockstep together with those at the same place."""
        if self._order != "lockstep":
            self._ready.append(current)  # with its rank, so that it goes on where its turn is
            return
        here = [other for other in self._ready if other.pc == current.pc and other.overflow == current.overflow]
        if here:
            self._ready = [other for other in self._ready if all(other is not one for one in here)]
            current = merged((current, *here))
        self._enter([current])

    def _stop(self, current: Waves, why: int, after: int) -> None:
        if why == END:
            np.subtract.at(self._alive, current.group, 1)
        else:
            current.pc = after
            np.add.at(self._arrived, current.group, 1)
            self._waiting.append(current)
        self._release()

    def _release(self) -> None:
        """Let go on those waves whose whole workgroup has arrived."""
        complete = (self._arrived == self._alive) & (self._arrived > 0)
        if not complete.any():
            return
        still: list[Waves] = []
        for waves in self._waiting:
            free = complete[waves.group]
            if free.all():
                self._join(waves) if self._order == "lockstep" else self._enter([waves])
            elif free.any():
                part = waves.part(np.flatnonzero(free))
                self._join(part) if self._order == "lockstep" else self._enter([part])
                still.append(waves.part(np.flatnonzero(~free)))
            else:
                still.append(waves)
        self._waiting = still
        self._arrived[complete] = 0


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
