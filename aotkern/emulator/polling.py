"""Whether waves that poll can still get an answer."""

from __future__ import annotations

import zlib

from aotkern.emulator.waves import Waves

_ROUNDS = 8  # how often each wave must come back in the same state before that is called waiting
_FRUITLESS = 20_000  # polls without any store after which waves with a running counter count as waiting, too


class Polling:
    """Counts how long waves have only polled, with nothing stored."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Something else happened."""
        self._fruitless = self._repeated = 0
        self._changes = -1
        self._seen: dict[tuple[int, ...], tuple[int, int]] = {}

    def polled(self, waves: Waves) -> None:
        """Waves come back to a loop that polls."""
        changes = _changes(waves)
        if changes != self._changes:
            self.forget()
            self._changes = changes
        self._fruitless += 1
        if self._fruitless < 2 * _ROUNDS:  # most waits end soon; a digest costs more than a turn
            return
        state = waves.pc, _digest(waves)
        before = self._seen.get(waves.numbers())
        self._seen[waves.numbers()] = state
        self._repeated = self._repeated + 1 if before == state else 0

    def repeated(self, waves: Waves) -> None:
        """Waves come back, in the same state, to a loop in which they poll with plain loads."""
        if _changes(waves) == self._changes:
            self._repeated += 1
        else:
            self.forget()
            self._changes = _changes(waves)

    def endless(self, objects: int) -> bool:
        """Whether nothing can come of it any more, with so many waves (that run together) alive."""
        return self._repeated > _ROUNDS * objects or self._fruitless > _FRUITLESS + 1000 * objects


class Probe:
    """Tells whether waves come back to a place in the state in which they were there before."""

    def __init__(self, waves: Waves) -> None:
        self._pc, self._changes, self._state = waves.pc, _all_changes(waves), _digest(waves)
        self._left = 1

    def repeats(self, waves: Waves) -> bool:
        """Whether these waves are at the place again, for the first time, with nothing changed."""
        if waves.pc != self._pc or not self._left:
            return False
        self._left = 0
        return _all_changes(waves) == self._changes and _digest(waves) == self._state


def _changes(waves: Waves) -> int:
    """How often global memory was written."""
    return sum(region.changes for region in waves.arena.regions)


def _all_changes(waves: Waves) -> int:
    """How often global memory or LDS was written."""
    return _changes(waves) + waves.arena.lds.changes


def _digest(waves: Waves) -> int:
    """A number that stands for all registers."""
    state = zlib.crc32(waves.scc.tobytes(), zlib.crc32(waves.scalar.tobytes()))
    return zlib.crc32(waves.vector.tobytes(), state)
