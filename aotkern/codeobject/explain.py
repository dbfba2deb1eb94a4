"""What differs between two code objects, field by field, in the names that LLVM and NVIDIA give them.

An identity says that descriptors or notes differ. This says how: a field of the kernel descriptor, a value of the
metadata note, a feature in the ELF flags, an attribute of a cubin, each with both values. What has no name is placed
by its byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aotkern.codeobject import amdgpu, descriptor, elf, note, nvinfo
from aotkern.codeobject.descriptor import KernelDescriptor
from aotkern.codeobject.elf import Image
from aotkern.codeobject.facts import CodeObject
from aotkern.target import Backend

_NAMES = {int(item): f"EIATTR_{item.name}" for item in nvinfo.Attribute}

Change = list[Any]
Changes = dict[str, dict[str, Change]]


def features(before: CodeObject, after: CodeObject) -> dict[str, Change]:
    """What the ELF flags say otherwise, by name; values are texts."""
    old, new = before.target, after.target
    rows = {"machine": [str(old.arch), str(new.arch)]}
    if old.backend is Backend.HIP and new.backend is Backend.HIP:
        rows["xnack"] = [old.xnack.name.lower(), new.xnack.name.lower()]
        rows["sramecc"] = [old.sramecc.name.lower(), new.sramecc.name.lower()]
    return {name: values for name, values in rows.items() if values[0] != values[1]}


def changes(before: bytes, after: bytes, where: str) -> Changes:
    """The fields that differ outside of the machine code, by part (`descriptor`, `metadata`, `attributes`, `data`).

    Args:
        before: A code object.
        after: Another.
        where: What to call them in an error.

    Raises:
        IntegrityError: One cannot be read.
    """
    images = [elf.parse(data, where) for data in (before, after)]
    machines = {image.machine for image in images}
    if machines == {elf.AMDGPU}:
        return _amd(*images)
    return _nvidia(*images) if machines == {elf.CUDA} else {}


def _amd(before: Image, after: Image) -> Changes:
    found: Changes = {}
    documents = [note.metadata(image, image.section(".note")) for image in (before, after)]
    laid_out = [_descriptor(image, document) for image, document in zip((before, after), documents, strict=True)]
    _put(found, "descriptor", *(descriptor.fields(one) for one in laid_out))
    _put(found, "metadata", *(dict(_flat(document, "")) for document in documents))
    named = {".note", ".text", ".rodata"} if "descriptor" in found else {".note", ".text"}
    _put(found, "data", *(_bytes(image, named) for image in (before, after)))
    return found


def _descriptor(image: Image, document: dict[str, Any]) -> KernelDescriptor:
    name = note.text(image, note.single_kernel(image, document), ".symbol")
    return amdgpu.descriptor(image, name.removesuffix(".kd"))


def _nvidia(before: Image, after: Image) -> Changes:
    found: Changes = {}
    _put(found, "attributes", *(dict(_attributes(image)) for image in (before, after)))
    _put(found, "flags", *({s.name: f"{s.flags:#x}" for s in image.sections} for image in (before, after)))
    _put(found, "data", *(_bytes(image, set()) for image in (before, after)))
    return found


def _put(found: Changes, part: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    rows: dict[str, Change] = {}
    for name in sorted({*old, *new}):
        values = [old.get(name), new.get(name)]
        if values[0] == values[1]:
            continue
        if isinstance(values[0], bytes) or isinstance(values[1], bytes):
            rows.update(_first_byte(name, *values))
        else:
            rows[name] = values
    if rows:
        found[part] = rows


def _first_byte(name: str, old: bytes | None, new: bytes | None) -> dict[str, Change]:
    """A section by its first byte that differs, or by its size where one side is longer or alone."""
    if old is not None and new is not None:
        pairs = enumerate(zip(old, new, strict=False))
        at = next((place for place, (one, other) in pairs if one != other), None)
        if at is not None:
            return {f"{name} byte {at:#x}": [f"{old[at]:#04x}", f"{new[at]:#04x}"]}
    return {f"{name} size": [None if one is None else len(one) for one in (old, new)]}


def _flat(value: object, name: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a metadata document by its path: `.sgpr_spill_count`, `.args[2].offset`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}{key}")
    elif isinstance(value, list):
        single = name == "amdhsa.kernels" and len(value) == 1
        for place, inner in enumerate(value):
            yield from _flat(inner, "" if single else f"{name}[{place}]")
    else:
        yield name, value


def _bytes(image: Image, besides: set[str]) -> dict[str, bytes]:
    """Loaded sections that are neither code nor named by their fields."""
    named = {*besides, ".nv.info"}
    other = (".text", ".nv.info", ".dyn", ".hash", ".gnu.hash", ".relro_padding")
    return {
        section.name: bytes(section.data)
        for section in image.sections
        if section.allocated and section.name not in named and not section.name.startswith(other)
    }


def _attributes(image: Image) -> Iterator[tuple[str, str]]:
    for section in image.sections:
        if section.name.startswith(".nv.info"):
            for place, entry in enumerate(nvinfo.entries(image, section)):
                name = _NAMES.get(entry.attribute, f"attribute {entry.attribute:#x}")
                yield f"{section.name} [{place}] {name}", entry.value.hex()
