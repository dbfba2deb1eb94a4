"""The canonical spelling of values whose type is exactly Python's own, or a dtype: no class needs to be named.

Python's subclasses are not taken for what they resemble. A kernel may look at the type of a constant, so that an
`IntEnum`, a named tuple or a number of numpy's is another constant than the plain value that it equals.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass

from aotkern.errors import InputError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
MOST_DIGITS = 79
"""Digits of the longest integer that a spelling holds; more are a mistake, and quadratic to read."""
DEEPEST = 50
"""How deep tuples, and what else holds constants, may be nested."""
EXPECTED = "None, bool, int, float, str, a dtype, a function, an enum's member, or a tuple of these"

_QUIET = 0x7FF8_0000_0000_0000
_SIGN = 0x8000_0000_0000_0000


@dataclass(frozen=True, slots=True)
class DtypeName:
    """A Triton dtype by its short name, such as `fp16` or `fp8e4nv`."""

    name: str


def plain(value: object, where: str, depth: int = 0) -> str | None:
    """The spelling of a value without names; None for one of another type.

    Raises:
        InputError: It is of such a type and yet has no spelling (a NaN with a payload, an endless integer).
    """
    kind = type(value)
    if value is None or kind is bool:
        return str(value)
    if isinstance(value, int) and kind is int:
        return _integer(value, where)
    if isinstance(value, float) and kind is float:
        return _float(value, where)
    if kind is str:
        return json.dumps(value)
    if isinstance(value, tuple) and kind is tuple:
        return _tuple(value, where, depth)
    if is_dtype(value):
        return f"@{_named(str(getattr(value, 'name', '')), where)}"
    return None


def is_dtype(value: object) -> bool:
    """Whether this is a Triton dtype, as an object or by name; pointer and block types are none."""
    kind = type(value)
    own = kind.__name__ == "dtype" and kind.__module__.partition(".")[0] == "triton"
    return kind is DtypeName or own


def too_deep(where: str) -> InputError:
    """The error for constants that are nested too deep to be read back."""
    return InputError.one(where, f"constants nested at most {DEEPEST} deep", "more")


def _integer(value: int, where: str) -> str:
    if abs(value) >= 10**MOST_DIGITS:
        raise InputError.one(where, f"an integer of at most {MOST_DIGITS} digits", f"{value.bit_length()} bits")
    return str(value)


def _float(value: float, where: str) -> str:
    if not math.isnan(value):
        return repr(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    if bits & ~_SIGN != _QUIET:
        raise InputError.one(where, "the ordinary NaN", f"a NaN with the bits {bits:#x}")
    return "-nan" if bits & _SIGN else "nan"


def _tuple(value: tuple[object, ...], where: str, depth: int) -> str | None:
    if depth >= DEEPEST:
        raise too_deep(where)
    items = [plain(item, where, depth + 1) for item in value]
    if None in items:
        return None
    return joined([item for item in items if item is not None])


def joined(items: list[str]) -> str:
    """The spelling of a tuple of spelled items."""
    inner = ",".join(items)
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def _named(name: str, where: str) -> str:
    if not NAME.fullmatch(name):
        raise InputError.one(where, "a dtype with a name", repr(name)[:60])
    return name
