"""A compile in words: which specialisation of which kernel, with which argument values, called from where.

The specialisation is taken from what Triton itself hands to its compiler (signature, constants, attributes), never
worked out again. Argument values and the place in the program are read from the stack of the call that missed: they
explain, and decide nothing. Whatever cannot be read is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from aotkern.arguments import storage_size
from aotkern.errors import AotkernError
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Runtime

# Options that follow from the target or the machine, and so differ between no two variants of one kernel.
_DERIVED = re.compile(
    r"arch|base_arch|backend_name|warp_size|extern_libs|sanitize_overflow|(supported|deprecated|allowed|default)_"
)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_STACK = 4
"""Frames of the program that an event shows."""


@dataclass
class Place:
    """What the stack of a missing call shows.

    Attributes:
        stack: Frames outside Triton as `module:function:line`, the innermost first.
        bound: The call's arguments by name.
        options: Triton's options object.
        target: Triton's target.
        heuristic: Parameters that a `triton.heuristics` computed.
        tuned: Parameters and options that an autotuner's configuration set.
        given: Parameters and options that the call named, the autotuner's included; Triton adds some of its own.
    """

    stack: list[str] = field(default_factory=list)
    bound: Mapping[str, Any] = field(default_factory=dict)
    options: Any = None
    target: Any = None
    heuristic: list[str] = field(default_factory=list)
    tuned: list[str] = field(default_factory=list)
    given: frozenset[str] = frozenset()


def place(skip: int = 1) -> Place:
    """Read the stack above the caller."""
    found = Place()
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "triton":
            _read_triton_frame(frame, module, found)
        elif not module.startswith("aotkern.triton_bridge") and len(found.stack) < _STACK:
            found.stack.append(f"{module}:{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return found


def _read_triton_frame(frame: FrameType, module: str, found: Place) -> None:
    name, local = frame.f_code.co_name, frame.f_locals
    if module == "triton.runtime.jit" and name == "_do_compile":
        found.options, found.target = local.get("options"), local.get("target")
    elif module == "triton.runtime.jit" and name == "run" and not found.bound:
        found.bound = dict(local.get("bound_args") or {})
        found.given = frozenset(local.get("kwargs") or ())
    elif module == "triton.runtime.autotuner" and name in ("run", "_bench"):
        values, config = getattr(local.get("self"), "values", None), local.get("config")
        if isinstance(values, dict):
            found.heuristic.extend(values)
        elif config is not None and hasattr(config, "all_kwargs"):
            found.tuned.extend(config.all_kwargs())


def specialisation(
    names: Sequence[str], signature: Mapping[str, Any], constants: Mapping[Any, Any], attributes: Mapping[Any, Any]
) -> list[tuple[str, ArgumentSpec]]:
    """The arguments of a variant, from the parts of Triton's `ASTSource`.

    Args:
        names: The kernel's parameters in order.
        signature: Type of each parameter; tuples for tuple arguments.
        constants: Values of constants, by path (position of the parameter, then positions in tuples).
        attributes: Attributes of run-time arguments, by the same paths.
    """
    constants = {_path(names, key): value for key, value in constants.items()}
    attributes = {_path(names, key): value for key, value in attributes.items()}
    return [(name, _spec(signature[name], (names.index(name),), constants, attributes)) for name in signature]


def _path(names: Sequence[str], key: Any) -> tuple[int, ...]:
    return (names.index(key),) if isinstance(key, str) else tuple(key) if isinstance(key, (tuple, list)) else (key,)


def _spec(
    kind: Any, path: tuple[int, ...], constants: Mapping[Any, Any], attributes: Mapping[Any, Any]
) -> ArgumentSpec:
    if isinstance(kind, (tuple, list)):
        return Group(tuple(_spec(item, (*path, place), constants, attributes) for place, item in enumerate(kind)))
    if kind == "constexpr":
        return Fixed(constant(constants.get(path)))
    names = {str(attribute[0]) for attribute in attributes.get(path, ())}
    try:
        return Runtime(str(kind), divisible="tt.divisibility" in names, small="tt.pointer_range" in names)
    except AotkernError:
        # Tensor descriptors and what later versions add: kept apart by their text.
        return Fixed(Constant.of(str(kind)))


def constant(value: object) -> Constant:
    """A constant by its canonical text; objects that no file can store by their `repr` without addresses."""
    try:
        return Constant.of(value)
    except AotkernError:
        return Constant.of(_ADDRESS.sub("0x", repr(value))[:200])


def options(found: Mapping[str, Any]) -> dict[str, str]:
    """Compile options that can tell two variants apart, as canonical texts."""
    return {
        name: constant(value).text
        for name, value in sorted(found.items())
        if not _DERIVED.match(name) and isinstance(value, (bool, int, float, str, type(None)))
    }


def values(bound: Mapping[str, Any], constexprs: frozenset[str]) -> dict[str, Any]:
    """Argument values of a call: canonical texts, tensors as objects, tuples as lists; constants are in the key."""
    return {name: _value(value) for name, value in bound.items() if name not in constexprs}


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if hasattr(value, "data_ptr"):
        return dict(_tensor(value))
    return constant(value).text


def _tensor(tensor: Any) -> Iterator[tuple[str, Any]]:
    readings: dict[str, Callable[[], Any]] = {
        "address": lambda: int(tensor.data_ptr()),
        "storage": lambda: storage_size(tensor),
        "shape": lambda: [int(extent) for extent in tensor.shape],
    }
    for name, read in readings.items():
        try:
            yield name, read()
        except Exception:  # noqa: S112 - a tensor on paper may refuse anything, and need not answer
            continue


def key(kernel: str, target: str, arguments: Sequence[tuple[str, ArgumentSpec]], chosen: Mapping[str, str]) -> str:
    """The text of a variant key; `chosen` are the options in it."""
    inner = ",".join(f"{name}{spec}" for name, spec in arguments)
    tail = ",".join(f"{name}={text}" for name, text in sorted(chosen.items()))
    return f"{kernel}[{target}]({inner})" + (f"{{{tail}}}" if tail else "")


def target_name(target: Any) -> str:
    """`hip:gfx950` or `cuda:90`, from Triton's target object."""
    return f"{getattr(target, 'backend', '?')}:{getattr(target, 'arch', '?')}"


def changed(found: Mapping[str, str], holder: Any) -> dict[str, str]:
    """Options that differ from the defaults of Triton's options class; all of them when it states none."""
    defaults = {
        name: constant(stated.default).text
        for name, stated in getattr(type(holder), "__dataclass_fields__", {}).items()
    }
    return {name: text for name, text in found.items() if defaults.get(name) != text}
