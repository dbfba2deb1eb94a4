"""Compile-time constants with one canonical spelling each.

Python compares `0 == 0.0 == False`, and NaN with nothing; a kernel compiled for one of them is not the kernel compiled
for another. So a constant is known here by its text: two constants are equal when their texts are. `Constant.of` and
`Constant.value` are inverses for every value that a Triton constexpr can hold and a file can store.

Spellings:

    None  True  16  -0.0  nan  "text"        plain values; a text is a JSON string
    (1,16)  (1,)                             tuples
    @fp16                                    a Triton dtype
    $16                                      a `tl.constexpr` inside a tuple, where a kernel can tell it from the value
    &pkg.mod:act#0123456789abcdef            a JIT function
    !pkg.mod:Mode#0123456789abcdef.FAST=1    a member of an enum, with its value
    %pkg.mod:Pair#0123456789abcdef(a=1,b=2)  a named tuple; without field names, another subclass of tuple

What is named is told apart by its module, its qualified name, and a digest of what it is made of (`aotkern.closure`):
two functions of one name are two constants, and so are a function before and after an edit.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from typing import Any

from aotkern import closure
from aotkern.errors import InputError
from aotkern.spec.spelling import DEEPEST, EXPECTED, MOST_DIGITS, DtypeName, joined, plain, too_deep

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)
_NUMBER = re.compile(r"-?(?:inf|nan|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_.]*)#([0-9a-f]{16})", re.ASCII)
_MEMBER = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Named:
    """A function or class.

    Attributes:
        module: The module that defines it.
        name: Its qualified name in that module.
        digest: 16 digits of the digest of what it is made of.
    """

    module: str
    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}#{self.digest}"


@dataclass(frozen=True, slots=True)
class FunctionName(Named):
    """A JIT function that is handed to a kernel as a constant."""

    __str__ = Named.__str__


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an enum.

    Attributes:
        of: The enum.
        name: The member's name; an alias goes by the name of what it stands for.
        value: Its value.
    """

    of: Named
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Record:
    """A tuple of a class of its own.

    Attributes:
        of: The class.
        fields: Its field names; none for a subclass of tuple without names.
        items: What it holds.
    """

    of: Named
    fields: tuple[str, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A `tl.constexpr` that stands inside a tuple."""

    value: Any


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
        while closure.is_constexpr(value):  # around a whole constant it makes no difference
            value = getattr(value, "value", None)
        return cls(_format(value, where, 0))

    @classmethod
    def parse(cls, text: str, where: str = "constant") -> Constant:
        """Read a spelling; anything but the canonical one is refused.

        Raises:
            InputError: Not a constant, or not its canonical spelling.
        """
        value, end = scan(text, 0, where)
        if end != len(text) or _format(value, where, 0) != text:
            raise InputError.one(where, "the canonical spelling of one constant", repr(text)[:100])
        return cls(text)

    @property
    def value(self) -> Any:
        """The Python value; what a file can only name comes as `DtypeName`, `FunctionName`, `Member`, `Record`."""
        return scan(self.text, 0, "constant")[0]

    def __str__(self) -> str:
        return self.text


def named(value: Any) -> tuple[Named, ...]:
    """Every function and class that a constant's value names."""
    if isinstance(value, Named):
        return (value,)
    if isinstance(value, Member):
        return (value.of, *named(value.value))
    if isinstance(value, Wrapped):
        return named(value.value)
    if isinstance(value, Record):
        return (value.of, *(found for item in value.items for found in named(item)))
    return tuple(found for item in value for found in named(item)) if type(value) is tuple else ()


def _format(value: object, where: str, depth: int) -> str:
    text = plain(value, where, depth)
    if text is not None:
        return text
    if depth >= DEEPEST:
        raise too_deep(where)
    if type(value) is tuple:
        return joined([_format(item, where, depth + 1) for item in value])
    if closure.is_constexpr(value):
        return f"${_format(getattr(value, 'value', None), where, depth + 1)}"
    if isinstance(value, Wrapped):
        return f"${_format(value.value, where, depth + 1)}"
    return _format_named(value, where, depth)


def _format_named(value: object, where: str, depth: int) -> str:
    if isinstance(value, FunctionName):
        return f"&{value}"
    if closure.is_jit_function(value):
        return f"&{_name(value, closure.function_module(value), where)}"
    if isinstance(value, Member):
        return f"!{value.of}.{value.name}={_format(value.value, where, depth + 1)}"
    if isinstance(value, Record):
        return _format_record(value.of, value.fields, value.items, where, depth)
    kind = type(value)
    if isinstance(value, enum.Enum):
        if value.name not in type(value).__members__ or not _FIELD.fullmatch(f"{value.name}="):
            raise InputError.one(where, f"a member of the enum {kind.__qualname__}", "a combination of members")
        base = _format(value.value, where, depth + 1)
        return f"!{_name(kind, closure.module_name(kind.__module__), where)}.{value.name}={base}"
    if isinstance(value, tuple) and not getattr(value, "__dict__", None):
        fields = tuple(map(str, getattr(kind, "_fields", ())))
        of = _name(kind, closure.module_name(kind.__module__), where)
        return _format_record(of, fields, tuple(value), where, depth)
    found = f"{value!r} of type {kind.__module__}.{kind.__qualname__}"[:100]
    raise InputError.one(where, EXPECTED, found)


def _format_record(of: object, fields: tuple[str, ...], items: tuple[Any, ...], where: str, depth: int) -> str:
    spelled = [_format(item, where, depth + 1) for item in items]
    if fields:
        spelled = [f"{name}={item}" for name, item in zip(fields, spelled, strict=True)]
    return f"%{of}({','.join(spelled)})"


def _name(value: Any, module: str, where: str) -> Named:
    found = Named(module, str(value.__qualname__), closure.identity(value))
    if "<locals>" in found.name:
        raise InputError.one(where, "a function or class that can be imported by name", f"{module}.{found.name}")
    if not _NAMED.fullmatch(str(found)):
        raise InputError.one(where, "a function or class with an ASCII name", repr(f"{module}.{found.name}")[:100])
    return found


def scan(text: str, start: int, where: str, depth: int = 0) -> tuple[Any, int]:
    """Read one constant at `start`; return its value and where it ends.

    Raises:
        InputError: No constant stands there.
    """
    mark = text[start : start + 1]
    if depth > DEEPEST:
        raise too_deep(where)
    if mark == "(":
        return _scan_items(text, start + 1, where, depth)
    if mark == '"' and (string := _STRING.match(text, start)):
        try:
            return json.loads(string[0]), string.end()
        except json.JSONDecodeError:
            raise InputError.one(where, "a JSON string", repr(string[0])[:100]) from None
    if mark == "$":
        value, end = scan(text, start + 1, where, depth + 1)
        return Wrapped(value), end
    if mark in {"&", "!", "%"} and (found := _NAMED.match(text, start + 1)):
        return _scan_named(text, mark, found, where, depth)
    return _scan_word(text, start, where)


def _scan_word(text: str, start: int, where: str) -> tuple[Any, int]:
    """A dtype, a number, or one of Python's three words."""
    if text[start : start + 1] == "@" and (name := _NAME.match(text, start + 1)):
        return DtypeName(name[0]), name.end()
    if number := _NUMBER.match(text, start):
        digits = number[0]
        is_int = digits.lstrip("-").isdigit()
        if is_int and len(digits.lstrip("-")) > MOST_DIGITS:
            raise InputError.one(where, f"an integer of at most {MOST_DIGITS} digits", f"{len(digits)} digits")
        return (int(digits) if is_int else float(digits)), number.end()
    if (word := _NAME.match(text, start)) and word[0] in _WORDS:
        return _WORDS[word[0]], word.end()
    raise InputError.one(where, f"a constant at column {start + 1}", repr(text[start : start + 40]))


def _scan_named(text: str, mark: str, found: re.Match[str], where: str, depth: int) -> tuple[Any, int]:
    """A function, an enum's member or a record, behind the name that was read."""
    end = found.end()
    if mark == "&":
        return FunctionName(*found.groups()), end
    of = Named(*found.groups())
    if mark == "!" and (member := _MEMBER.match(text, end)):
        value, end = scan(text, member.end(), where, depth + 1)
        return Member(of, member[1], value), end
    if mark == "%" and text[end : end + 1] == "(":
        fields: list[str] = []
        items, end = _scan_items(text, end + 1, where, depth, fields)
        return Record(of, tuple(fields), items), end
    raise InputError.one(where, f"a member or the items of {of.name} at column {end + 1}", repr(text[end : end + 40]))


def _scan_items(
    text: str, at: int, where: str, depth: int, fields: list[str] | None = None
) -> tuple[tuple[Any, ...], int]:
    """The items of a tuple up to its closing bracket; `fields` takes the names before them, where there are some."""
    items: list[Any] = []
    while text[at : at + 1] != ")":
        if fields is not None and (field := _FIELD.match(text, at)):
            fields.append(field[1])
            at = field.end()
        value, at = scan(text, at, where, depth + 1)
        items.append(value)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != ")":
            raise InputError.one(where, f"',' or ')' at column {at + 1}", repr(text[at : at + 40]))
    if fields and len(fields) != len(items):
        raise InputError.one(where, "a name for each item of a named tuple", repr(text[:100]))
    return tuple(items), at + 1
