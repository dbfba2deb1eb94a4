"""NVIDIA's `.nv.info` sections: a list of launch attributes, each with a format byte, a number and a value.

NVIDIA publishes the names of the attributes through `cuobjdump -elf`, not their layout. The few that are read here were
compared with what that tool and ptxas print; every other attribute is kept as bytes, for the identity only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from aotkern.codeobject.elf import Image, RawSection

MAX_ENTRIES = 65_536

_SIZED = 4
_FORMATS = (1, 2, 3, _SIZED)
_HEADER_BYTES = 4


class Attribute(IntEnum):
    """The attributes that are read, by NVIDIA's names without `EIATTR_`."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAX_STACK_SIZE = 0x23
    REGCOUNT = 0x2F


# Their value begins with the index of a symbol.
_OF_A_SYMBOL = {
    Attribute.PARAM_CBANK,
    Attribute.FRAME_SIZE,
    Attribute.MIN_STACK_SIZE,
    Attribute.MAX_STACK_SIZE,
    Attribute.REGCOUNT,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One attribute.

    Attributes:
        form: The format byte: 1 without value, 2 and 3 with a value of 8 or 16 bits, 4 with sized bytes.
        attribute: Its number.
        value: Its bytes; two for the formats without a size.
    """

    form: int
    attribute: int
    value: bytes

    def words(self) -> tuple[int, ...]:
        """The value as little-endian numbers of 32 bits; bytes that do not fill one are left out."""
        whole = len(self.value) // 4 * 4
        return tuple(int.from_bytes(self.value[at : at + 4], "little") for at in range(0, whole, 4))

    @property
    def refers_to_symbol(self) -> bool:
        """Whether the first word is a symbol's index."""
        return self.form == _SIZED and self.attribute in _OF_A_SYMBOL and len(self.value) >= _HEADER_BYTES


def entries(image: Image, section: RawSection) -> tuple[Entry, ...]:
    """All attributes of a section, in order.

    Raises:
        IntegrityError: An unknown format, a value that runs over the end, or more than `MAX_ENTRIES` attributes.
    """
    found: list[Entry] = []
    data, at = section.data, 0
    while at < len(data):
        header = bytes(data[at : at + _HEADER_BYTES])
        if len(found) == MAX_ENTRIES:
            raise image.refusal(section.name, f"at most {MAX_ENTRIES} attributes", "more")
        if len(header) != _HEADER_BYTES or header[0] not in _FORMATS:
            raise image.refusal(f"{section.name}[{at}]", "an attribute with format 1 to 4", header.hex())
        size = int.from_bytes(header[2:], "little") if header[0] == _SIZED else 0
        at += _HEADER_BYTES
        if at + size > len(data):
            raise image.refusal(f"{section.name}[{at}]", f"at most {len(data) - at} bytes", f"{size} bytes")
        found.append(Entry(header[0], header[1], bytes(data[at : at + size]) if header[0] == _SIZED else header[2:]))
        at += size
    return tuple(found)
