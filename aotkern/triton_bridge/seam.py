"""The seam at which Triton asks for a binary, and the autotuner's methods: put a wrapper there, and take it off again.

A JIT function looks `triton.compiler.compile` up when it first meets a device, and keeps it; Inductor looks
`triton.compile` up. So the wrapper goes under every name at which the function stands, and into the JIT functions that
have met a device already. Another tool may have wrapped the function before or after: a wrapper that cannot be taken
out again lets everything pass.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from aotkern.triton_bridge.imports import Action, AfterImport

Compile = Callable[..., Any]
Around = Callable[[Compile], Compile]


class Seam:
    """Wrappers on one process's Triton, which may be imported already, or later, or never.

    Args:
        compile: Makes a replacement of `triton.compile` from the function that stands there.
        autotuner: For methods of Triton's `Autotuner`, the same.
        ready: Called with Triton's module when all of it has been imported.
    """

    def __init__(
        self,
        compile: Around,  # noqa: A002
        autotuner: Mapping[str, Around],
        ready: Callable[[ModuleType], None],
    ) -> None:
        self._around, self._methods = compile, autotuner
        self._active = True
        self._undo: list[Callable[[], None]] = []
        actions: dict[str, Action] = {
            "triton.compiler.compiler": self._on_compiler,
            "triton.runtime.autotuner": self._on_autotuner,
            "triton": ready,
        }
        self.finder = AfterImport(actions, lambda _: None)

    def put(self) -> None:
        """Wrap what is there, and wait for what will be."""
        self.finder.install()

    def remove(self) -> None:
        """Take the wrappers off, or make those that others have wrapped let everything pass."""
        self.finder.remove()
        self._active = False
        while self._undo:
            self._undo.pop()()

    def _on_compiler(self, module: ModuleType) -> None:
        # Others may have wrapped the function under one name and not under the next: each gets what fits it.
        wrappers: dict[Compile, Compile] = {}
        for name in ("triton.compiler.compiler", "triton.compiler", "triton"):
            holder = module if name == module.__name__ else sys.modules.get(name)
            original = vars(holder).get("compile") if holder is not None else None
            if holder is not None and original is not None and not isinstance(original, ModuleType):
                if original not in wrappers:
                    wrappers[original] = self._switched(original, self._around(original))
                self._set(holder, "compile", wrappers[original])
        _exchange(wrappers)
        self._undo.append(lambda: _exchange({wrapper: original for original, wrapper in wrappers.items()}))

    def _on_autotuner(self, module: ModuleType) -> None:
        for name, around in self._methods.items():
            original = vars(module.Autotuner)[name]
            self._set(module.Autotuner, name, self._switched(original, around(original)))

    def _switched(self, original: Compile, wrapper: Compile) -> Compile:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return (wrapper if self._active else original)(*args, **kwargs)

        return call

    def _set(self, owner: Any, name: str, value: Any) -> None:
        original = vars(owner)[name]
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is value:
                setattr(owner, name, original)

        self._undo.append(undo)


def _exchange(new: Mapping[Compile, Compile]) -> None:
    """Give JIT functions that have looked the function up already its replacement."""
    kind = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    for function in gc.get_objects() if kind is not None else ():
        if type(function) is kind and vars(function).get("compile") in new:
            function.compile = new[vars(function)["compile"]]
