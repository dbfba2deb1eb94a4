"""Cubins: target, launch attributes, arguments and sections of an NVIDIA code object with one kernel.

NVIDIA does not document the format. The layout of `e_flags` is as in LLVM's ELF definitions; sections and attributes
were compared with what `cuobjdump` and `ptxas -v` print for files made by CUDA 12.9 and 13.4. What is not understood is
not guessed: such sections count by their bytes, so that the identity errs towards "different". From sm_100 on that
shows: the second encoding of the code (`.nv.merc.*`, `.nv.capmerc.*`) changes when line information is added, and the
identity with it.
"""

from __future__ import annotations

import json

from aotkern.codeobject import nvinfo
from aotkern.codeobject.elf import Image, RawSection, Symbol
from aotkern.codeobject.facts import Argument, CodeObject, Resources, Role, Section
from aotkern.codeobject.nvinfo import Attribute, Entry
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.target import Target

_INFO = ".nv.info"
_TEXT = ".text."
_FIRST_LAYOUT = (0x33, 7)
_SECOND_LAYOUT = (0x41, 8)
_WARP = 32
_PARAMETER_BYTES = 12

# From compute capability 9.0 on, the assembler adds to the size of `.nv.shared.*` what the system takes of each block
# (CUDA programming guide, "shared memory"); `ptxas -v` and the driver do not count it.
_RESERVED_SHARED_BYTES = 1024
_RESERVES_SHARED_FROM = 90

# `.note.nv.tkinfo` holds the assembler's version and command line.
_DEBUG = {".comment", ".symtab", ".strtab", ".shstrtab", ".note.nv.tkinfo"}
_DEBUG_PREFIXES = (".debug", ".nv_debug")


def read(image: Image) -> CodeObject:
    """The facts of a parsed cubin.

    Raises:
        IntegrityError: A part is missing or damaged, there is not exactly one kernel, or parts contradict each other.
    """
    found = target(image)
    symbols = image.symbols(".symtab")
    symbol = _kernel(image, symbols)
    listed = {name: nvinfo.entries(image, image.section(name)) for name in (_INFO, f"{_INFO}.{symbol}")}
    general, special = listed.values()
    sections = (_section(image, item, symbols, listed.get(item.name)) for item in image.sections)
    kernarg_bytes = _kernarg_bytes(image, special)
    return CodeObject(
        target=found,
        symbol=symbol,
        e_flags=image.flags,
        abi_version=image.abi_version,
        sections=tuple(sorted(sections, key=lambda item: item.name)),
        resources=_resources(image, found, symbol, _of_kernel(image, general, symbols, symbol), special),
        arguments=_arguments(image, special, kernarg_bytes),
        kernarg_bytes=kernarg_bytes,
    )


def target(image: Image) -> Target:
    """The target of a cubin, from its ELF header alone.

    Code for `sm_90` and for `sm_90a` have one target, since both run on devices of compute capability 9.0 only; what
    tells them apart is part of the identity.

    Raises:
        IntegrityError: An unknown layout, or an architecture that aotkern does not know.
    """
    layout = (image.os_abi, image.abi_version)
    if layout not in {_FIRST_LAYOUT, _SECOND_LAYOUT}:
        expected = (
            f"{_FIRST_LAYOUT[0]} with version {_FIRST_LAYOUT[1]}, or {_SECOND_LAYOUT[0]} with {_SECOND_LAYOUT[1]}"
        )
        raise image.refusal("EI_OSABI", expected, f"{layout[0]} with version {layout[1]}")
    number = image.flags & 0xFF if layout == _FIRST_LAYOUT else image.flags >> 8 & 0xFF
    try:
        return Target.parse(f"cuda:{number}", f"{image.where}: e_flags")
    except InputError as error:
        raise image.refusal("e_flags", error.problems[0].expected, f"{image.flags:#x}, sm_{number}") from None


def _kernel(image: Image, symbols: tuple[Symbol, ...]) -> str:
    """The name of the one kernel: the one code section's, with a function symbol of that name in it."""
    names = [item.name.removeprefix(_TEXT) for item in image.sections if item.name.startswith(_TEXT)]
    if len(names) != 1:
        raise image.refusal("sections", f"one section {_TEXT}*", f"{len(names)}: {', '.join(names)}"[:200])
    code = image.section(_TEXT + names[0])
    found = [item for item in symbols if item.name == names[0] and item.kind == "STT_FUNC"]
    if len(found) != 1 or found[0].section != code.index or found[0].value + found[0].size > len(code.data):
        raise image.refusal(f".symtab/{names[0]}", f"one function inside {code.name}", str(found)[:200])
    return names[0]


def _of_kernel(image: Image, found: tuple[Entry, ...], symbols: tuple[Symbol, ...], name: str) -> dict[int, int]:
    """The numbers that `.nv.info` gives for the kernel, by attribute; its other functions have their own."""
    numbers: dict[int, int] = {}
    for entry in found:
        words = entry.words()
        if entry.refers_to_symbol and len(words) > 1 and _symbol(image, symbols, words[0]).name == name:
            numbers[entry.attribute] = words[1]
    return numbers


