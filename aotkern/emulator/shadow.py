"""What the search for races keeps: of memory its last accesses, of waves what happened before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotkern.emulator.arena import PAGE, Region
from aotkern.emulator.waves import Array

I64 = np.int64
_COARSEST = 16


@dataclass(frozen=True, slots=True)
class Known:
    """What happened before: segments below a bound of whole workgroups, and up to one of single waves."""

    groups: dict[int, int]
    waves: dict[int, int]

    def joined(self, other: Known) -> Known:
        """What either knows."""
        return Known(_most(self.groups, other.groups), _most(self.waves, other.waves))

    def covers(self, segment: int, wave: int, group: int) -> bool:
        """Whether a segment of a wave is known to lie before."""
        return self.groups.get(group, 0) > segment or self.waves.get(wave, 0) >= segment


NOTHING = Known({}, {})
"""At the start of a wave."""


def _most(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    if not one or not other:
        return one or other
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys()}


class Shadow:
    """The kept accesses of a region, by pieces of `unit` bytes: `segment << 32 | place | atomic`, 0 for none.

    Only pages that something touched have pieces, so that large memory takes no more room than what is used of it.
    Pieces are positions in `write`, `first` and `second`; `offset` tells where one lies.

    Args:
        region: Whose accesses these are. Pieces are counted from the beginning of its first dword.
    """

    __slots__ = ("_lead", "_numbers", "_slots", "first", "second", "unit", "write")

    def __init__(self, region: Region) -> None:
        self.unit = _COARSEST
        self._lead = region.lead
        self._slots = np.zeros((region.lead + region.size + 3) // PAGE + 1, np.int32)  # of each page, from 1 on
        self._numbers: list[int] = []  # the page of each slot
        self.write, self.first, self.second = (np.zeros(0, I64) for _ in range(3))

    def pieces(self, offsets: Array, size: int) -> Array:
        """The pieces that accesses of `size` bytes touch, `(n, pieces of one access)`."""
        places = offsets + self._lead
        odd = int(np.bitwise_or.reduce(places, initial=0)) | size
        while odd & (self.unit - 1):
            self._refine()
        first = (places // self.unit)[:, None]
        each = PAGE // self.unit
        count = size // self.unit
        whole = first if count == 1 else first + np.arange(count)
        pages = whole // each
        slots = self._slots[pages]
        if not slots.all():
            self._hold(np.unique(pages[slots == 0]))
            slots = self._slots[pages]
        return np.asarray((slots - 1).astype(I64) * each + whole % each)

    def offset(self, piece: int) -> int:
        """Where in the region a piece begins."""
        slot, inside = divmod(piece, PAGE // self.unit)
        return self._numbers[slot] * PAGE + inside * self.unit - self._lead

    def _hold(self, pages: Array) -> None:
        """Pieces for some more pages."""
        known = len(self._numbers)
        self._slots[pages] = np.arange(known + 1, known + 1 + len(pages))
        self._numbers.extend(pages.tolist())
        needed = len(self._numbers) * (PAGE // self.unit)
        if needed > len(self.write):
            room = max(needed, 2 * len(self.write))
            self.write, self.first, self.second = (_grown(one, room) for one in (self.write, self.first, self.second))

    def _refine(self) -> None:
        self.unit //= 2
        self.write, self.first, self.second = (np.repeat(one, 2) for one in (self.write, self.first, self.second))


def _grown(kept: Array, room: int) -> Array:
    made = np.zeros(room, I64)
    made[: len(kept)] = kept
    return made
