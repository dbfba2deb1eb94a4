"""What changed since a code object of which only facts are kept, as in a golden manifest.

A manifest has no bytes of descriptors and notes, but their digests, and some of their values. So a change can be looked
for: of the code object at hand, one field is changed back at a time, and the digest says whether that was it. What is
found is certain; what is not found, because several fields changed together, stays unnamed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import product
from typing import Any

from aotkern.codeobject import amdgpu, descriptor, elf, note
from aotkern.codeobject.descriptor import FIELDS, Bits
from aotkern.codeobject.explain import Change, Changes
from aotkern.codeobject.facts import CodeObject, Section
from aotkern.digest import Digest

_PLACES = {
    "rsrc3": (44, "<I"),
    "rsrc1": (48, "<I"),
    "rsrc2": (52, "<I"),
    "properties": (56, "<H"),
    "preload": (58, "<H"),
}
_WIDEST = 10
# Fields that move together when a kernel takes other registers.
_TOGETHER = ("granulated_workitem_vgpr_count", "accum_offset")

_Value = int | None
_GUESSES: dict[str, tuple[_Value, ...]] = {
    ".uniform_work_group_size": (None, 0, 1),
    ".kernarg_segment_align": (None, 1, 2, 4, 8, 16, 32, 64, 128),
    ".uses_dynamic_stack": (None, False, True),
    ".workgroup_processor_mode": (None, 0, 1),
}


def changes(before: CodeObject, after: bytes, where: str) -> Changes:
    """The fields of descriptor and note that differ, as far as they can be told.

    Args:
        before: Facts of an AMD code object.
        after: Another code object, for the same back end.
        where: What to call it in an error.

    Raises:
        IntegrityError: It cannot be read.
    """
    image = elf.parse(after, where)
    if image.machine != elf.AMDGPU:
        return {}
    document = note.metadata(image, image.section(".note"))
    kernel = note.single_kernel(image, document)
    stated = {section.name: section for section in before.sections}
    found: Changes = {}
    if rows := _metadata(document, kernel, before, stated.get(".note")):
        found["metadata"] = rows
    symbol = note.text(image, kernel, ".symbol")
    (place,) = (item for item in image.symbols(".dynsym") if item.name == symbol)
    section = image.section(".rodata")
    at = place.value - section.address
    laid_out = amdgpu.descriptor(image, symbol.removesuffix(".kd"))
    content, expected = bytes(section.data), stated.get(".rodata")
    if expected is not None and expected.digest != Digest.of(content) and expected.size == len(content):
        # Sizes stand in the facts.
        sizes = before.resources.lds_bytes, before.resources.scratch_bytes, before.kernarg_bytes
        known = content[:at] + struct.pack("<3I", *sizes) + content[at + 12 :]
        for guess in _guesses(known, at):
            if Digest.of(guess) == expected.digest:
                then = descriptor.KernelDescriptor.parse(guess[at : at + descriptor.BYTES], where)
                rows = _different(descriptor.fields(then), descriptor.fields(laid_out))
                found["descriptor"] = rows
                break
    return found


def _different(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Change]:
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}


def _guesses(content: bytes, at: int) -> Iterator[bytes]:
    """The content itself, then with every other value of one field, then with those that move together."""
    yield content
    for field in FIELDS:
        if field.width <= _WIDEST:
            yield from (_with(content, at, field, value) for value in range(1 << field.width))
    fields = [field for field in FIELDS if field.name in _TOGETHER]
    for values in product(*(range(1 << field.width) for field in fields)):
        guess = content
        for field, value in zip(fields, values, strict=True):
            guess = _with(guess, at, field, value)
        yield guess


def _with(content: bytes, at: int, field: Bits, value: int) -> bytes:
    offset, form = _PLACES[field.register]
    place, size = at + offset, struct.calcsize(form)
    (register,) = struct.unpack_from(form, content, place)
    mask = ((1 << field.width) - 1) << field.first
    changed = struct.pack(form, register & ~mask | value << field.first)
    return content[:place] + changed + content[place + size :]


def _metadata(
    document: dict[str, Any], kernel: dict[str, Any], before: CodeObject, expected: Section | None
) -> dict[str, Change]:
    facts = before.resources
    known: dict[str, _Value] = {
        ".vgpr_count": facts.vgprs,
        ".agpr_count": facts.agprs,
        ".sgpr_count": facts.sgprs,
        ".vgpr_spill_count": facts.vgpr_spills,
        ".sgpr_spill_count": facts.sgpr_spills,
        ".private_segment_fixed_size": facts.scratch_bytes,
        ".group_segment_fixed_size": facts.lds_bytes,
        ".kernarg_segment_size": before.kernarg_bytes,
        ".max_flat_workgroup_size": facts.max_threads,
    }
    rows: dict[str, Change] = {}
    guesses = [(name, value) for name, values in _GUESSES.items() for value in values]
    for guess in ({}, *({name: value} for name, value in guesses)):
        then = {**kernel, **known, **guess}
        then = {name: value for name, value in then.items() if value is not None}
        text = json.dumps({**document, "amdhsa.kernels": [then]}, sort_keys=True, separators=(",", ":"))
        if expected is not None and Digest.of(text.encode()) == expected.digest:
            names = sorted({*then, *kernel})
            rows = {name: [then.get(name), kernel.get(name)] for name in names if then.get(name) != kernel.get(name)}
            break
    return rows
