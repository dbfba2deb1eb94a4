"""Compile options in effect, as constants that can be stored and compared.

Triton's own option objects hold paths of bitcode libraries and lists; here those are digests of content and tuples, so
that two installations in different folders say the same. Triton is not imported.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path

from aotkern.spec import Constant

RESERVED = ("arch", "backend_name", "extern_libs", "ir_override", "warp_size")
"""Decided by the build itself, or by the target: asking for them per kernel would contradict it."""


def as_constants(options: Mapping[str, object]) -> dict[str, Constant]:
    """Options by name, from the fields of a back end's options object.

    Raises:
        InputError: A value that cannot be stored.
    """
    return {name: Constant.of(_plain(name, value), f"option {name}") for name, value in sorted(options.items())}


def _plain(name: str, value: object) -> object:
    if name == "extern_libs" and isinstance(value, (tuple, list)):
        return tuple((library, _digest(str(path))) for library, path in value)
    if isinstance(value, (list, tuple)):
        return tuple(_plain("", item) for item in value)
    return value


@functools.lru_cache(maxsize=64)
def _digest(path: str) -> str:
    return f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
