"""From a declaration to its variant keys: a pure expansion, in declaration order, that complains completely."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern.errors import InputError, Problem
from aotkern.spec.constant import Constant
from aotkern.spec.declaration import (
    Bool,
    Choice,
    Constexpr,
    Float,
    Int,
    Kernel,
    Null,
    Parameter,
    Pointer,
    Space,
    Tuple,
)
from aotkern.spec.key import ArgumentSpec, Fixed, Group, Runtime, VariantKey
from aotkern.target import Backend, Target

DEFAULT_LIMIT = 20_000
"""Most variants of one kernel for one target; more is nearly always a constexpr that should be a run-time argument."""

_OPTION = "options."


def expand(
    kernel: Kernel, parameters: Sequence[Parameter], target: Target, limit: int = DEFAULT_LIMIT
) -> tuple[VariantKey, ...]:
    """Every variant of `kernel` for `target`, without repetition.

    Args:
        kernel: The declaration.
        parameters: The parameters of its function, in order.
        target: Which target; spaces that do not name it contribute nothing.
        limit: Refuse a declaration that means more variants than this.

    Raises:
        InputError: The declaration does not fit the function, or means more than `limit` variants; all problems at
            once.
    """
    keys: dict[VariantKey, None] = {}
    problems: list[Problem] = []
    for number, space in enumerate(kernel.spaces):
        where = f"kernel {kernel.name}, space {number + 1}"
        if target not in _targets(space, where):
            continue
        problems.extend(_check(space, parameters, where))
        if problems:
            continue
        count = _count(space, parameters, target)
        if count > limit:
            widest = max(_widths(space), key=lambda pair: pair[1], default=("?", 0))
            found = f"{count}; {widest[0]} alone has {widest[1]} values: could it be a run-time argument?"
            problems.append(Problem(where, f"at most {limit} variants for {target}", found))
            continue
        keys.update(dict.fromkeys(_space_keys(kernel.name, space, parameters, target)))
    if problems:
        raise InputError(problems)
    return tuple(keys)


def _targets(space: Space, where: str) -> tuple[Target, ...]:
    if not space.targets:
        raise InputError.one(where, "one or more targets", "none")
    return tuple(Target.parse(text, f"{where}: targets") for text in space.targets)


def _joint_names(space: Space) -> list[str]:
    return [name for joint in space.joint for name in joint.names]


def _check(space: Space, parameters: Sequence[Parameter], where: str) -> Iterator[Problem]:
    given = [*space.arguments, *(name for name in _joint_names(space) if not name.startswith(_OPTION))]
    known = {parameter.name: parameter for parameter in parameters}
    for name in sorted({name for name in given if given.count(name) > 1}):
        yield Problem(f"{where}: {name}", "one declaration of each argument", f"{given.count(name)}")
    for name in given:
        if name not in known:
            yield Problem(f"{where}: {name}", f"a parameter of the function ({', '.join(known)})", "no such parameter")
    for parameter in parameters:
        if parameter.name not in given and not (parameter.constexpr and parameter.default is not None):
            yield Problem(f"{where}: {parameter.name}", "a choice for this parameter", "nothing declared")
    for name, value in _declared(space):
        if name in known:
            yield from _check_choice(known[name], value, f"{where}: {name}")


def _declared(space: Space) -> Iterator[tuple[str, Any]]:
    yield from space.arguments.items()
    for joint in space.joint:
        for row in joint.rows:
            yield from zip(joint.names, row, strict=True)


def _check_choice(parameter: Parameter, value: object, where: str) -> Iterator[Problem]:
    is_constant = not isinstance(value, (Pointer, Int, Float, Bool, Tuple))
    if parameter.constexpr and not is_constant:
        yield Problem(where, "constant values (the parameter is tl.constexpr)", type(value).__name__)
    if not parameter.constexpr and is_constant and not isinstance(value, Null):
        yield Problem(where, "Pointer, Int, Float, Bool, Null or Tuple (not tl.constexpr)", repr(value)[:60])
    if isinstance(value, Int) and not parameter.specialised and value.classes != ("any",):
        yield Problem(where, "classes=('any',): Triton is told not to specialise it", repr(value.classes))
    if isinstance(value, (Int, Float)) and parameter.type and parameter.type != value.type:
        yield Problem(where, f"type {parameter.type!r}, from its annotation", repr(value.type))
    if isinstance(value, Constexpr) or (is_constant and not isinstance(value, Null)):
        values = value.values if isinstance(value, Constexpr) else (value,)
        for constant in values:
            try:
                Constant.of(constant, where)
            except InputError as error:
                yield from error.problems


def _widths(space: Space) -> Iterator[tuple[str, int]]:
    for name, value in space.arguments.items():
        if isinstance(value, (Constexpr, Int)):
            yield name, len(value.values if isinstance(value, Constexpr) else value.classes)
    for joint in space.joint:
        yield ", ".join(joint.names), len(joint.rows)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The state of the two axes that pointers share."""

    small: bool
    aligned: bool


