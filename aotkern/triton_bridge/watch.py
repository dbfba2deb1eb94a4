"""Putting the observers on a Triton, whichever version it is, and taking them off again.

What is there is watched and what is not is named: a `Report` lists both, because "no compile was seen" means little
without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from aotkern.triton_bridge.imports import Action
from aotkern.triton_bridge.observers import Observers
from aotkern.triton_bridge.slots import Slot

NEVER_WATCHED = (
    "launches that found their binary in memory (Triton reports misses only)",
    "compilers other than Triton's",
)
"""What no hook of Triton tells."""

OTHER_COMPILERS = frozenset(
    {"tilelang", "cutlass", "numba", "jax", "pallas", "cupy", "warp", "taichi", "flashinfer", "deep_gemm", "tvm"}
    | {"aiter", "cuda_python", "nvmath", "pycuda", "hip", "mlx", "tinygrad", "helion"}
)
"""Packages that compile for GPUs by other ways than Triton, or may do so."""


@dataclass
class Report:
    """What a watch covers.

    Attributes:
        watched: What is observed, in words.
        missing: What this Triton does not offer, with the consequence.
    """

    watched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class Watch:
    """The observers on one process's Triton.

    Args:
        observers: What to put on.
        ready: Called with Triton's version and the report when all of Triton has been imported.
        interpreted: Called when Triton interprets instead of compiling.
    """

    def __init__(
        self, observers: Observers, ready: Callable[[str, Report], None], interpreted: Callable[[], None]
    ) -> None:
        self.report = Report()
        self._observers, self._ready, self._interpreted = observers, ready, interpreted
        self._undo: list[Callable[[], None]] = []

    @property
    def actions(self) -> dict[str, Action]:
        """What to do with each module of Triton once it is there."""
        return {
            "triton.knobs": self._on_knobs,
            "triton.runtime.build": self._on_build,
            "triton.runtime.autotuner": self._on_autotuner,
            "triton.compiler.compiler": self._on_compiler,
            "triton.runtime.interpreter": lambda _: self._check_interpreted(),
            "triton": self._on_triton,
        }

    def _on_triton(self, module: ModuleType) -> None:
        """All of Triton is there: say what is watched of it."""
        if "triton.knobs" not in sys.modules:
            self.report.missing.append("triton.knobs: no hooks; calls are seen as direct compiles, without cache hits")
        self._ready(str(getattr(module, "__version__", "unknown")), self.report)

    def _check_interpreted(self) -> None:
        if getattr(getattr(sys.modules.get("triton.knobs"), "runtime", None), "interpret", False):
            self._interpreted()

    def remove(self) -> None:
        """Take everything off again."""
        while self._undo:
            self._undo.pop()()

    def _on_knobs(self, module: ModuleType) -> None:
        observers = self._observers
        wanted = (
            ("runtime", "jit_cache_hook", observers.cache_hook, "calls of JIT functions are seen as direct compiles"),
            ("runtime", "jit_post_compile_hook", observers.post_compile_hook, "some ends may be missing"),
            ("compilation", "listener", observers.listener, "disk cache hits look like compiles"),
        )
        for holder, name, observer, consequence in wanted:
            owner = type(getattr(module, holder, None))
            if name in vars(owner):
                self._undo.append(Slot(owner, name, observer).remove)
                self.report.watched.append(f"knobs.{holder}.{name}")
            else:
                self.report.missing.append(f"knobs.{holder}.{name}: {consequence}")
        self._check_interpreted()

    def _on_compiler(self, module: ModuleType) -> None:
        self._wrap(module, "compile", self._observers.around_compile, "triton.compile", "direct compiles are not seen")
        # Where Triton was imported before the watch began, the name stands in more places.
        for name in ("triton.compiler", "triton"):
            other = sys.modules.get(name)
            original = getattr(vars(module).get("compile"), "__wrapped__", None)
            if other is not None and original is not None and vars(other).get("compile") is original:
                self._set(other, "compile", vars(module)["compile"])

    def _on_build(self, module: ModuleType) -> None:
        around, consequence = self._observers.around_build, "launcher stubs built with a C compiler are not seen"
        self._wrap(module, "_build", around, "the C compiler for launchers", consequence)

    def _on_autotuner(self, module: ModuleType) -> None:
        tuner, tuning = getattr(module, "Autotuner", None), self._observers.tuning
        consequence = "autotune benchmarks look like plain compiles"
        self._wrap(tuner, "prune_configs", tuning.around_prune, "autotune keys", consequence)
        self._wrap(tuner, "_bench", tuning.around_bench, "autotune benchmarks", consequence)

    def _wrap(self, owner: Any, name: str, around: Callable[[Any], Any], what: str, consequence: str) -> None:
        original = vars(owner).get(name) if owner is not None else None
        if original is None:
            self.report.missing.append(f"{what} ({name}): {consequence}")
            return
        self._set(owner, name, around(original))
        self.report.watched.append(what)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        original = vars(owner)[name]
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))
