"""The classes that an argument falls into, as seen by the variants of one kernel: a finite set that misses nothing.

A variant can ask only a few things of an argument: that it is a certain constant, that it lies in the range of a type,
that it is a multiple of 16, that a tensor has an element type, an aligned address, a small storage. Two values that
answer every one of these questions alike are alike to dispatch, so that one of them stands for all. The constants to
ask about are those that the variants have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotkern.arguments import Pointer, Value
from aotkern.audit.coverage.domain import Argument, Floats, Integers, Tensors, Tuples, Values
from aotkern.dispatch import DIVISOR, INTEGER_RANGES, SMALL_STORAGE
from aotkern.spec import ArgumentSpec, Fixed, Group, Parameter, Runtime


@dataclass(frozen=True, slots=True)
class ValueClass:
    """Values that dispatch cannot tell apart.

    Attributes:
        text: What they are, in words.
        value: One of them.
        endless: They are so many that no constexpr can have a variant for each.
    """

    text: str
    value: Value
    endless: bool = False


ENDLESS = 1024
"""From so many values on, a constexpr is said to be one that cannot be covered."""


def classes(parameter: Parameter, argument: Argument, specs: Sequence[ArgumentSpec]) -> tuple[ValueClass, ...]:
    """The classes of one argument.

    Args:
        parameter: The parameter that takes it.
        argument: What it may be.
        specs: What the variants assume of it.
    """
    return tuple(_classes(argument, specs, constexpr=parameter.constexpr))


def _classes(argument: Argument, specs: Sequence[ArgumentSpec], *, constexpr: bool) -> Iterator[ValueClass]:
    match argument:
        case Tensors():
            yield from _tensors(argument)
        case Integers():
            constants = sorted({value for value in _constants(specs) if value in argument})
            yield from _constexprs(argument, constants) if constexpr else _integers(argument, constants, specs)
        case Values():
            for constant in argument.values:
                yield ValueClass(constant.text, constant if constexpr else constant.value)
        case Floats():
            yield ValueClass("a float", 0.5)
        case Tuples():
            yield from _tuples(argument, specs, constexpr=constexpr)


def _constants(specs: Sequence[ArgumentSpec]) -> Iterator[int]:
    for spec in specs:
        if isinstance(spec, Fixed) and type(spec.constant.value) is int:
            yield spec.constant.value


def _tensors(tensors: Tensors) -> Iterator[ValueClass]:
    for element, aligned, small in itertools.product(tensors.elements, tensors.aligned, tensors.small):
        words = ", ".join(
            [element, "16-byte aligned" if aligned else "not 16-byte aligned", "" if small else "storage over 2 GiB"]
        )
        storage = SMALL_STORAGE if small else SMALL_STORAGE + 1
        yield ValueClass(words.rstrip(", "), Pointer(4096 if aligned else 4100, element, storage))


def _constexprs(integers: Integers, constants: Sequence[int]) -> Iterator[ValueClass]:
    for value in constants:
        yield ValueClass(str(value), value)
    rest = integers.count - len(constants)
    if rest > 0:
        other = next(value for value in _walk(integers) if value not in set(constants))
        yield ValueClass(f"any of {rest} values without a variant", other, endless=rest >= ENDLESS)


def _bounds(specs: Sequence[ArgumentSpec]) -> list[int]:
    """Where the ranges of the integer types that variants have begin, or have ended."""
    types = {spec.type for spec in specs if isinstance(spec, Runtime)}
    ranges = (INTEGER_RANGES[name] for name in types if name in INTEGER_RANGES)
    return sorted({bound for low, high in ranges for bound in (low, high + 1)})


def _integers(integers: Integers, constants: Sequence[int], specs: Sequence[ArgumentSpec]) -> Iterator[ValueClass]:
    for value in constants:
        yield ValueClass(str(value), value)
    known = set(constants)
    edges = [
        integers.low,
        *(bound for bound in _bounds(specs) if integers.low < bound <= integers.high),
        integers.high + 1,
    ]
    for low, high in itertools.pairwise(edges):
        first = low + (integers.low - low) % integers.step
        part = Integers(first, high - 1, integers.step)
        for divisible in (True, False):
            one = _representative(part, known, divisible=divisible)
            if one is not None:
                yield ValueClass("a multiple of 16" if divisible else "no multiple of 16", one)


def _representative(part: Integers, known: set[int], *, divisible: bool) -> int | None:
    # Remainders modulo 16 repeat after at most 16 steps; one more round for each constant that has to be passed over.
    steps = itertools.islice(_walk(part), DIVISOR * (len(known) + 2))
    return next((value for value in steps if value not in known and (value % DIVISOR == 0) == divisible), None)


def _walk(integers: Integers) -> Iterator[int]:
    return iter(range(integers.low, integers.high + 1, integers.step))


def _tuples(tuples: Tuples, specs: Sequence[ArgumentSpec], *, constexpr: bool) -> Iterator[ValueClass]:
    groups = [spec.items for spec in specs if isinstance(spec, Group) and len(spec.items) == len(tuples.items)]
    columns = [
        tuple(_classes(item, [items[place] for items in groups], constexpr=constexpr))
        for place, item in enumerate(tuples.items)
    ]
    for row in itertools.product(*columns):
        text = f"({', '.join(item.text for item in row)})"
        yield ValueClass(text, tuple(item.value for item in row), any(item.endless for item in row))
