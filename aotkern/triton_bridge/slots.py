"""Being heard in a hook that has room for one callable, without taking the room from the program.

Triton's hooks are attributes that hold one callable or None. A program may set one before us or after us, save and
restore it, compare it with None, or call the old one from its own. So the attribute itself is replaced by a descriptor
on its class: Triton reads from it a callable that calls ours and then the program's; everybody else reads and writes
exactly what the program put there. What the program's callable returns is returned, ours returns nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Observer = Callable[..., None]


class Slot:
    """A data descriptor that stands for one hook attribute of a class.

    Args:
        owner: The class of Triton's knobs that has the attribute.
        name: The attribute.
        observer: Called with the hook's arguments before the program's own callable.
    """

    def __init__(self, owner: type, name: str, observer: Observer) -> None:
        self._owner, self._name, self._observer = owner, name, observer
        self._default = owner.__dict__[name]
        setattr(owner, name, self)

    def remove(self) -> None:
        """Put the plain attribute back; values that the program set stay where they are."""
        setattr(self._owner, self._name, self._default)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """What is in the slot: with our observer for Triton, the program's own value for everybody else."""
        own = self._default if instance is None else vars(instance).get(self._name, self._default)
        reader = sys._getframe(1).f_globals.get("__name__", "")
        return self._joined(own) if reader.partition(".")[0] == "triton" and instance is not None else own

    def __set__(self, instance: object, value: object) -> None:
        """Set the program's value."""
        vars(instance)[self._name] = value

    def __delete__(self, instance: object) -> None:
        """Forget the program's value."""
        vars(instance).pop(self._name, None)

    def _joined(self, own: Callable[..., Any] | None) -> Callable[..., Any]:
        def both(*args: Any, **kwargs: Any) -> Any:
            if own is not None:
                # The program's first: a true answer of its cache hook means that nothing will be compiled.
                answer = own(*args, **kwargs)
                if answer:
                    return answer
            self._observer(*args, **kwargs)
            return None

        return both
