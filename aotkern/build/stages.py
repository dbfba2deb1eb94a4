"""Triton's compiler, and the proof that it ran: a count at the stages of its back ends.

`triton.compile` is where others answer instead of the compiler: an installation of prebuilt binaries, a wrapper of
another tool, a cache of Triton's own. So the function is taken as Triton defines it, before any kernel source is
imported; each stage of a back end is counted where it does its work; and the bytes that the last stage returned must be
those that came out.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Run:
    """One compile.

    Attributes:
        expected: The stages that the back end planned, in order.
        ran: Those that ran, in order.
        result: What the last one returned.
    """

    expected: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    result: object = None

    def doubt(self, data: bytes) -> str:
        """Why these bytes are not proved to be the compiler's, or nothing."""
        if not self.expected:
            return "the compiler did not run for it: something answered in its place"
        if self.ran != self.expected:
            planned, ran = (", ".join(names) or "none" for names in (self.expected, self.ran))
            return f"of the compiler's stages {planned} these ran: {ran}"
        if self.result != data:
            return f"the compiler's stage {self.ran[-1]} returned other bytes than those that came out"
        return ""


class Compiler:
    """`triton.compile` as Triton defines it, with a count of what its back ends do."""

    def __init__(self) -> None:
        from triton.backends import backends  # noqa: PLC0415
        from triton.compiler import compiler  # noqa: PLC0415

        self._compile: Callable[..., Any] = inspect.unwrap(compiler.compile)
        self._run = Run()
        for backend in backends.values():
            self._count(backend.compiler)

    def _count(self, backend: Any) -> None:
        original = backend.add_stages

        @functools.wraps(original)
        def add_stages(this: Any, stages: dict[str, Any], *args: Any, **more: Any) -> Any:
            answer = original(this, stages, *args, **more)
            run = self._run
            run.expected, run.ran = list(stages), []
            for name, stage in list(stages.items()):
                stages[name] = _counted(run, name, stage)
            return answer

        backend.add_stages = add_stages

    def compile(self, source: Any, target: Any, options: dict[str, Any]) -> tuple[Any, Run]:
        """Compile; what came out, and what ran for it."""
        from triton import knobs  # noqa: PLC0415

        self._run = run = Run()
        with knobs.compilation.scope():
            # Two variants may be one to Triton, whose cache would answer for the second.
            knobs.compilation.always_compile = True
            return self._compile(source, target, options), run


def _counted(run: Run, name: str, stage: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stage)
    def call(*args: Any, **more: Any) -> Any:
        result = stage(*args, **more)
        run.ran.append(name)
        run.result = result
        return result

    return call


@functools.cache
def compiler() -> Compiler:
    """The compiler of this process; a worker asks for it before it imports kernel sources."""
    return Compiler()
