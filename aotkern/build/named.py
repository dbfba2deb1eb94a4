"""Under which name a module holds a `@triton.jit` function: as a build must find it, asked when it is recorded.

A program may wrap a kernel (autotuners, heuristics, a decorator of its own), or keep it under another name than the one
that it was defined with. A recording and a build look in the same places, so what one finds the other finds too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from aotkern.closure import is_jit

_MOST = 200
"""Objects that are looked at around one kernel; its wrappers and what they hold are far fewer."""


def candidates(module: ModuleType, qualified: str) -> Iterator[Any]:
    """The functions that a module holds under a qualified name, each once; the one at that very place comes first.

    Args:
        module: The module, imported.
        qualified: The function's qualified name.
    """
    seen: set[int] = set()
    found: Any = module
    for part in qualified.split("."):
        found = getattr(found, part, None)
    places = [found, *_members(module)]
    for held in places:
        function = unwrapped(held, qualified)
        if function is not None and id(function) not in seen:
            seen.add(id(function))
            yield function


def _members(module: ModuleType) -> Iterator[Any]:
    for value in list(vars(module).values()):
        yield value
        if isinstance(value, type):
            yield from (getattr(member, "__func__", member) for member in list(vars(value).values()))


def unwrapped(held: object, qualified: str) -> Any:
    """The function of this name under whatever is wrapped around it, or None."""
    waiting, seen = deque([held]), set[int]()
    while waiting and len(seen) < _MOST:
        value = waiting.popleft()
        if is_jit(value) and getattr(value, "__qualname__", "") == qualified:
            return value
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(_inside(value))
    return None


def _inside(value: object) -> Iterator[object]:
    """What a wrapper holds: attributes of an object of some class, and what a Python function closes over."""
    if value is None or is_jit(value) or isinstance(value, (type, ModuleType)):
        return
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    members = getattr(value, "__dict__", None)
    yield from list(members.values()) if isinstance(members, dict) else ()
