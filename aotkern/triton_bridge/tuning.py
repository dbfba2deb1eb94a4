"""Autotuning as events of its own: tuning again is not compiling again.

An autotuner asks `prune_configs` for its candidates once for each new tuning key, and then benchmarks each of them.
Both methods are wrapped; a call that finds its key in the autotuner's table reaches neither.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aotkern.triton_bridge import describe
from aotkern.triton_bridge.recorder import Recorder


@dataclass
class _Round:
    """The benchmarks of one tuning key: candidates that are still to come, and the timings so far."""

    tuner: Any
    left: int
    number: int = 0
    began: float = 0.0
    timings: list[tuple[float, str]] = field(default_factory=list)


class Tuning:
    """Wrappers around an autotuner's methods; `active` says whether this thread is benchmarking."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._local = threading.local()
        self._numbers = itertools.count(1)

    @property
    def active(self) -> bool:
        """Whether a benchmark runs in this thread."""
        return getattr(self._local, "depth", 0) > 0

    def around_prune(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner.prune_configs`, watched: a new tuning key."""

        @functools.wraps(original)
        def prune_configs(tuner: Any, kwargs: dict[str, Any]) -> Any:
            configs = original(tuner, kwargs)
            self._local.round = _Round(tuner, len(configs))
            return configs

        return prune_configs

    def around_bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Autotuner._bench`, watched: one candidate is timed."""

        @functools.wraps(original)
        def _bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            current: _Round | None = getattr(self._local, "round", None)
            if current is not None and current.tuner is tuner and not current.number:
                with self._recorder.guarded():
                    self._start(current, meta)
            self._local.depth = getattr(self._local, "depth", 0) + 1
            try:
                timing = original(tuner, *args, config=config, **meta)
            except BaseException as error:
                self._finish(current, type(error).__name__)
                raise
            finally:
                self._local.depth -= 1
            if current is not None and current.number:
                with self._recorder.guarded():
                    current.timings.append((_median(timing), str(config)))
                    current.left -= 1
                if current.left == 0:
                    self._finish(current, "")
            return timing

        return _bench

    def _start(self, current: _Round, meta: dict[str, Any]) -> None:
        current.number, current.began = next(self._numbers), time.perf_counter()
        given = {**(current.tuner.nargs or {}), **meta}
        key = {name: describe.constant(given[name]).text for name in current.tuner.keys if name in given}
        function = current.tuner.base_fn
        self._recorder.note(
            {
                "event": "tune-start",
                "id": current.number,
                "kernel": str(function.__name__),
                "module": str(function.__module__),
                "tuning_key": key,
                "configs": current.left,
                "stack": describe.place().stack,
            }
        )

    def _finish(self, current: _Round | None, error: str) -> None:
        if current is None or not current.number:
            return
        self._local.round = None
        with self._recorder.guarded():
            seconds = round(time.perf_counter() - current.began, 6)
            best = min(current.timings)[1] if current.timings and not error else None
            self._recorder.note(
                {"event": "tune-end", "id": current.number, "seconds": seconds, "best": best, "error": error or None}
            )


def _median(timing: Any) -> float:
    return float(timing[0] if isinstance(timing, (list, tuple)) else timing)
