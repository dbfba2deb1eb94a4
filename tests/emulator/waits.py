"""Code with a wait or a barrier taken out: where they stand, and whether it matters."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aotkern.codeobject import elf
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.kernel import Kernel
from aotkern.errors import AotkernError

_NOP = 0xBF800000  # s_nop 0


def instructions(code: bytes) -> Iterator[tuple[int, Instruction]]:
    """The instructions of an HSACO with their places in the file."""
    kernel = Kernel.read(code)
    loads = elf.parse(code, "").loads
    load = next(one for one in loads if one.address <= kernel.text[0] < one.address + one.size)
    start, end = kernel.text
    text = listing(kernel.image[start:end], kernel.target, start)
    at = kernel.entry
    while at < end:
        try:
            found = text.at(at)
        except AotkernError:
            return
        yield at - load.address + load.offset, found
        at = found.end


def without(code: bytes, *places: int) -> bytes:
    """The code with `s_nop` in some places of the file."""
    changed = bytearray(code)
    for place in places:
        struct.pack_into("<I", changed, place, _NOP)
    return bytes(changed)


def places(code: bytes, name: str) -> list[int]:
    """Where instructions of a name stand in the file."""
    return [place for place, found in instructions(code) if found.name == name]
