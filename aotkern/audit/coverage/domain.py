"""What a program may call, declared in TOML: for each kernel, what each argument may be.

    version = 1

    [[call]]
    kernel = "add"
    options = { num_warps = 4 }                        # compile options that the call names; may be left out
    [call.arguments]
    x = { tensor = ["fp32"], aligned = "both", storage = "both" }
    n = { from = 1, to = 4096 }                        # integers; also step = 16
    shape = { tuple = [{ from = 1, to = 64 }, { float = true }] }
    mask = { none = true }
    BLOCK = { values = [64, 128] }
    TOKENS = { unbounded = true }                      # any integer

`aligned` and `storage` say what is known of a tensor's address (a multiple of 16) and of the storage behind it (at most
2 GiB - 1, `"small"`, or more, `"large"`); both default to "both". A parameter with a default may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from aotkern import tomlfile
from aotkern.errors import InputError, Problem
from aotkern.fields import Fields
from aotkern.spec import Constant

VERSION = 1
LOWEST, HIGHEST = -(2**63), 2**64 - 1
"""What an integer argument can be at all."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors of some element types; alignment and storage as sets of what may be."""

    elements: tuple[str, ...]
    aligned: tuple[bool, ...] = (True, False)
    small: tuple[bool, ...] = (True, False)


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers `low`, `low + step`, ... up to `high`."""

    low: int = LOWEST
    high: int = HIGHEST
    step: int = 1
    unbounded: bool = False

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    @property
    def count(self) -> int:
        """How many integers these are."""
        return max(0, (self.high - self.low) // self.step + 1)


@dataclass(frozen=True, slots=True)
class Values:
    """Some values, one by one."""

    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Floats:
    """Any Python float."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """A tuple, item by item."""

    items: tuple[Argument, ...]


Argument = Union[Tensors, Integers, Values, Floats, Tuples]


@dataclass(frozen=True, slots=True)
class Calls:
    """A set of calls of one kernel.

    Attributes:
        kernel: Its name.
        arguments: What each argument may be.
        options: Compile options that the calls name.
    """

    kernel: str
    arguments: Mapping[str, Argument]
    options: Mapping[str, Constant] = field(default_factory=dict)


def read(path: Path) -> tuple[Calls, ...]:
    """Read a domain.

    Raises:
        InputError: The file cannot be read, or anything in it is wrong; all problems at once.
    """
    return from_values(tomlfile.read(path, "a domain"), str(path))


def from_values(value: Mapping[str, Any], where: str) -> tuple[Calls, ...]:
    """As `read`, from parsed TOML."""
    problems = list(tomlfile.version_problems(value, where, VERSION))
    form = Fields(dict(value), where, ("version", "call"), problems)
    rows = form.get("call")
    if not isinstance(rows, list) or not rows:
        problems.append(Problem(f"{where}: call", "one or more [[call]] tables", repr(rows)[:60]))
        rows = []
    calls = tuple(_calls(row, f"{where}: call {number + 1}", problems) for number, row in enumerate(rows))
    if problems:
        raise InputError(problems)
    return calls


def _calls(value: object, where: str, problems: list[Problem]) -> Calls:
    options = ("options",) if isinstance(value, dict) and "options" in value else ()
    form = Fields(value, where, ("kernel", "arguments", *options), problems)
    arguments, given = form.get("arguments"), form.get("options") if options else {}
    if not isinstance(arguments, dict) or not isinstance(given, dict):
        problems.append(Problem(where, "tables `arguments` and `options`", "something else"))
        arguments, given = {}, {}
    return Calls(
        kernel=form.text("kernel"),
        arguments={name: _argument(item, f"{where}: {name}", problems) for name, item in arguments.items()},
        options={name: _constant(item, f"{where}: options.{name}", problems) for name, item in given.items()},
    )


_KINDS = ("tensor", "from", "unbounded", "values", "float", "bool", "none", "tuple")


def _argument(value: object, where: str, problems: list[Problem]) -> Argument:
    names = set(value) if isinstance(value, dict) else set()
    kinds = [kind for kind in _KINDS if kind in names]
    if not isinstance(value, dict) or len(kinds) != 1:
        problems.append(Problem(where, f"a table with one of {', '.join(_KINDS)}", repr(value)[:80]))
        return Floats()
    match kinds[0]:
        case "tensor":
            return _tensors(value, where, problems)
        case "from":
            return _integers(value, where, problems)
        case "tuple" if isinstance(value["tuple"], list):
            Fields(value, where, ("tuple",), problems)
            items = enumerate(value["tuple"])
            return Tuples(tuple(_argument(item, f"{where}[{number}]", problems) for number, item in items))
        case "values" if isinstance(value["values"], list) and value["values"]:
            Fields(value, where, ("values",), problems)
            return Values(tuple(_constant(item, where, problems) for item in value["values"]))
        case "unbounded" | "float" | "bool" | "none" as kind if value[kind] is True:
            Fields(value, where, (kind,), problems)
            words = {"bool": Values((Constant("False"), Constant("True"))), "none": Values((Constant("None"),))}
            return Integers(unbounded=True) if kind == "unbounded" else words.get(kind, Floats())
        case kind:
            problems.append(Problem(f"{where}: {kind}", "true, or a list that is not empty", repr(value[kind])[:80]))
            return Floats()


def _tensors(value: dict[str, Any], where: str, problems: list[Problem]) -> Tensors:
    form = Fields(value, where, ("tensor", *(name for name in ("aligned", "storage") if name in value)), problems)
    elements = value["tensor"] if isinstance(value["tensor"], list) else [value["tensor"]]
    if not elements or not all(isinstance(element, str) for element in elements):
        problems.append(Problem(f"{where}: tensor", "one or more element types", repr(value["tensor"])[:80]))
    aligned = _chosen(value.get("aligned", "both"), ((True, (True,)), (False, (False,)), ("both", (True, False))))
    small = _chosen(value.get("storage", "both"), (("small", (True,)), ("large", (False,)), ("both", (True, False))))
    if aligned is None:
        problems.append(Problem(f"{where}: aligned", 'true, false or "both"', repr(form.get("aligned"))[:60]))
    if small is None:
        problems.append(Problem(f"{where}: storage", '"small", "large" or "both"', repr(form.get("storage"))[:60]))
    return Tensors(tuple(map(str, elements)), aligned or (True,), small or (True,))


def _chosen(value: object, words: tuple[tuple[bool | str, tuple[bool, ...]], ...]) -> tuple[bool, ...] | None:
    """What a word means, or None where it is no word: lists are none, and neither is 1, which equals true."""
    return next((meaning for word, meaning in words if type(word) is type(value) and word == value), None)


def _integers(value: dict[str, Any], where: str, problems: list[Problem]) -> Integers:
    Fields(value, where, ("from", "to", *(("step",) if "step" in value else ())), problems)
    low, high, step = value["from"], value.get("to", 0), value.get("step", 1)
    if not all(type(number) is int for number in (low, high, step)) or step < 1 or not LOWEST <= low <= high <= HIGHEST:
        problems.append(Problem(where, "integers from <= to, and a step of at least 1", repr(value)[:80]))
        return Integers(0, 0)
    return Integers(low, high, step)


def _constant(value: object, where: str, problems: list[Problem]) -> Constant:
    try:
        return Constant.of(tuple(value) if isinstance(value, list) else value, where)
    except InputError as error:
        problems.extend(error.problems)
        return Constant("None")
