"""What the search for races keeps of memory: by pages, however large the memory is."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from aotkern.emulator.arena import PAGE, Region
from aotkern.emulator.shadow import Shadow

FAR = 9 << 30


class Large(Region):
    """A region without memory behind it."""

    def __init__(self, size: int, address: int = 0) -> None:
        super().__init__("a buffer", address, np.zeros(0, np.uint8), True)
        self.size, self.lead = size, address % 4


def test_large_memory_costs_what_is_touched_of_it() -> None:
    tracemalloc.start()
    shadow = Shadow(Large(FAR))
    offsets = np.array([0, (1 << 31) + 64, (1 << 32) + PAGE - 16, FAR - 16])
    coarse = shadow.pieces(offsets, 16)[:, 0]
    shadow.write[coarse] = [1, 2, 3, 4]
    fine = shadow.pieces(offsets + 3, 1)  # the finest pieces: what was kept stays where it was
    assert shadow.unit == 1
    assert shadow.write[fine[:, 0]].tolist() == [1, 2, 3, 4]
    assert [shadow.offset(int(piece)) for piece in fine[:, 0]] == (offsets + 3).tolist()
    before = shadow.pieces(offsets[1:] - 1, 1)[:, 0]
    assert shadow.write[before].tolist() == [0, 0, 0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.mark.parametrize("lead", [0, 1, 2, 3])
def test_pieces_of_an_access_go_on_in_the_next_page(lead: int) -> None:
    shadow = Shadow(Large(4 * PAGE, lead))
    start = PAGE - 8 - lead
    (pieces,) = shadow.pieces(np.array([start]), 16)
    assert [shadow.offset(int(piece)) for piece in pieces] == [start, start + 8]


def test_pieces_are_told_apart_by_their_places() -> None:
    shadow = Shadow(Large(64 * PAGE))
    offsets = np.random.default_rng(3).permutation(64 * PAGE // 4)[:5000] * 4
    pieces = np.concatenate([shadow.pieces(part, 4)[:, 0] for part in np.split(offsets, 50)])
    again = shadow.pieces(offsets, 4)[:, 0]
    assert (pieces == again).all()
    assert len(np.unique(pieces)) == len(offsets)