def _symbol(image: Image, symbols: tuple[Symbol, ...], index: int) -> Symbol:
    if index >= len(symbols):
        raise image.refusal(_INFO, f"the index of one of {len(symbols)} symbols", str(index))
    return symbols[index]


def _resources(
    image: Image, found: Target, symbol: str, general: dict[int, int], special: tuple[Entry, ...]
) -> Resources:
    if Attribute.REGCOUNT not in general:
        raise image.refusal(_INFO, f"EIATTR_REGCOUNT of {symbol}", "none")
    shared = image.find(f".nv.shared.{symbol}")
    reserved = _RESERVED_SHARED_BYTES if int(found.arch) >= _RESERVES_SHARED_FROM else 0
    return Resources(
        vgprs=general[Attribute.REGCOUNT],
        agprs=0,
        sgprs=0,
        vgpr_spills=0,
        sgpr_spills=0,
        scratch_bytes=max(general.get(Attribute.FRAME_SIZE, 0), general.get(Attribute.MIN_STACK_SIZE, 0)),
        lds_bytes=max(shared.size - reserved, 0) if shared else 0,
        wave=_WARP,
        max_threads=_threads(image, special),
    )


def _threads(image: Image, special: tuple[Entry, ...]) -> int:
    """The block size that the code requires, else the largest that it allows, else 0."""
    for attribute in (Attribute.REQNTID, Attribute.MAX_THREADS):
        for entry in special:
            if entry.attribute != attribute:
                continue
            x, y, z, *_ = *entry.words(), 0, 0, 0
            if not 0 < x * y * z < 1 << 32:
                raise image.refusal(f"{_INFO}/{attribute.name}", "three numbers of threads", entry.value.hex()[:100])
            return x * y * z
    return 0


def _kernarg_bytes(image: Image, special: tuple[Entry, ...]) -> int:
    """The size of the parameters, which two attributes must state alike; 0 for a kernel without parameters."""
    sizes = {
        int.from_bytes(entry.value[:2], "little") if entry.attribute == Attribute.CBANK_PARAM_SIZE else _high(entry)
        for entry in special
        if entry.attribute in {Attribute.CBANK_PARAM_SIZE, Attribute.PARAM_CBANK}
    }
    if len(sizes) > 1:
        raise image.refusal(f"{_INFO}/CBANK_PARAM_SIZE", "the size that PARAM_CBANK states", str(sorted(sizes)))
    return sizes.pop() if sizes else 0


def _high(entry: Entry) -> int:
    """The upper half of the second word of `PARAM_CBANK`: the size in bytes; the lower half is where they begin."""
    return int.from_bytes(entry.value[6:8], "little")


def _arguments(image: Image, special: tuple[Entry, ...], kernarg_bytes: int) -> tuple[Argument, ...]:
    """The parameters, whose ordinals, offsets and sizes must fit together."""
    found: list[tuple[int, Argument]] = []
    for entry in special:
        if entry.attribute != Attribute.KPARAM_INFO:
            continue
        if len(entry.value) != _PARAMETER_BYTES:
            raise image.refusal(f"{_INFO}/KPARAM_INFO", f"{_PARAMETER_BYTES} bytes", entry.value.hex()[:100])
        _, place, bits = entry.words()
        found.append((place & 0xFFFF, Argument(place >> 16, bits >> 18, "by_value")))
    found.sort(key=lambda item: item[0])
    end = 0
    for expected, (ordinal, argument) in enumerate(found):
        if ordinal != expected or argument.offset < end or not argument.size:
            shown = f"ordinal {ordinal}, {argument.size} bytes at {argument.offset}"
            raise image.refusal(f"{_INFO}/KPARAM_INFO", f"ordinal {expected} from byte {end} on", shown)
        end = argument.offset + argument.size
    if end != kernarg_bytes:
        raise image.refusal(f"{_INFO}/KPARAM_INFO", f"parameters of {kernarg_bytes} bytes together", f"{end} bytes")
    return tuple(argument for _, argument in found)


def _section(
    image: Image, section: RawSection, symbols: tuple[Symbol, ...], listed: tuple[Entry, ...] | None
) -> Section:
    content: bytes | memoryview = section.data
    if listed is not None:
        content = json.dumps([_plain(image, entry, symbols) for entry in listed], separators=(",", ":")).encode()
    return Section(section.name, _role(section.name), section.size, Digest.of(content), section.flags)


def _plain(image: Image, entry: Entry, symbols: tuple[Symbol, ...]) -> list[object]:
    """An attribute for the identity: a symbol by name and address, since its index depends on debug sections."""
    if not entry.refers_to_symbol:
        return [entry.form, entry.attribute, entry.value.hex()]
    symbol = _symbol(image, symbols, entry.words()[0])
    return [entry.form, entry.attribute, entry.value[4:].hex(), symbol.name, symbol.value]


def _role(name: str) -> Role:
    # sm_100 and later repeat sections for a second encoding of the code, with this prefix.
    bare = name.removeprefix(".nv.merc")
    if bare in _DEBUG or bare.removeprefix(".rela").removeprefix(".rel").startswith(_DEBUG_PREFIXES):
        return Role.DEBUG
    return Role.CODE if name.startswith((_TEXT, ".nv.capmerc.text.")) else Role.DESCRIPTOR