def _axes(choices: Sequence[Any], target: Target) -> tuple[_Axes, ...]:
    pointers = [leaf for choice in choices for leaf in _leaves(choice) if isinstance(leaf, Pointer)]
    split_storage = target.backend is Backend.HIP and any(pointer.storage == "both" for pointer in pointers)
    split_alignment = any(pointer.alignment == "both" for pointer in pointers)
    smalls = (True, False) if split_storage else (True,)
    return tuple(
        _Axes(small, aligned) for small in smalls for aligned in ((True, False) if split_alignment else (True,))
    )


def _leaves(choice: object) -> Iterator[object]:
    if isinstance(choice, Tuple):
        for item in choice.items:
            yield from _leaves(item)
    else:
        yield choice


def _specs(choice: Any, axes: _Axes, target: Target) -> tuple[ArgumentSpec, ...]:
    """What one choice means, given the state of the shared axes."""
    if isinstance(choice, Pointer):
        small = choice.storage == "small" or (choice.storage == "both" and axes.small)
        aligned = choice.alignment == "aligned" or (choice.alignment == "both" and axes.aligned)
        return (Runtime(choice.type, divisible=aligned, small=small and target.backend is Backend.HIP),)
    if isinstance(choice, Int):
        by_class: Mapping[str, ArgumentSpec] = {
            "1": Fixed(Constant.of(1)),
            "16": Runtime(choice.type, divisible=True),
            "any": Runtime(choice.type),
        }
        return tuple(by_class[name] for name in choice.classes)
    if isinstance(choice, Float):
        return (Runtime(choice.type),)
    if isinstance(choice, Bool):
        return (Runtime("u1"),)
    if isinstance(choice, Null):
        return (Fixed(Constant.of(None)),)
    if isinstance(choice, Tuple):
        return tuple(
            Group(items) for items in itertools.product(*(_specs(item, axes, target) for item in choice.items))
        )
    values = choice.values if isinstance(choice, Constexpr) else (choice,)
    return tuple(Fixed(Constant.of(value)) for value in values)


def _rows(space: Space, parameters: Sequence[Parameter]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Choices and options for each combination of joint rows; defaults fill what the declaration leaves out."""
    defaults = {p.name: Constant.parse(p.default).value for p in parameters if p.constexpr and p.default is not None}
    for combination in itertools.product(*(joint.rows for joint in space.joint)):
        choices: dict[str, Choice | Any] = {**defaults, **space.arguments}
        options = dict(space.options)
        for joint, row in zip(space.joint, combination, strict=True):
            for name, value in zip(joint.names, row, strict=True):
                if name.startswith(_OPTION):
                    options[name.removeprefix(_OPTION)] = value
                else:
                    choices[name] = value
        yield choices, options


def _count(space: Space, parameters: Sequence[Parameter], target: Target) -> int:
    """How many variants the space means, without making them."""
    total = 0
    for choices, _ in _rows(space, parameters):
        axes = _axes(list(choices.values()), target)
        product = len(axes)
        for choice in choices.values():
            product *= len(_specs(choice, axes[0], target))
        total += product
    return total


def _space_keys(name: str, space: Space, parameters: Sequence[Parameter], target: Target) -> Iterator[VariantKey]:
    for choices, options in _rows(space, parameters):
        asked = tuple(sorted((key, Constant.of(value, f"option {key}")) for key, value in options.items()))
        for axes in _axes(list(choices.values()), target):
            per_argument = [_specs(choices[parameter.name], axes, target) for parameter in parameters]
            for specs in itertools.product(*per_argument):
                arguments = tuple((p.name, spec) for p, spec in zip(parameters, specs, strict=True))
                yield VariantKey(name, target, arguments, asked)
