"""Damaged code in one process: 4,000 flips of bits, and no crash: an instruction, or an error that names the place."""

from __future__ import annotations

import random

import pytest
from test_static import compiled, text_of

from aotkern.emulator.disassembler import Listing
from aotkern.emulator.kernel import Kernel
from aotkern.errors import EmulatorError


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_flipped_bits_never_crash_the_decoder(arch: str) -> None:
    rng = random.Random(7)
    kernel = Kernel.read(compiled(arch, "add"))
    start, end = kernel.text
    good, refused = 0, 0
    for _ in range(20):  # 100 flips in each of 20 copies of the text
        text = bytearray(kernel.image[start:end])
        for _ in range(100):
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
        listing = Listing(bytes(text), kernel.target, start)
        for place in range(start, end, 4):
            try:
                good += len(listing.at(place).code) > 0
            except EmulatorError as error:
                refused += "no instruction" in error.reason
    assert good + refused == 20 * ((end - start) // 4), "every place is one or the other"
    assert good > 1000
    assert refused > 100
    assert text_of(compiled(arch, "add"))
