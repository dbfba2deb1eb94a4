"""Edits of ELF files, for tests that damage them. Written against the ELF specification, not against the reader."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A number at a place in a record."""

    at: int
    size: int


HEADER = {
    "e_type": Field(16, 2),
    "e_machine": Field(18, 2),
    "e_phoff": Field(32, 8),
    "e_shoff": Field(40, 8),
    "e_flags": Field(48, 4),
    "e_phentsize": Field(54, 2),
    "e_phnum": Field(56, 2),
    "e_shentsize": Field(58, 2),
    "e_shnum": Field(60, 2),
    "e_shstrndx": Field(62, 2),
}
SECTION = {
    "sh_name": Field(0, 4),
    "sh_type": Field(4, 4),
    "sh_flags": Field(8, 8),
    "sh_addr": Field(16, 8),
    "sh_offset": Field(24, 8),
    "sh_size": Field(32, 8),
    "sh_link": Field(40, 4),
}
SEGMENT = {
    "p_type": Field(0, 4),
    "p_offset": Field(8, 8),
    "p_vaddr": Field(16, 8),
    "p_filesz": Field(32, 8),
    "p_memsz": Field(40, 8),
}
SYMBOL = {
    "st_name": Field(0, 4),
    "st_info": Field(4, 1),
    "st_shndx": Field(6, 2),
    "st_value": Field(8, 8),
    "st_size": Field(16, 8),
}
SECTION_BYTES, SEGMENT_BYTES, SYMBOL_BYTES = 64, 56, 24


def get(data: bytes, field: Field, base: int = 0) -> int:
    """The number of `field` in the record at `base`."""
    return int.from_bytes(data[base + field.at : base + field.at + field.size], "little")


def put(data: bytes, field: Field, value: int, base: int = 0) -> bytes:
    """The file with that number changed, cut to the field's size."""
    number = (value % (1 << 8 * field.size)).to_bytes(field.size, "little")
    at = base + field.at
    return data[:at] + number + data[at + field.size :]


def splice(data: bytes, at: int, new: bytes) -> bytes:
    """The file with the bytes at `at` overwritten."""
    return data[:at] + new + data[at + len(new) :]


def section_bases(data: bytes) -> dict[str, int]:
    """Where each section header stands, by name."""
    start, count = get(data, HEADER["e_shoff"]), get(data, HEADER["e_shnum"])
    bases = [start + SECTION_BYTES * index for index in range(count)]
    names = get(data, SECTION["sh_offset"], bases[get(data, HEADER["e_shstrndx"])])
    found = {}
    for base in bases:
        at = names + get(data, SECTION["sh_name"], base)
        found[data[at : data.index(b"\0", at)].decode()] = base
    return found


def extent(data: bytes, name: str) -> tuple[int, int]:
    """Offset and size of a section."""
    base = section_bases(data)[name]
    return get(data, SECTION["sh_offset"], base), get(data, SECTION["sh_size"], base)


def symbol_bases(data: bytes, table: str) -> dict[str, int]:
    """Where each named symbol of a table stands."""
    (start, size), (names, _) = extent(data, table), extent(data, ".dynstr" if table == ".dynsym" else ".strtab")
    found = {}
    for base in range(start, start + size, SYMBOL_BYTES):
        at = names + struct.unpack_from("<I", data, base)[0]
        found[data[at : data.index(b"\0", at)].decode()] = base
    return found
