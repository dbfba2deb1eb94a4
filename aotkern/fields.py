"""Reading plain JSON values field by field while gathering every problem, instead of stopping at the first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from aotkern.errors import MOST_PROBLEMS, InputError, Problem
from aotkern.escape import is_plain

_Value = TypeVar("_Value")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class Fields:
    """The fields of one JSON object (or, with the names "0", "1", ..., of one list of fixed length).

    Every accessor returns a value of its type even where the input is wrong, and then notes the problem. The caller
    builds what it wants, and throws it away when `problems` is not empty.
    """

    def __init__(
        self, value: object, where: str, names: tuple[str, ...], problems: list[Problem] | None = None
    ) -> None:
        self.where = where
        self.problems: list[Problem] = [] if problems is None else problems
        self._values: dict[str, object] = {}
        if isinstance(value, list):
            value = {str(place): item for place, item in enumerate(value)}
        if isinstance(value, dict) and value.keys() == set(names):
            self._values = value
            return
        found = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
        self._note("", f"exactly the fields {', '.join(names)}", str(found)[:200])
        if isinstance(value, dict):
            self._values = {name: value[name] for name in names if name in value}

    @property
    def is_lost(self) -> bool:
        """Whether so many problems were noted that looking for more is of no use."""
        return len(self.problems) > MOST_PROBLEMS

    def get(self, name: str) -> object:
        """The value as it is, or None where it is missing."""
        return self._values.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are there."""
        return tuple(self._values)

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return name in self._values

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._values.get(name, False)
        if isinstance(value, bool):
            return value
        self._note(name, "true or false", repr(value)[:100])
        return False

    def count(self, name: str, bits: int = 48) -> int:
        """An integer of at least 0 that fits in so many bits."""
        value = self._values.get(name, 0)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
            return value
        self._note(name, f"an integer from 0 to 2^{bits}-1", repr(value)[:100])
        return 0

    def number(self, name: str) -> float:
        """A finite number, with or without a decimal point."""
        value = self._values.get(name, 0.0)
        if _is_number(value):
            return float(value)  # type: ignore[arg-type]
        self._note(name, "a finite number", repr(value)[:100])
        return 0.0

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        value = self._values.get(name, [])
        if isinstance(value, list) and all(map(_is_number, value)):
            return tuple(map(float, value))
        self._note(name, "a list of finite numbers", repr(value)[:100])
        return ()

    def labels(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._values.get(name, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self._note(name, "a list of texts", repr(value)[:100])
        return ()

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._values.get(name, "-")
        if isinstance(value, str) and value:
            return value
        self._note(name, "a text that is not empty", repr(value)[:100])
        return ""

    def label(self, name: str) -> str:
        """A text that may be empty."""
        value = self._values.get(name, "")
        if isinstance(value, str):
            return value
        self._note(name, "a text", repr(value)[:100])
        return ""

    def texts(self, name: str, *, plain: bool = False) -> dict[str, str]:
        """An object whose values are texts; `plain` ones are fit to be shown in one line, and so are their names."""
        value = self._values.get(name, {})
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            steering = [text for pair in value.items() for text in pair if plain and not is_plain(text)]
            if not steering:
                return value
            expected = "texts without control characters, in one line each"
            self._note(name, expected, ascii(steering[0])[:100])
            return {}
        self._note(name, "an object of texts", repr(value)[:100])
        return {}

    def objects(self, name: str) -> dict[str, Fields]:
        """An object of objects with any fields."""
        value = self._values.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
            self._note(name, "an object of objects", repr(value)[:100])
            return {}
        return {
            key: Fields(item, f"{self.where}.{name}[{key}]", tuple(item), self.problems)
            for key, item in value.items()
            if not self.is_lost
        }

    def items(self, name: str, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> tuple[Fields, ...]:
        """A list of objects with exactly these fields, and of the `optional` ones any."""
        value = self._values.get(name, [])
        if not isinstance(value, list):
            self._note(name, "a list of objects", type(value).__name__)
            return ()
        rows: list[Fields] = []
        for place, item in enumerate(value):
            if self.is_lost:
                break
            given = item if isinstance(item, dict) else {}
            known = (*names, *(key for key in optional if key in given))
            rows.append(Fields(item, f"{self.where}.{name}[{place}]", known, self.problems))
        return tuple(rows)

    def subset(self, name: str, names: tuple[str, ...], required: tuple[str, ...] = ()) -> Fields:
        """An object with the `required` ones of these fields, some of the rest, and no others."""
        value = self._values.get(name)
        there = value if isinstance(value, dict) else {}
        known = tuple(key for key in names if key in required or key in there)
        return Fields(there if there is value else None, f"{self.where}.{name}", known, self.problems)

    def parsed(self, name: str, parse: Callable[[str, str], _Value]) -> _Value | None:
        """What `parse(text, where)` makes of a text; its `InputError` is added to the problems."""
        if name not in self._values:
            return None
        try:
            return parse(self.text(name), f"{self.where}.{name}")
        except InputError as error:
            self.problems.extend(error.problems)
            return None

    def row(self, name: str, length: int) -> Fields:
        """A list of this length."""
        return self._row(name, self._values.get(name), length)

    def rows(self, name: str, length: int) -> tuple[Fields, ...]:
        """A list of lists of this length."""
        value = self._values.get(name, [])
        if not isinstance(value, list):
            self._note(name, f"a list of lists of {length}", type(value).__name__)
            return ()
        return tuple(self._row(f"{name}[{place}]", row, length) for place, row in enumerate(value) if not self.is_lost)

    def table(self, name: str, length: int) -> dict[str, Fields]:
        """An object whose values are lists of this length."""
        value = self._values.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self._note(name, f"an object of lists of {length}", type(value).__name__)
            return {}
        return {key: self._row(f"{name}[{key}]", row, length) for key, row in value.items() if not self.is_lost}

    def _row(self, place: str, row: object, length: int) -> Fields:
        names = tuple(map(str, range(length)))
        return Fields(row if isinstance(row, list) else None, f"{self.where}.{place}", names, self.problems)

    def _note(self, name: str, expected: str, found: str) -> None:
        self.problems.append(Problem(f"{self.where}.{name}" if name else self.where, expected, found))
