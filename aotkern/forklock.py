"""Locks that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """A lock that is free in a forked child, even if another thread of the parent held it at the moment of the fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALL.add(self)

    def held(self) -> threading.Lock:
        """The lock of this process, for a `with` statement."""
        return self._lock

    def renew(self) -> None:
        """Forget who holds it: that thread does not exist here."""
        self._lock = threading.Lock()


_ALL: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in tuple(_ALL):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
