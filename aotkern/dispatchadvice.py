"""What helps against each reason of a miss: alternatives, of which each is enough for that reason."""

from __future__ import annotations

import math
from typing import Any

from aotkern.advice import Advice, Change
from aotkern.arguments import Pointer, Value
from aotkern.spec import ArgumentSpec, Constant, DtypeName, Member, Named, Parameter, Record, Runtime, Wrapped

_FITTING = (("i32", -(2**31), 2**31 - 1), ("i64", -(2**63), 2**63 - 1), ("u64", 0, 2**64 - 1))
"""The types that Triton gives an integer without an annotation, in the order in which it takes them."""


def declared(value: Value, parameter: Parameter) -> str:
    """How a declaration says that a run-time argument may be like this value; empty where none can."""
    if parameter.type and isinstance(value, (bool, int, float)):
        return _annotated(parameter.type)
    if isinstance(value, Constant):
        return "" if value.value is not None else "Null()"
    if isinstance(value, Pointer):
        alignment = "" if value.address % 16 == 0 else ', alignment="both"'
        return f'Pointer("{value.element}"{alignment})'
    if isinstance(value, tuple):
        items = [declared(item, Parameter(parameter.name, specialised=parameter.specialised)) for item in value]
        return f"Tuple({', '.join(items)})" if all(items) else ""
    if value is None:
        return "Null()"
    if isinstance(value, bool):
        return "Bool()"
    return "Float()" if isinstance(value, float) else integer(value)


def integer(value: int) -> str:
    """How a declaration says that an argument may be any integer like this one."""
    kind = next((name for name, low, high in _FITTING if low <= value <= high), "")
    return f'Int("{kind}", classes=("any",))' if kind else ""


def _annotated(kind: str) -> str:
    if kind == "u1":
        return "Bool()"
    return f'Float("{kind}")' if kind[0] in "fb" else f'Int("{kind}", classes=("any",))'


def for_constant(name: str, parameter: Parameter, value: Value) -> tuple[Advice, ...]:
    """Against a constant of the variant that the value is not."""
    if parameter.constexpr:
        given = value if isinstance(value, Constant) else Constant.of(value, name)
        return (Advice(Change.DECLARE, name, f"Constexpr({python(given)})"),)
    return _declare(name, parameter, value)


def for_kind(name: str, parameter: Parameter, spec: ArgumentSpec, value: Value) -> tuple[Advice, ...]:
    """Against a value of another kind than the variant's."""
    if parameter.type and isinstance(spec, Runtime) and not fits_annotation(parameter.type, value):
        return (Advice(Change.PASS, name, "a number" if parameter.type[0] in "fb" else "an integer"),)
    return _declare(name, parameter, value)


def fits_annotation(kind: str, value: Value) -> bool:
    """Whether a parameter with this annotation can be given a value of this Python type at all."""
    return isinstance(value, (bool, int)) or (isinstance(value, float) and kind[0] in "fb")


def for_range(name: str, parameter: Parameter, value: Value) -> tuple[Advice, ...]:
    """Against an integer that the variant's type cannot hold."""
    if parameter.type:
        return (Advice(Change.FIT_ANNOTATION, name, parameter.type),)
    word = integer(value) if isinstance(value, int) else ""
    if not word:
        return (Advice(Change.PASS, name, "an integer below 2^64 and not below -2^63: no type holds this one"),)
    return _declare(name, parameter, value)


def _declare(name: str, parameter: Parameter, value: Value) -> tuple[Advice, ...]:
    word = declared(value, parameter)
    if not word:
        return (Advice(Change.PASS, name, "a value that a declaration can say"),)
    return (Advice(Change.DECLARE, name, word),)


def python(constant: Constant) -> str:
    """A constant as it is written in a declaration: what it names by module and name, for an import."""
    return _python(constant.value)


def _python(value: Any) -> str:
    if isinstance(value, Named):
        return f"{value.module}.{value.name}"
    if isinstance(value, Member):
        return f"{_python(value.of)}.{value.name}"
    if isinstance(value, Record):
        return f"{_python(value.of)}({_items(value)})"
    if isinstance(value, Wrapped):
        return f"tl.constexpr({_python(value.value)})"
    if isinstance(value, DtypeName):
        return f"tl.{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_python, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return Constant.of(value).text


def _items(record: Record) -> str:
    items = [_python(item) for item in record.items]
    if not record.fields:
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return ", ".join(f"{field}={item}" for field, item in zip(record.fields, items, strict=True))
