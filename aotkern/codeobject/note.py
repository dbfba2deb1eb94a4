"""The metadata note of an HSACO: one msgpack document, decoded within limits and without trust.

Its values are texts, integers, booleans, lists and maps with text keys; nothing else is accepted, so that decoding
builds no object of any other kind and the values have one canonical JSON form.
"""

from __future__ import annotations

from typing import Any

import msgpack

from aotkern.codeobject.elf import Image, RawSection

MAX_BYTES = 1 << 20
MAX_ITEMS = 4096
MAX_DEPTH = 8

_OWNER = b"AMDGPU\0"
_METADATA_TYPE = 32
_HEADER_BYTES = 12
_COUNTS = (
    ".group_segment_fixed_size",
    ".private_segment_fixed_size",
    ".kernarg_segment_size",
    ".wavefront_size",
    ".max_flat_workgroup_size",
    ".sgpr_count",
    ".vgpr_count",
    ".agpr_count",
    ".sgpr_spill_count",
    ".vgpr_spill_count",
)


def metadata(image: Image, section: RawSection) -> dict[str, Any]:
    """The decoded document of the section's only note.

    Raises:
        IntegrityError: Not one AMDGPU metadata note, or a document outside the limits of this module.
    """
    where = section.name
    data = bytes(section.data[: MAX_BYTES + 1])
    name_bytes, body_bytes, kind = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    start = _HEADER_BYTES + _padded(len(_OWNER))
    if len(data) > MAX_BYTES or name_bytes != len(_OWNER) or kind != _METADATA_TYPE:
        found = f"{section.size} bytes, type {kind}, owner of {name_bytes} bytes"
        raise image.refusal(where, f"one AMDGPU metadata note (type 32) of at most {MAX_BYTES} bytes", found)
    if data[_HEADER_BYTES:start] != _OWNER.ljust(start - _HEADER_BYTES, b"\0"):
        raise image.refusal(f"{where}/owner", "AMDGPU", repr(data[_HEADER_BYTES:start]))
    if start + _padded(body_bytes) != len(data):
        raise image.refusal(f"{where}/size", f"{len(data) - start} bytes to the section's end", str(body_bytes))
    document = _decoded(image, where, data[start : start + body_bytes])
    if not isinstance(document, dict):
        raise image.refusal(where, "a map", type(document).__name__)
    return document


def single_kernel(image: Image, document: dict[str, Any]) -> dict[str, Any]:
    """The one kernel that the note describes, with its numbers known to be there.

    Raises:
        IntegrityError: No kernel or several, or one with fields missing or of a wrong type.
    """
    kernels = document.get("amdhsa.kernels")
    if not isinstance(kernels, list) or len(kernels) != 1 or not isinstance(kernels[0], dict):
        found = f"{len(kernels)} entries" if isinstance(kernels, list) else type(kernels).__name__
        raise image.refusal(".note/amdhsa.kernels", "a list of one map", found)
    kernel: dict[str, Any] = kernels[0]
    for key in _COUNTS:
        count(image, kernel, key)
    return kernel


def arguments(image: Image, kernel: dict[str, Any]) -> list[dict[str, Any]]:
    """What the note says of each argument; a kernel without arguments may leave the list out.

    Raises:
        IntegrityError: Not a list of maps.
    """
    found = kernel.get(".args", [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise image.refusal(".note/.args", "a list of maps", repr(found)[:100])
    return found


def count(image: Image, values: dict[str, Any], key: str) -> int:
    """The 32-bit count at `key`.

    Raises:
        IntegrityError: It is missing or something else.
    """
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise image.refusal(f".note/{key}", "an integer from 0 to 2^32-1", repr(value)[:100])
    return value


def text(image: Image, values: dict[str, Any], key: str) -> str:
    """The text at `key`.

    Raises:
        IntegrityError: It is missing, empty, long or something else.
    """
    value = values.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ITEMS:
        raise image.refusal(f".note/{key}", f"a text of 1 to {MAX_ITEMS} characters", repr(value)[:100])
    return value


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _decoded(image: Image, where: str, body: bytes) -> object:
    try:
        document: object = msgpack.unpackb(
            body,
            object_pairs_hook=_unique,
            max_str_len=MAX_ITEMS,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        # ValueError covers bad UTF-8, limits, trailing bytes, nesting and keys that are not texts.
        raise image.refusal(where, "one msgpack document", f"{type(error).__name__}: {error}"[:200]) from error
    _check_plain(image, where, document)
    return document


def _unique(pairs: list[tuple[object, object]]) -> dict[str, object]:
    values = {key: value for key, value in pairs if isinstance(key, str)}
    if len(values) != len(pairs):
        raise ValueError("a map with a key that is not a text, or that stands there twice")
    return values


def _check_plain(image: Image, where: str, document: object) -> None:
    """Walk the document level by level, so that nesting cannot exhaust the stack."""
    level = [document]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif not isinstance(value, (str, int)):
                raise image.refusal(where, "texts, integers, booleans, lists and maps", type(value).__name__)
        if not below:
            return
        level = below
    raise image.refusal(where, f"at most {MAX_DEPTH} levels", "more")
