"""Bounded reading of ELF files that may be damaged or hostile.

pyelftools says what the records look like; this module decides which of them to believe. It takes 64-bit little-endian
files only, checks every offset, size, count and name against the file before using it, refuses files in which two
sections claim the same bytes, and raises one `IntegrityError` for whatever is wrong. Time and memory are linear in the
file's size. What the sections mean is for `amdgpu` and `nvidia` to say.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

# Not `elftools.elf.elffile`: it imports the DWARF readers, which costs three times as much.
from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.structs import ELFStructs

from aotkern.errors import IntegrityError, ProblemsError

AMDGPU = "EM_AMDGPU"
CUDA = "EM_CUDA"

MAX_FILE_BYTES = 256 << 20
MAX_SECTIONS = 1024
MAX_SYMBOLS = 16_384
MAX_NAME_BYTES = 4096

_HEADER_BYTES = 64
_SECTION_HEADER_BYTES = 64
_PROGRAM_HEADER_BYTES = 56
_SYMBOL_BYTES = 24
_IDENT = {4: ("EI_CLASS", "2 (64-bit)", 2), 5: ("EI_DATA", "1 (little-endian)", 1), 6: ("EI_VERSION", "1", 1)}

SHF_ALLOC = 0x2
NOBITS = "SHT_NOBITS"


@dataclass(frozen=True, slots=True)
class RawSection:
    """One section header with the bytes that it points to.

    Attributes:
        index: Its place among the section headers.
        name: Its name.
        kind: `SHT_...` where pyelftools knows the type, else the number in decimal.
        flags: `sh_flags`.
        address: `sh_addr`, where it is loaded.
        offset: `sh_offset`, where its bytes stand in the file.
        size: `sh_size`; for `NOBITS` the bytes it reserves.
        link: `sh_link`.
        data: The bytes; empty for `NOBITS`.
    """

    index: int
    name: str
    kind: str
    flags: int
    address: int
    offset: int
    size: int
    link: int
    data: memoryview

    @property
    def allocated(self) -> bool:
        """Whether it is part of what is loaded."""
        return bool(self.flags & SHF_ALLOC)


@dataclass(frozen=True, slots=True)
class Symbol:
    """One symbol.

    Attributes:
        name: Its name, which may be empty.
        kind: `STT_FUNC`, `STT_OBJECT`, ...; a number in decimal where pyelftools knows no name.
        value: Its address.
        size: Its size in bytes.
        section: Index of its section, or None where it has none (undefined, absolute).
    """

    name: str
    kind: str
    value: int
    size: int
    section: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """One `PT_LOAD` segment: the `size` bytes at `offset` of the file go to `address`, followed by zeros.

    Attributes:
        offset: `p_offset`.
        address: `p_vaddr`.
        size: `p_filesz`.
        end: The first address behind it.
    """

    offset: int
    address: int
    size: int
    end: int


@dataclass(frozen=True, slots=True)
class Image:
    """A parsed file.

    Attributes:
        where: What to call the file in errors.
        machine: `e_machine` as pyelftools spells it, or its number.
        os_abi: `EI_OSABI`.
        abi_version: `EI_ABIVERSION`.
        flags: `e_flags`.
        sections: The named sections, in the order of their headers; names are unique.
        loads: The segments that a loader maps.
    """

    where: str
    machine: str
    os_abi: int
    abi_version: int
    flags: int
    sections: tuple[RawSection, ...]
    loads: tuple[Load, ...]

    def refusal(self, field: str, expected: str, found: str) -> ProblemsError:
        """The error that says what is wrong with `field` of this file."""
        return IntegrityError.one(f"{self.where}: {field}", expected, found)

    def find(self, name: str) -> RawSection | None:
        """The section of this name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def section(self, name: str) -> RawSection:
        """The section of this name.

        Raises:
            IntegrityError: There is none.
        """
        found = self.find(name)
        if found is None:
            raise self.refusal("sections", f"a section {name}", "none of that name")
        return found

    def symbols(self, table: str) -> tuple[Symbol, ...]:
        """The symbols of a symbol table, the first and empty one included, so that places are symbol indices.

        Raises:
            IntegrityError: There is no such table, or it or its names are damaged.
        """
        section = self.section(table)
        count, rest = divmod(section.size, _SYMBOL_BYTES)
        if rest or count > MAX_SYMBOLS or section.kind not in {"SHT_SYMTAB", "SHT_DYNSYM"}:
            expected = f"at most {MAX_SYMBOLS} symbols of {_SYMBOL_BYTES} bytes"
            raise self.refusal(table, expected, f"{section.size} bytes of type {section.kind}")
        names = next((item for item in self.sections if item.index == section.link), None)
        if names is None or names.kind != "SHT_STRTAB":
            raise self.refusal(f"{table}/sh_link", "the index of a string table", str(section.link))
        records = _records("Elf_Sym", io.BytesIO(section.data), count, f"{self.where}: {table}")
        return tuple(self._symbol(table, place, record, names) for place, record in enumerate(records))

    def _symbol(self, table: str, place: int, record: Any, names: RawSection) -> Symbol:
        name = _name(names.data, record.st_name, f"{self.where}: {table}[{place}]/st_name")
        section = record.st_shndx if isinstance(record.st_shndx, int) else None
        return Symbol(name, str(record.st_info.type), record.st_value, record.st_size, section)


