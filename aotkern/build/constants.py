"""Constants as Triton takes them, made again from their spellings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from aotkern import closure
from aotkern.errors import InputError
from aotkern.spec import Constant, DtypeName, FunctionName, Member, Named, Record, Wrapped

Lookup = Callable[[Named], Any]


def rebuilt(constant: Constant, lookup: Lookup) -> Any:
    """A constant as the program passed it.

    Args:
        constant: The constant.
        lookup: The function or class that a name stands for.

    Raises:
        InputError: What was made of the spelling is another constant: a class makes something else of its items.
    """
    value = _value(constant.value, lookup)
    found = Constant.of(value)
    if found != constant:
        raise InputError.one("constant", constant.text[:200], f"{found.text[:200]}, when made again")
    return value


def _value(value: Any, lookup: Lookup) -> Any:
    from triton.language import core  # noqa: PLC0415 - a worker's, or the program's own

    if type(value) is tuple:
        return tuple(_value(item, lookup) for item in value)
    if isinstance(value, Named):
        return lookup(value)
    if isinstance(value, Wrapped):
        return core.constexpr(_value(value.value, lookup))
    if isinstance(value, Member):
        return lookup(value.of)[value.name]
    if isinstance(value, Record):
        items = tuple(_value(item, lookup) for item in value.items)
        kind = lookup(value.of)
        return kind(*items) if value.fields else kind(items)
    return core.dtype(value.name) if isinstance(value, DtypeName) else value


def installed(of: Named) -> Any:
    """The function or class with a name, imported.

    Raises:
        InputError: It is not there, or not what it was when it was recorded.
    """
    where = f"{of.module}.{of.name}"
    found = jit_function(of.module, of.name) if isinstance(of, FunctionName) else member(of.module, of.name)
    if found is None:
        raise InputError.one(where, "the class that was recorded", "no such class in the installed module")
    digest = closure.identity(found)
    if digest != of.digest:
        raise InputError.one(where, f"what was recorded ({of.digest[:12]})", f"stale: {digest[:12]} is installed")
    return found


def jit_function(module: str, qualified: str) -> Any:
    """The JIT function with this name, under whatever is wrapped around it (autotuners, heuristics).

    Raises:
        InputError: The module cannot be imported, or has no such function.
    """
    found = member(module, qualified)
    while found is not None and not hasattr(found, "get_capture_scope"):
        found = getattr(found, "fn", None)
    if found is None:
        where = f"{module}.{qualified}"
        raise InputError.one(where, "the kernel that was recorded", "no such kernel in the installed module")
    return found


def member(module: str, qualified: str) -> Any:
    """What stands under a qualified name in a module, or None.

    Raises:
        InputError: The module cannot be imported.
    """
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        where, expected = f"{module}.{qualified}", f"a module {module} on the import path"
        raise InputError.one(where, expected, f"{type(error).__name__}: {error}") from error
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found
