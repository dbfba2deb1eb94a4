"""Compile-time constants with one canonical spelling each.

Python compares `0 == 0.0 == False`, and NaN with nothing; a kernel compiled for one of them is not the kernel compiled
for another. So a constant is known here by its text: two constants are equal when their texts are. `Constant.of` and
`Constant.value` are inverses for every value that a Triton constexpr can hold and a file can store.

Spellings: `None`, `True`, `16`, `-0.0`, `nan`, `"text"` (a JSON string), `(1,16)`, `(1,)`, `@fp16` (a Triton dtype) and
`&name` (a function; what it computes belongs to the source digest of the kernel that receives it).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from aotkern.errors import InputError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_NUMBER = re.compile(r"-?(?:inf|nan|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class DtypeName:
    """A Triton dtype by its short name, such as `fp16` or `fp8e4nv`."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function handed to a kernel as a constant, by its qualified name inside its module."""

    name: str


@dataclass(frozen=True, slots=True, order=True)
class Constant:
    """A constant by its canonical text."""

    text: str

    @classmethod
    def of(cls, value: object, where: str = "constant") -> Constant:
        """The constant that holds this Python value.

        Raises:
            InputError: The value is of a type that cannot be stored (an object, a set, a numpy scalar).
        """
        return cls(_format(value, where))

    @classmethod
    def parse(cls, text: str, where: str = "constant") -> Constant:
        """Read a spelling; anything but the canonical one is refused.

        Raises:
            InputError: Not a constant, or not its canonical spelling.
        """
        value, end = scan(text, 0, where)
        if end != len(text) or _format(value, where) != text:
            raise InputError.one(where, "the canonical spelling of one constant", repr(text)[:100])
        return cls(text)

    @property
    def value(self) -> Any:
        """The Python value; dtypes and functions come as `DtypeName` and `FunctionName`."""
        return scan(self.text, 0, "constant")[0]

    def __str__(self) -> str:
        return self.text


def _format(value: object, where: str) -> str:
    # bool before int: True is an int to isinstance, and another kernel to Triton. Exact types elsewhere, because a
    # numpy scalar or an IntEnum would lose its type on the way through the text.
    value = _without_triton(value)
    if value is None or isinstance(value, bool):
        return str(value)
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return "nan" if math.isnan(value) else repr(value)
    if type(value) is str:
        return json.dumps(value)
    if isinstance(value, tuple):
        inner = ",".join(_format(item, where) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, DtypeName) and _NAME.fullmatch(value.name):
        return f"@{value.name}"
    if isinstance(value, FunctionName) and _NAME.fullmatch(value.name):
        return f"&{value.name}"
    found = f"{value!r} of type {type(value).__name__}"[:100]
    raise InputError.one(where, "None, bool, int, float, str, a dtype, a function or a tuple of these", found)


def _without_triton(value: object) -> object:
    """A Triton dtype, function or constexpr as this room knows it, recognised without importing Triton."""
    kind = type(value)
    if kind.__module__.partition(".")[0] != "triton":
        return value
    if kind.__name__ == "constexpr":
        return _without_triton(getattr(value, "value", None))
    if kind.__name__ == "dtype":
        return DtypeName(str(getattr(value, "name", "")))
    return FunctionName(value.__qualname__) if hasattr(value, "__qualname__") else value


def scan(text: str, start: int, where: str) -> tuple[Any, int]:
    """Read one constant at `start`; return its value and where it ends.

    Raises:
        InputError: No constant stands there.
    """
    mark = text[start : start + 1]
    if mark == "(":
        return _scan_tuple(text, start, where)
    if mark == '"' and (string := _STRING.match(text, start)):
        try:
            return json.loads(string[0]), string.end()
        except json.JSONDecodeError:
            raise InputError.one(where, "a JSON string", repr(string[0])[:100]) from None
    if mark in {"@", "&"} and (name := _NAME.match(text, start + 1)):
        return (DtypeName if mark == "@" else FunctionName)(name[0]), name.end()
    if number := _NUMBER.match(text, start):
        digits = number[0]
        is_int = digits.lstrip("-").isdigit()
        if is_int and len(digits) > 80:
            raise InputError.one(where, "an integer of at most 79 digits", f"{len(digits)} digits")
        return (int(digits) if is_int else float(digits)), number.end()
    if (word := _NAME.match(text, start)) and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    raise InputError.one(where, f"a constant at column {start + 1}", repr(text[start : start + 40]))


def _scan_tuple(text: str, start: int, where: str) -> tuple[tuple[Any, ...], int]:
    if text[:start].count("(") > 50:
        raise InputError.one(where, "tuples nested at most 50 deep", repr(text[:40]))
    items: list[Any] = []
    at = start + 1
    while text[at : at + 1] != ")":
        value, at = scan(text, at, where)
        items.append(value)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != ")":
            raise InputError.one(where, f"',' or ')' at column {at + 1}", repr(text[at : at + 40]))
    return tuple(items), at + 1