@cache
def _structs() -> ELFStructs:
    structs = ELFStructs(little_endian=True, elfclass=64)
    structs.create_basic_structs()
    structs.create_advanced_structs()
    return structs


def parse(data: bytes, where: str) -> Image:
    """Check and read a file's header and section headers.

    Args:
        data: The whole file.
        where: What to call the file in errors.

    Raises:
        IntegrityError: Not a 64-bit little-endian ELF file, too large, cut, or with headers that cannot be right.
    """
    if len(data) > MAX_FILE_BYTES:
        raise IntegrityError.one(f"{where}: size", f"at most {MAX_FILE_BYTES} bytes", str(len(data)))
    if len(data) < _HEADER_BYTES or data[:4] != b"\x7fELF":
        raise IntegrityError.one(f"{where}: e_ident", "an ELF header of 64 bytes", _shown(data))
    for place, (field, expected, value) in _IDENT.items():
        if data[place] != value:
            raise IntegrityError.one(f"{where}: {field}", expected, str(data[place]))
    (header,) = _records("Elf_Ehdr", io.BytesIO(data[:_HEADER_BYTES]), 1, f"{where}: header")
    records = _section_records(data, header, where)
    loads = _loads(data, header, where)
    _check_extents(data, header, records, where)
    sections = _named(data, header.e_shstrndx, records, where)
    return Image(where, str(header.e_machine), data[7], data[8], header.e_flags, sections, loads)


def _records(kind: str, stream: io.BytesIO, count: int, where: str) -> list[Any]:
    """Consecutive records as pyelftools reads them; its own errors do not leave this module."""
    layout = getattr(_structs(), kind)
    try:
        return [struct_parse(layout, stream) for _ in range(count)]
    except ELFError as error:
        raise IntegrityError.one(where, f"{count} records {kind}", str(error)[:200]) from error


def _table(data: bytes, offset: int, count: int, size: int, where: str) -> io.BytesIO:
    """A stream over `count` records of `size` bytes at `offset`, which must lie inside the file."""
    end = offset + count * size
    if offset < _HEADER_BYTES or end > len(data):
        found = f"{count} entries of {size} bytes at {offset}"
        raise IntegrityError.one(where, f"a table between bytes {_HEADER_BYTES} and {len(data)}", found)
    return io.BytesIO(data[offset:end])


def _section_records(data: bytes, header: Any, where: str) -> list[Any]:
    if header.e_shentsize != _SECTION_HEADER_BYTES:
        raise IntegrityError.one(f"{where}: e_shentsize", str(_SECTION_HEADER_BYTES), str(header.e_shentsize))
    if not 1 < header.e_shnum <= MAX_SECTIONS:
        raise IntegrityError.one(f"{where}: e_shnum", f"2 to {MAX_SECTIONS} section headers", str(header.e_shnum))
    stream = _table(data, header.e_shoff, header.e_shnum, _SECTION_HEADER_BYTES, f"{where}: e_shoff")
    records = _records("Elf_Shdr", stream, header.e_shnum, f"{where}: section headers")
    for index, record in enumerate(records):
        end = record.sh_offset + (0 if record.sh_type == NOBITS else record.sh_size)
        if end > len(data) or record.sh_size > MAX_FILE_BYTES:
            found = f"{record.sh_size} bytes at {record.sh_offset}"
            raise IntegrityError.one(f"{where}: section[{index}]", f"bytes inside a file of {len(data)}", found)
        if record.sh_flags >> 32:
            raise IntegrityError.one(f"{where}: section[{index}]/sh_flags", "32 bits", hex(record.sh_flags))
    return records


