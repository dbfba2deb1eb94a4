"""Recording what a program asks Triton's compiler for, as rows of a trace.

The program runs as it would alone: the wrapper looks at the request, writes a line and lets Triton go on. What cannot
be rebuilt elsewhere is written down too, with the reason.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from aotkern.errors import AotkernError, ProblemsError
from aotkern.spec import Constant, VariantKey
from aotkern.trace import Chosen, Recorded, Row, Unbuildable
from aotkern.triton_bridge import describe, specialised, written
from aotkern.triton_bridge.seam import Seam
from aotkern.triton_bridge.sink import Sink


class Tracer:
    """Records one process; `begin` and `end` may be called at any time.

    Args:
        sink: Takes each row as plain values, in the order in which they happen.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, self._trials = sink, threading.local()
        methods = {"run": self._around_run, "_bench": self._around_bench}
        self.seam = Seam(self._around_compile, methods, lambda _: None)

    def begin(self) -> None:
        """Record from now on."""
        self.seam.put()

    def end(self) -> None:
        """Record no more."""
        self.seam.remove()

    def _write(self, row: Row) -> None:
        self._sink.write(row.to_json())

    def _around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(src: Any, target: Any = None, options: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            self._record(src, target, options)
            return original(src, target=target, options=options, **kwargs)

        return compile

    def _record(self, source: Any, target: Any, options: Any) -> None:
        try:
            asked = specialised.read(source, target, options)
            self._write(_recorded(asked, trial=getattr(self._trials, "depth", 0) > 0))
        except Exception as error:  # what goes wrong here must not stop the program that is recorded
            reason = str(error) if isinstance(error, AotkernError) else f"{type(error).__name__}: {error}"
            self._write(Unbuildable(specialised.name_of(source), describe.target_name(target), reason[:300]))

    def _around_bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _bench(*args: Any, **kwargs: Any) -> Any:
            self._trials.depth = getattr(self._trials, "depth", 0) + 1
            try:
                return original(*args, **kwargs)
            finally:
                self._trials.depth -= 1

        return _bench

    def _around_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            known = len(tuner.cache)
            try:
                return original(tuner, *args, **kwargs)
            finally:
                for key in list(tuner.cache)[known:]:
                    self._choice(tuner, key)

        return run

    def _choice(self, tuner: Any, key: tuple[Any, ...]) -> None:
        function = tuned_function(tuner)
        name = f"{specialised.module_of(function)}.{function.__qualname__}"
        target = describe.target_name(current_target())
        try:
            config = config_texts(tuner.cache[key])
            texts = key_texts(key, name)
            self._write(Chosen(name, specialised.digest(function), target, texts, config))
        except ProblemsError as error:
            self._write(Unbuildable(name, target, f"its tuning cannot be kept: {error}"[:300]))


def _recorded(asked: specialised.Asked, *, trial: bool) -> Row:
    where = str(asked.target)
    if "<locals>" in asked.name:
        return Unbuildable(asked.name, where, "it is defined inside a function, and cannot be imported by name")
    name, module, text = asked.name, asked.module, ""
    if written.is_generated(asked.function):
        module, text = written.write(asked.function)
        name = f"{module}.{asked.function.__qualname__}"
    key = VariantKey(name, asked.target, asked.arguments, tuple(sorted(asked.changed.items())))
    version = str(getattr(sys.modules["triton"], "__version__", ""))
    return Recorded(
        key=VariantKey.parse(str(key)),
        module=module,
        source=asked.source,
        constexprs=tuple(sorted(parameter.name for parameter in asked.function.params if parameter.is_constexpr)),
        heuristic=tuple(sorted(set(describe.place().heuristic))),
        trial=trial,
        triton=version,
        text=text,
    )


def tuned_function(tuner: Any) -> Any:
    """The JIT function under an autotuner and whatever else is wrapped around it."""
    function = tuner.fn
    while not hasattr(function, "get_capture_scope"):
        function = function.fn
    return function


def current_target() -> Any:
    """Triton's target object for the current device."""
    from triton.runtime.driver import driver  # noqa: PLC0415 - the caller's own Triton

    return driver.active.get_current_target()


def config_texts(config: Any) -> tuple[tuple[str, str], ...]:
    """An autotuner's configuration: parameters and options by canonical texts, sorted."""
    return tuple(
        sorted((name, Constant.of(value, f"config {name}").text) for name, value in config.all_kwargs().items())
    )


def key_texts(key: tuple[Any, ...], where: str) -> tuple[str, ...]:
    """A tuning key by canonical texts.

    Raises:
        InputError: A part of it is no constant (a tensor, an object).
    """
    return tuple(Constant.of(part, f"{where}: tuning key").text for part in key)
