"""What autotuners choose while a program is recorded, as rows of a trace.

Triton's own `run` keeps a choice in the autotuner's table. An autotuner with a `run` of its own keeps it wherever it
likes: its choice is the configuration of the launch that follows the benchmarks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aotkern.trace import Chosen, Row, Unbuildable
from aotkern.triton_bridge import describe, specialised
from aotkern.triton_bridge.paper import InventedTimes, PaperDriver
from aotkern.triton_bridge.tuners import (
    config_texts,
    current_target,
    identity,
    kept,
    key_texts,
    tuned_function,
    tuning_key,
)


@dataclass
class _Round:
    """One tuning of one autotuner in one thread, from its pruning to the launch that follows.

    Attributes:
        tuner: The autotuner.
        key: Its tuning key.
        candidates: How many configurations pruning left.
        benched: Those that were timed.
        refused: For some of them, by their identity, why a build cannot express what they asked for.
        invented: Whether a device on paper made a time up.
    """

    tuner: Any
    key: tuple[Any, ...]
    candidates: int
    benched: list[Any] = field(default_factory=list)
    refused: dict[int, Unbuildable] = field(default_factory=dict)
    invented: bool = False


class Choices:
    """Wrappers around an autotuner's methods.

    Args:
        write: Takes the rows.
    """

    def __init__(self, write: Callable[[Row], None]) -> None:
        self._write, self._local = write, threading.local()
        self.methods = {"run": self._around_run, "prune_configs": self._around_prune, "_bench": self._around_bench}

    @property
    def benchmarking(self) -> bool:
        """Whether this thread is timing a candidate."""
        return getattr(self._local, "depth", 0) > 0

    def refuse(self, row: Unbuildable) -> None:
        """Write that something cannot be built; of a candidate only where it is chosen."""
        current = self._round
        if not self.benchmarking:
            self._write(row)
        elif current is not None and current.benched:
            current.refused[id(current.benched[-1])] = row

    @property
    def _round(self) -> _Round | None:
        return getattr(self._local, "round", None)

    def _around_prune(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prune_configs(tuner: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
            configs = original(tuner, kwargs, *rest, **more)
            try:
                self._local.round = _Round(tuner, tuning_key(tuner, kwargs), len(configs))
            except Exception:
                self._local.round = None
            return configs

        return prune_configs

    def _around_bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            current = self._round
            if current is not None and current.tuner is tuner:
                current.benched.append(config)
            self._local.depth = getattr(self._local, "depth", 0) + 1
            try:
                timing = original(tuner, *args, config=config, **meta)
            finally:
                self._local.depth -= 1
            if current is not None and current.tuner is tuner:
                current.invented = current.invented or isinstance(timing, InventedTimes)
                if self._has_own_run(tuner):
                    self._await_launch(current)
            return timing

        return _bench

    def _around_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            known = _choices_of(tuner)
            try:
                return original(tuner, *args, **kwargs)
            finally:
                for key, config in _choices_of(tuner).items():
                    if key not in known:
                        self._keep(tuner, key, config)

        return run

    @staticmethod
    def _has_own_run(tuner: Any) -> bool:
        owner = next(kind for kind in type(tuner).__mro__ if "run" in vars(kind))
        return not owner.__module__.startswith("triton.")

    def _await_launch(self, current: _Round) -> None:
        """Look at the next launch of the kernel in this thread that is no benchmark, and at no other."""
        function, thread = tuned_function(current.tuner), threading.get_ident()
        if "run" in vars(function):
            return
        usual = function.run

        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread and not self.benchmarking:
                vars(function).pop("run", None)
                try:
                    self._launched(current, kwargs)
                except Exception as error:  # what goes wrong here must not stop the program that is recorded
                    self._note(current.tuner, f"its choice could not be read: {type(error).__name__}")
            return usual(*args, **kwargs)

        function.run = run

    def _launched(self, current: _Round, kwargs: Mapping[str, Any]) -> None:
        missing = object()
        for config in current.benched:
            given = config.all_kwargs()
            if all(kwargs.get(name, missing) is value or kwargs.get(name) == value for name, value in given.items()):
                self._keep(current.tuner, current.key, config)
                return
        self._note(current.tuner, "its autotuner launched none of the configurations that it timed")

    def _keep(self, tuner: Any, key: Any, config: Any) -> None:
        try:
            function = tuned_function(tuner)
            name, texts = _name(function), config_texts(config)
            current = self._round
            if current is not None and current.tuner is tuner and id(config) in current.refused:
                self._write(current.refused[id(config)])
                return
            if not kept(texts):
                self._note(tuner, "its autotuner chose a configuration with a value that is no constant")
                return
            parts = key if isinstance(key, tuple) else (key,)
            chosen = Chosen(
                kernel=name,
                source=specialised.digest(function),
                target=describe.target_name(current_target()),
                key=key_texts(parts, name),
                config=texts,
                tuner=identity(tuner),
                paper=self._on_paper(tuner),
            )
            self._write(chosen)
        except Exception as error:  # what goes wrong here must not stop the program that is recorded
            self._note(tuner, f"its tuning cannot be kept: {type(error).__name__}")

    def _on_paper(self, tuner: Any) -> bool:
        """Whether a choice says nothing: the times were made up, or came from where they may have been."""
        from triton.runtime.driver import driver  # noqa: PLC0415 - the caller's own Triton

        current = self._round
        if current is None or current.tuner is not tuner:
            return isinstance(driver.active, PaperDriver)
        if current.candidates == 1:
            return False  # there was nothing to choose
        return current.invented or (not current.benched and isinstance(driver.active, PaperDriver))

    def _note(self, tuner: Any, reason: str) -> None:
        try:
            target = describe.target_name(current_target())
            self._write(Unbuildable(_name(tuned_function(tuner)), target, reason, "untuned"))
        except Exception:
            return


def _choices_of(tuner: Any) -> dict[Any, Any]:
    """An autotuner's table, as far as it is one."""
    try:
        return dict(tuner.cache)
    except Exception:
        return {}


def _name(function: Any) -> str:
    return f"{specialised.module_of(function)}.{function.__qualname__}"
