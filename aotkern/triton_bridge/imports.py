"""Acting right after the program has imported a module, without importing anything before it does."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from aotkern.isolation import only_compiles

Action = Callable[[ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """A finder that finds nothing itself: it lets the others find a module, and runs an action when it is loaded.

    Args:
        actions: For each module name what to do with the module; done at once for those that are already there.
        seen: Called with the name of every top-level package of `noted` when the program looks for it.
        noted: Top-level packages that `seen` wants to hear of.
    """

    def __init__(
        self, actions: Mapping[str, Action], seen: Callable[[str], None], noted: frozenset[str] = frozenset()
    ) -> None:
        self._actions, self._seen, self._noted = dict(actions), seen, noted
        self._searching: set[str] = set()

    def install(self) -> None:
        """Begin: modules that are there already get their actions now. In a worker of a build, nothing begins."""
        if only_compiles():
            return
        sys.meta_path.insert(0, self)
        for name in list(self._actions):
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self._actions.pop(name)(module)

    def remove(self) -> None:
        """Stop; actions that were run stay run."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module by the other finders and wrap its loader when it has an action."""
        if fullname in self._noted:
            self._seen(fullname)
        if fullname not in self._actions or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = _find_elsewhere(self, fullname, path, target)
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            _act_after(spec.loader, fullname, self._actions)
        return spec


def _find_elsewhere(
    this: AfterImport, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not this and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


def _act_after(loader: Any, name: str, actions: dict[str, Action]) -> None:
    """Make this loader, which serves one module, run the action once the module's code has run."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        action = actions.pop(name, None)
        if action is not None:
            action(module)

    loader.exec_module = exec_module