def _check_extents(data: bytes, header: Any, records: list[Any], where: str) -> None:
    """No two sections, and no section and the headers, may claim the same bytes.

    One exception is real: cubins for sm_100 and later give the same debug text two names. So sections that are not
    loaded may share an extent exactly, as long as all sections together are no more than twice the file.
    """
    table = header.e_shoff
    extents = {
        (0, _HEADER_BYTES, "the ELF header"),
        (table, table + header.e_shnum * _SECTION_HEADER_BYTES, "the section headers"),
    }
    total = 0
    for index, record in enumerate(records):
        if not record.sh_size or record.sh_type in {NOBITS, "SHT_NULL"}:
            continue
        total += record.sh_size
        name = f"section[{index}]" if record.sh_flags & SHF_ALLOC else "a section that is not loaded"
        extents.add((record.sh_offset, record.sh_offset + record.sh_size, name))
    if total > 2 * len(data):
        raise IntegrityError.one(f"{where}: sections", f"at most twice the file's {len(data)} bytes", f"{total} bytes")
    for (_, end, name), (start, _, follower) in pairwise(sorted(extents)):
        if start < end:
            raise IntegrityError.one(
                f"{where}: {follower}", f"bytes from {end} on, after {name}", f"bytes from {start}"
            )


def _loads(data: bytes, header: Any, where: str) -> tuple[Load, ...]:
    """The `PT_LOAD` segments; a file need not have program headers."""
    if not header.e_phnum:
        return ()
    if header.e_phentsize != _PROGRAM_HEADER_BYTES or header.e_phnum > MAX_SECTIONS:
        found = f"{header.e_phnum} entries of {header.e_phentsize} bytes"
        raise IntegrityError.one(f"{where}: e_phnum", f"at most {MAX_SECTIONS} of {_PROGRAM_HEADER_BYTES} bytes", found)
    stream = _table(data, header.e_phoff, header.e_phnum, _PROGRAM_HEADER_BYTES, f"{where}: e_phoff")
    records = _records("Elf_Phdr", stream, header.e_phnum, f"{where}: program headers")
    for index, record in enumerate(records):
        if record.p_offset + record.p_filesz > len(data) or record.p_memsz > MAX_FILE_BYTES:
            found = f"{record.p_filesz} bytes at {record.p_offset}, {record.p_memsz} in memory"
            raise IntegrityError.one(f"{where}: segment[{index}]", f"bytes inside a file of {len(data)}", found)
    loaded = (record for record in records if record.p_type == "PT_LOAD")
    return tuple(
        Load(record.p_offset, record.p_vaddr, record.p_filesz, record.p_vaddr + max(record.p_memsz, record.p_filesz))
        for record in loaded
    )


def _named(data: bytes, names_index: int, records: list[Any], where: str) -> tuple[RawSection, ...]:
    """The sections with their names and bytes; the null section is left out."""
    if not 0 < names_index < len(records) or records[names_index].sh_type != "SHT_STRTAB":
        raise IntegrityError.one(f"{where}: e_shstrndx", "the index of a string table", str(names_index))
    view = memoryview(data)
    table = records[names_index]
    names = view[table.sh_offset : table.sh_offset + table.sh_size]
    sections: dict[str, RawSection] = {}
    for index, record in enumerate(records):
        if record.sh_type == "SHT_NULL":
            continue
        name = _name(names, record.sh_name, f"{where}: section[{index}]/sh_name")
        if not name or name in sections:
            raise IntegrityError.one(f"{where}: section[{index}]/sh_name", "a name of its own", repr(name)[:100])
        size = 0 if record.sh_type == NOBITS else record.sh_size
        sections[name] = RawSection(
            index=index,
            name=name,
            kind=str(record.sh_type),
            flags=record.sh_flags,
            address=record.sh_addr,
            offset=record.sh_offset,
            size=record.sh_size,
            link=record.sh_link,
            data=view[record.sh_offset : record.sh_offset + size],
        )
    return tuple(sections.values())


def _name(table: memoryview, offset: int, where: str) -> str:
    """The name at `offset` of a string table: ASCII, ended by a zero byte, not absurdly long."""
    piece = bytes(table[offset : offset + MAX_NAME_BYTES])
    raw, end, _ = piece.partition(b"\0")
    if not end or not raw.isascii():
        expected = f"an ASCII name of at most {MAX_NAME_BYTES - 1} bytes that ends inside its table"
        raise IntegrityError.one(where, expected, f"offset {offset} of {len(table)}, {raw[:40]!r}")
    return raw.decode("ascii")


def _shown(data: bytes) -> str:
    return f"{len(data)} bytes beginning with {data[:8].hex() or 'nothing'}"
