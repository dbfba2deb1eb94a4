"""The fields of an event line, each of its type or a `ValueError`: the line is then counted as damaged.

Whoever can write to the folder of events can write anything there, and what reads the log later takes its types for
granted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aotkern.errors import AotkernError
from aotkern.spec import Constant

_BITS = 64
_DEPTH = 50


def integer(value: object) -> int:
    """An integer of at least 0 that fits in 64 bits."""
    if type(value) is not int or not 0 <= value < 1 << _BITS:
        raise ValueError("expected an integer")
    return value


def seconds(value: object) -> float:
    """A duration."""
    if type(value) not in (int, float) or not 0 <= value < 1 << _BITS or not math.isfinite(value):  # type: ignore[operator, arg-type]
        raise ValueError("expected a duration")
    return float(value)  # type: ignore[arg-type]


def text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def optional_text(value: object) -> str | None:
    """A text or nothing."""
    return None if value is None else text(value)


def sequence(value: object) -> Sequence[Any]:
    """A list; events that were kept in memory may have tuples."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("expected a list")
    return value


def texts(value: object) -> list[str]:
    """A list of texts."""
    return [text(item) for item in sequence(value)]


def table(value: object) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError("expected an object")
    return value


def pair(value: object) -> tuple[str, str]:
    """A name and a text."""
    if len(sequence(value)) != 2:
        raise ValueError("expected a name and a text")
    name, item = texts(value)
    return name, item


def rank(event: Mapping[str, Any]) -> int | None:
    """The rank of the process in its job, or None."""
    found = event.get("rank")
    return None if found is None else integer(found)


def constant(value: object) -> str:
    """The canonical text of a constant."""
    found = text(value)
    try:
        Constant.parse(found)
    except AotkernError as error:
        raise ValueError("expected the text of a constant") from error
    return found


def argument(value: object, depth: int = 0) -> Any:
    """The value of an argument: the text of a constant, a list for a tuple, an object for a tensor."""
    if depth > _DEPTH:
        raise ValueError("expected fewer tuples in tuples")
    if isinstance(value, (list, tuple)):
        return [argument(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        tensor = table(value)
        sizes = {name: integer(tensor[name]) for name in ("address", "storage") if tensor.get(name) is not None}
        return {**tensor, **sizes}
    return constant(value)
