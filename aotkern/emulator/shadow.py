"""What the search for races keeps: of memory its last accesses, of waves what happened before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    """The kept accesses of a region, by pieces of `unit` bytes: `segment << 32 | place | atomic`, 0 for none."""

    __slots__ = ("first", "second", "unit", "write")

    def __init__(self, size: int) -> None:
        self.unit = _COARSEST
        self.write, self.first, self.second = (np.zeros(-(-size // _COARSEST), I64) for _ in range(3))

    def pieces(self, offsets: Array, size: int) -> Array:
        """The pieces that accesses of `size` bytes touch, `(n, pieces of one access)`."""
        odd = int(np.bitwise_or.reduce(offsets, initial=0)) | size
        while odd & (self.unit - 1):
            self._refine()
        first = offsets // self.unit
        count = size // self.unit
        return first[:, None] if count == 1 else first[:, None] + np.arange(count)

    def _refine(self) -> None:
        self.unit //= 2
        self.write, self.first, self.second = map(_doubled, (self.write, self.first, self.second))


def _doubled(kept: Array) -> Array:
    """Each piece as two; pages that nothing touched stay untouched."""
    made = np.zeros(2 * len(kept), I64)
    used = np.flatnonzero(kept)
    made[2 * used] = made[2 * used + 1] = kept[used]
    return made
