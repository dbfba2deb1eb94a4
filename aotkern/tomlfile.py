"""The one reader of TOML files: bounded, and every refusal is an `InputError` of one wording.

TOML says less about its values than their readers can bear: integers of any length, which Python then refuses to
print, and lists in lists without an end. Both are refused here, so that no reader of a file meets them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotkern.errors import InputError, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser under its older name
    import tomli as tomllib

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
"""How deep tables and lists may be nested."""
LOWEST, HIGHEST = -(2**63), 2**64 - 1
"""The integers that a file may hold: whatever a kernel's argument can be."""


def read(path: Path, what: str, *, advice: str = "") -> dict[str, Any]:
    """Read a file.

    Args:
        path: The file.
        what: What it is, as `a policy`, for the error.
        advice: What to do where there is no such file.

    Raises:
        InputError: It cannot be read, or `parse` refuses it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        further = f"; {advice}" if advice and isinstance(error, FileNotFoundError) else ""
        raise InputError.one(str(path), f"{what} that can be read", reason + further) from error
    return parse(data, str(path))


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Read a document.

    Args:
        data: Its bytes.
        where: Names it in the error.

    Raises:
        InputError: Not TOML in UTF-8, more than `MAX_BYTES` bytes, nested deeper than `MAX_DEPTH`, or with an integer
            outside of `LOWEST` to `HIGHEST`.
    """
    if len(data) > MAX_BYTES:
        raise InputError.one(where, f"at most {MAX_BYTES} bytes", "more")
    try:
        value: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # what the parser and the decoder raise are ValueErrors
        raise InputError.one(where, "TOML", str(error)[:200]) from None
    _check(value, where)
    return value


def version_problems(value: Mapping[str, Any], where: str, version: int) -> tuple[Problem, ...]:
    """What is wrong with the field `version` of a file; nothing where it is this one."""
    found = value.get("version")
    if type(found) is int and found == version:  # `true` and 1.0 are equal to 1, and no version
        return ()
    shown = "nothing" if found is None else repr(found)[:60]
    return (Problem(f"{where}: version", f"version = {version}", shown),)


def _check(value: object, where: str) -> None:
    """Refuse what is too deep or too long, level by level: a recursion could run out of stack."""
    level: list[object] = [value]
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise InputError.one(where, f"TOML nested at most {MAX_DEPTH} deep", "a deeper nesting")
        for item in level:
            if isinstance(item, int) and not LOWEST <= item <= HIGHEST:
                found = f"an integer of {item.bit_length()} bits"
                raise InputError.one(where, "integers from -2^63 to 2^64-1", found)
        tables = [list(item.values()) for item in level if isinstance(item, dict)]
        lists = [item for item in level if isinstance(item, list)]
        level = [inner for items in (*tables, *lists) for inner in items]
        depth += 1
