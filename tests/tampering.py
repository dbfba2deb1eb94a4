"""Bundles that somebody changed who can make every digest right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import zstandard

from aotkern.bundle import _PREFIX, MAGIC, VERSION, Bundle
from aotkern.canonical import dumps
from aotkern.digest import Digest


def with_manifest(data: bytes, change: Callable[[Any], object]) -> bytes:
    """A bundle whose manifest was changed as a JSON document, with every digest made anew."""
    document = json.loads(Bundle.decode(data, "x").manifest_bytes())
    change(document)
    lines = ",\n".join(f"{dumps(name)}:{lined(value)}" for name, value in document.items())
    return with_text(data, f"{{{lines}}}\n".encode())


def with_text(data: bytes, text: bytes) -> bytes:
    """A bundle with these bytes as its manifest, and every digest made anew."""
    header, blocks = taken_apart(data)
    header = json.loads(header)
    blocks = blocks[header["manifest"][0] :]
    frame = zstandard.ZstdCompressor(level=3, write_content_size=True).compress(text)
    header["manifest"] = [len(frame), len(text), str(Digest.of(frame)), 0]
    return put_together(dumps(header).encode(), frame + blocks)


def taken_apart(data: bytes) -> tuple[bytes, bytes]:
    """The header of a bundle, and what follows it."""
    end = _PREFIX.size + _PREFIX.unpack_from(data)[2]
    return data[_PREFIX.size : end], data[end:]


def put_together(header: bytes, rest: bytes) -> bytes:
    """A bundle with this header, whose digest is made anew."""
    return _PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()) + header + rest


def lined(value: Any) -> str:
    """Lists and objects with an entry a line, as a manifest is laid out."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{dumps(k)}:{dumps(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(dumps(item) for item in value) + "]"
    return dumps(value)
