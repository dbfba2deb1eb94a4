"""HSACO files: target, kernel descriptor and metadata note of an AMD code object, checked against each other.

Sources: LLVM's "User Guide for AMDGPU Backend": ELF header flags, code object metadata, kernel descriptor. Covered are
code object versions 4 to 6 for gfx942 and gfx950 with exactly one kernel, which is what Triton makes.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from aotkern.codeobject import note as notes
from aotkern.codeobject.descriptor import BYTES, KernelDescriptor
from aotkern.codeobject.elf import Image, RawSection, Symbol
from aotkern.codeobject.facts import Argument, CodeObject, Resources, Role, Section
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.target import Backend, Feature, Target

_OS_ABI = 64
_ABI_VERSIONS = (2, 3, 4)
_MACHINES = {0x4C: "gfx942", 0x4F: "gfx950"}
_KNOWN_FLAGS = 0xFFF
_ENTRY_ALIGNMENT = 256
_FEATURES = {1: Feature.ANY, 2: Feature.OFF, 3: Feature.ON}

_LINKAGE = {".dynsym", ".dynstr", ".hash", ".gnu.hash", ".dynamic", ".relro_padding"}
_DEBUG = {".comment", ".symtab", ".strtab", ".shstrtab"}
_NOTE_TARGET = re.compile(r"-(gfx[0-9a-f]+(?::(?:sramecc|xnack)[+-])*)", re.ASCII)


def read(image: Image) -> CodeObject:
    """The facts of a parsed HSACO.

    Raises:
        IntegrityError: A part is missing or damaged, or header, symbols, descriptor and note contradict each other.
    """
    found = target(image)
    _check_mapping(image)
    metadata = notes.metadata(image, image.section(".note"))
    kernel = notes.single_kernel(image, metadata)
    _check_note_target(image, metadata, found)
    symbol = _symbol_name(image, kernel)
    laid_out = descriptor(image, symbol)
    _check_agreement(image, kernel, laid_out)
    return CodeObject(
        target=found,
        symbol=symbol,
        e_flags=image.flags,
        abi_version=image.abi_version,
        sections=tuple(sorted((_section(item, metadata) for item in image.sections), key=lambda item: item.name)),
        resources=_resources(kernel, laid_out),
        arguments=_arguments(image, kernel, laid_out.kernarg_bytes),
        kernarg_bytes=laid_out.kernarg_bytes,
    )


def target(image: Image) -> Target:
    """The target of an HSACO, from its ELF header alone.

    Raises:
        IntegrityError: Not for an architecture that aotkern knows, or flags that cannot be right for it.
    """
    if image.os_abi != _OS_ABI or image.abi_version not in _ABI_VERSIONS:
        expected = f"{_OS_ABI} (AMD HSA) with version {', '.join(map(str, _ABI_VERSIONS))} (code object 4 to 6)"
        raise image.refusal("EI_OSABI", expected, f"{image.os_abi} with version {image.abi_version}")
    flags = image.flags
    arch = _MACHINES.get(flags & 0xFF)
    xnack, sramecc = _FEATURES.get(flags >> 8 & 3), _FEATURES.get(flags >> 10 & 3)
    if arch is None or xnack is None or sramecc is None or flags & ~_KNOWN_FLAGS:
        known = ", ".join(f"{name} ({number:#x})" for number, name in _MACHINES.items())
        raise image.refusal("e_flags", f"{known} with xnack and sramecc each any, off or on", hex(flags))
    return Target(Backend.HIP, arch, sramecc=sramecc, xnack=xnack)


def descriptor(image: Image, symbol: str) -> KernelDescriptor:
    """The kernel descriptor of `symbol`, checked against the symbols and sections that it refers to.

    Raises:
        IntegrityError: It or the kernel's entry is not where the dynamic symbols say.
    """
    dynamic = image.symbols(".dynsym")
    where = f"{symbol}.kd"
    place, section = _placed(image, dynamic, where, "STT_OBJECT")
    offset = place.value - section.address
    if section.name != ".rodata" or place.size != BYTES or place.value % BYTES:
        found = f"{place.size} bytes at {place.value:#x} in {section.name}"
        raise image.refusal(where, f"{BYTES} aligned bytes in .rodata", found)
    laid_out = KernelDescriptor.parse(bytes(section.data[offset : offset + BYTES]), f"{image.where}: {where}")
    entry, code = _placed(image, dynamic, symbol, "STT_FUNC")
    begins_there = place.value + laid_out.entry_offset == entry.value and entry.value % _ENTRY_ALIGNMENT == 0
    if code.name != ".text" or not begins_there:
        found = f"{entry.value:#x} in {code.name}, entry offset {laid_out.entry_offset:#x} from {place.value:#x}"
        raise image.refusal(
            f"{where}/entry", f"the {_ENTRY_ALIGNMENT}-byte aligned address of {symbol} in .text", found
        )
    return laid_out


def _check_mapping(image: Image) -> None:
    """The loader maps segments, this module reads sections: both must mean the same bytes at the same addresses."""
    for first, second in pairwise(sorted(image.loads, key=lambda load: load.address)):
        if second.address < first.end:
            found = f"another one at {second.address:#x}"
            raise image.refusal("program headers", f"no segment before {first.end:#x}, after {first.address:#x}", found)
    for section in image.sections:
        if not section.allocated or not section.data:
            continue
        shift = section.address - section.offset
        if not any(
            load.address - load.offset == shift
            and load.offset <= section.offset
            and section.offset + section.size <= load.offset + load.size
            for load in image.loads
        ):
            found = f"{section.size} bytes at {section.offset} for {section.address:#x}"
            raise image.refusal(section.name, "bytes that a PT_LOAD segment maps to the section's address", found)


def _placed(image: Image, symbols: tuple[Symbol, ...], name: str, kind: str) -> tuple[Symbol, RawSection]:
    """The one symbol of this name with the section that holds all of its bytes."""
    found = [symbol for symbol in symbols if symbol.name == name]
    if len(found) != 1 or found[0].kind != kind:
        raise image.refusal(".dynsym", f"one {kind} symbol {name}", f"{[item.kind for item in found]}"[:200])
    symbol = found[0]
    section = next((item for item in image.sections if item.index == symbol.section), None)
    if section is None or not 0 <= symbol.value - section.address <= len(section.data) - symbol.size:
        found_at = f"{symbol.size} bytes at {symbol.value:#x} of section[{symbol.section}]"
        raise image.refusal(f".dynsym/{name}", "a place inside its section", found_at)
    return symbol, section


def _symbol_name(image: Image, kernel: dict[str, Any]) -> str:
    text = notes.text(image, kernel, ".symbol")
    if not text.endswith(".kd") or len(text) == len(".kd"):
        raise image.refusal(".note/.symbol", "the kernel's name and '.kd'", repr(text)[:100])
    return text.removesuffix(".kd")


def _check_note_target(image: Image, metadata: dict[str, Any], found: Target) -> None:
    text = notes.text(image, metadata, "amdhsa.target")
    match = _NOTE_TARGET.search(text)
    try:
        stated = Target.parse(f"hip:{match[1]}") if match and match.end() == len(text) else None
    except InputError:
        stated = None
    if stated != found:
        raise image.refusal(".note/amdhsa.target", f"the target of e_flags, {found}", repr(text)[:100])


def _check_agreement(image: Image, kernel: dict[str, Any], laid_out: KernelDescriptor) -> None:
    """What note and descriptor both state must be equal, and the registers that the note counts must be allocated."""
    for key, value in (
        (".group_segment_fixed_size", laid_out.group_bytes),
        (".private_segment_fixed_size", laid_out.private_bytes),
        (".kernarg_segment_size", laid_out.kernarg_bytes),
        (".wavefront_size", laid_out.wave),
    ):
        stated = notes.count(image, kernel, key)
        if stated != value:
            raise image.refusal(f".note/{key}", f"{value} as in the kernel descriptor", str(stated))
    vgprs, agprs = notes.count(image, kernel, ".vgpr_count"), notes.count(image, kernel, ".agpr_count")
    if not agprs <= vgprs <= laid_out.vgprs:
        expected = f"at most the {laid_out.vgprs} that the kernel descriptor allocates, {agprs} AGPRs among them"
        raise image.refusal(".note/.vgpr_count", expected, str(vgprs))


def _resources(kernel: dict[str, Any], laid_out: KernelDescriptor) -> Resources:
    return Resources(
        vgprs=kernel[".vgpr_count"],
        agprs=kernel[".agpr_count"],
        sgprs=kernel[".sgpr_count"],
        vgpr_spills=kernel[".vgpr_spill_count"],
        sgpr_spills=kernel[".sgpr_spill_count"],
        scratch_bytes=laid_out.private_bytes,
        lds_bytes=laid_out.group_bytes,
        wave=laid_out.wave,
        max_threads=kernel[".max_flat_workgroup_size"],
    )


def _arguments(image: Image, kernel: dict[str, Any], kernarg_bytes: int) -> tuple[Argument, ...]:
    found = []
    end = 0
    for place, item in enumerate(notes.arguments(image, kernel)):
        offset, size = notes.count(image, item, ".offset"), notes.count(image, item, ".size")
        argument = Argument(offset, size, notes.text(image, item, ".value_kind"))
        if argument.offset < end or not argument.size or argument.offset + argument.size > kernarg_bytes:
            expected = f"bytes between {end} and {kernarg_bytes}"
            raise image.refusal(f".note/.args[{place}]", expected, f"{argument.size} bytes at {argument.offset}")
        end = argument.offset + argument.size
        found.append(argument)
    return tuple(found)


def _section(section: RawSection, metadata: dict[str, Any]) -> Section:
    role = _role(section)
    content: bytes | memoryview = section.data
    if role is Role.METADATA:
        content = json.dumps(metadata, sort_keys=True, separators=(",", ":")).encode()
    return Section(section.name, role, section.size, Digest.of(content), section.flags)


def _role(section: RawSection) -> Role:
    name = section.name
    if name == ".text" or name.startswith(".text."):
        return Role.CODE
    if name == ".note":
        return Role.METADATA
    if name in _LINKAGE:
        return Role.LINKAGE
    # What is not loaded cannot change what runs: debug information, and LLVM's own notes to itself (.AMDGPU.*).
    return Role.DESCRIPTOR if section.allocated and name not in _DEBUG else Role.DEBUG
