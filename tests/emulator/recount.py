"""Races in LDS counted again, byte by byte with sets: slow, and nothing in common with `Shadow`.

A barrier's removal is harmless when, between two of the barriers that are left, no byte of LDS is touched by two waves
of a workgroup of which one writes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from aotkern.emulator import machine
from aotkern.emulator.races import Races


class Recount(Races):
    """Keeps who touched each byte of LDS since the last barrier."""

    made: Recount

    def __init__(self, groups: int, waves: int) -> None:
        super().__init__(groups, waves)
        self.touched: dict[Any, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
        Recount.made = self

    def _note(self, region: Any, offsets: Any, mask: Any, size: int, where: Any, *, writes: bool) -> None:
        if region is not self._current.arena.lds:
            return
        made = self._accesses(region, offsets, mask, size, where)
        if made is None:
            return
        for wave, offset in zip(made.waves[:, 0].tolist(), np.asarray(offsets).tolist(), strict=True):
            since = int(self._group_floor[wave // self._waves])
            for byte in range(offset, offset + size):
                self.touched[wave // self._waves, since, byte][writes].add(wave)

    def loads(self, region: Any, offsets: Any, mask: Any, size: int, where: Any = None) -> None:
        self._note(region, offsets, mask, size, where, writes=False)

    def stores(
        self, region: Any, offsets: Any, mask: Any, transfer: Any, data: Any, perform: Any, where: Any = None
    ) -> None:
        self._note(region, offsets, mask, transfer.size, where, writes=True)
        perform()

    def atomics(self, region: Any, offsets: Any, mask: Any, size: int, where: Any = None) -> None:
        self._note(region, offsets, mask, size, where, writes=True)

    def conflicts(self) -> int:
        """Bytes that two waves touched without a barrier between, one of them writing."""
        found = self.touched.values()
        return sum(bool(writers) and len(readers | writers) > 1 for readers, writers in found)


def conflicts(subject: Any, code: bytes, patch: pytest.MonkeyPatch) -> int:
    """How many bytes of LDS a run of changed code leaves unordered."""
    with patch.context() as patched:
        patched.setattr(machine, "Races", Recount)
        subject.run(code, detect_races=True)
    return Recount.made.conflicts()
