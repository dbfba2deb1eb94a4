"""Constants as Triton takes them, made again from their spellings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from aotkern import closure
from aotkern.build import named
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
    choices = held(of)
    found = next((choice for choice in choices if closure.identity(choice) == of.digest), None)
    if found is None:
        digest = closure.identity(choices[0])
        expected = f"what was recorded ({of.digest[:12]})"
        raise InputError.one(f"{of.module}.{of.name}", expected, f"stale: {digest[:12]} is installed")
    return found


def held(of: Named) -> tuple[Any, ...]:
    """What the installed module holds under a name, whatever it is made of; the one at that very place first.

    Raises:
        InputError: The module cannot be imported, or holds no such function or class.
    """
    found: tuple[Any, ...]
    if isinstance(of, FunctionName):
        found = tuple(named.candidates(_module(of.module, of.name), of.name))
    else:
        found = tuple(value for value in (member(of.module, of.name),) if value is not None)
    if not found:
        kind = "function" if isinstance(of, FunctionName) else "class"
        where = f"{of.module}.{of.name}"
        raise InputError.one(where, f"the {kind} that was recorded", f"no such {kind} in the installed module")
    return found


def _module(module: str, qualified: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        where, expected = f"{module}.{qualified}", f"a module {module} on the import path"
        raise InputError.one(where, expected, f"{type(error).__name__}: {error}") from error


def member(module: str, qualified: str) -> Any:
    """What stands under a qualified name in a module, or None.

    Raises:
        InputError: The module cannot be imported.
    """
    found = _module(module, qualified)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found
