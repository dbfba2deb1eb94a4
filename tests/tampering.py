"""Bundles that somebody changed who can make every digest right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import zstandard

from aotkern.bundle import _PREFIX, MAGIC, VERSION, Bundle
from aotkern.canonical import dumps, loads
from aotkern.digest import Digest


def with_manifest(data: bytes, change: Callable[[Any], object]) -> bytes:
    """A bundle whose manifest was changed as a JSON document, with every digest made anew."""
    size = _PREFIX.unpack_from(data)[2]
    header = loads(data[_PREFIX.size : _PREFIX.size + size], "header")
    blocks = data[_PREFIX.size + size + header["manifest"][0] :]
    document = json.loads(Bundle.decode(data, "x").manifest_bytes())
    change(document)
    lines = ",\n".join(f"{dumps(name)}:{lined(value)}" for name, value in document.items())
    text = f"{{{lines}}}\n".encode()
    frame = zstandard.ZstdCompressor(level=3, write_content_size=True).compress(text)
    header["manifest"] = [len(frame), len(text), str(Digest.of(frame)), 0]
    raw = dumps(header).encode()
    return _PREFIX.pack(MAGIC, VERSION, len(raw), hashlib.sha256(raw).digest()) + raw + frame + blocks


def lined(value: Any) -> str:
    """Lists and objects with an entry a line, as a manifest is laid out."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{dumps(k)}:{dumps(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(dumps(item) for item in value) + "]"
    return dumps(value)
