"""The callables that are put on Triton: three hooks, and wrappers around its two functions that compile.

Several of them see the same compile, and none sees every one: the cache hook runs first, but only for calls of JIT
functions; the wrapped `compile` sees Inductor's and everybody's direct calls, but not those of a caller that took the
function before the watch began; the listener knows whether the disk cache had it, but runs last.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aotkern.triton_bridge import describe, subject
from aotkern.triton_bridge.recorder import Record, Recorder, asynchronous
from aotkern.triton_bridge.tuning import Tuning

_BINARIES = (".hsaco", ".cubin")


class Observers:
    """Observers that write to one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.tuning = Tuning(recorder)
        self._submitted: set[tuple[int, str]] = set()
        self._announced = threading.local()

    def cache_hook(self, *, fn: Any, compile: Mapping[str, Any], is_manual_warmup: bool, **_: Any) -> None:  # noqa: A002
        """`knobs.runtime.jit_cache_hook`: a call of a JIT function is about to be compiled."""
        with self.recorder.guarded():
            if asynchronous():
                # Until an asynchronous compile is finalised, Triton 3.6 asks again for each call and compiles once.
                call = (id(fn.jit_function), str(compile["key"]))
                if call in self._submitted:
                    return
                self._submitted.add(call)
            route = "autotune" if self.tuning.active else "warmup" if is_manual_warmup else "jit"
            what = subject.of_call(fn.jit_function, compile, describe.place())
            if _served():
                # It may be served without a compile: it counts when the compiler is reached.
                self._announced.call = route, what, compile["signature"]
                return
            self.recorder.begin(route, what, compile["signature"])

    def listener(
        self, *, src: Any, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **more: Any
    ) -> None:
        """`knobs.compilation.listener`: something was compiled, or found in the disk cache."""
        with self.recorder.guarded():
            record = self.recorder.find(getattr(src, "signature", None))
            if record is None:
                what = subject.of_source(src, metadata.get("target"), {}, describe.place())
                record = self.recorder.begin("direct", what, late=True)
            record.outcome = _outcome(metadata_group, more.get("times"), cached=bool(more.get("cache_hit")))
            if not record.claimed:
                self.recorder.end(record, {})

    def post_compile_hook(self, *, fn: Any, compile: Mapping[str, Any], **_: Any) -> None:  # noqa: A002
        """`knobs.runtime.jit_post_compile_hook`: close what no other observer closed."""
        with self.recorder.guarded():
            self._submitted.discard((id(fn.jit_function), str(compile["key"])))
            record = self.recorder.unclaimed(compile["signature"])
            if record is not None:
                self.recorder.end(record, {})

    def around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`triton.compile`, watched."""

        @functools.wraps(original)
        def compile(src: Any, target: Any = None, options: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            record: Record | None = None
            with self.recorder.guarded():
                record = self.recorder.unclaimed(getattr(src, "signature", None))
                if record is None:
                    record = self._begin_announced(src)
                if record is None:
                    what = subject.of_source(src, target, dict(options or {}), describe.place())
                    record = self.recorder.begin("direct", what)
                self.recorder.enter(record)
            return self._run(record, lambda: original(src, target=target, options=options, **kwargs), {})

        return compile

    def _begin_announced(self, source: Any) -> Record | None:
        """The record of the call that this thread's cache hook announced, if it is the one that is compiled now."""
        call: tuple[str, subject.Subject, Any] | None = getattr(self._announced, "call", None)
        if call is None or call[2] is not getattr(source, "signature", None):
            return None
        route, what, signature = call
        self._announced.call = None
        return self.recorder.begin(route, what, signature)

    def around_build(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`triton.runtime.build._build`, which runs a C compiler, watched."""

        @functools.wraps(original)
        def _build(name: str, *args: Any, **kwargs: Any) -> Any:
            record: Record | None = None
            with self.recorder.guarded():
                record = self.recorder.begin("launcher", subject.of_launcher(name, describe.place()))
                self.recorder.enter(record)
            return self._run(record, lambda: original(name, *args, **kwargs), {"outcome": "compiled"})

        return _build

    def _run(self, record: Record | None, call: Callable[[], Any], outcome: Mapping[str, Any]) -> Any:
        """Do what was wrapped, and close the record however it ends."""
        try:
            result = call()
        except BaseException as error:
            outcome = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:300]}
            raise
        finally:
            if record is not None:
                with self.recorder.guarded():
                    self.recorder.leave(record, outcome)
        return result


def _served() -> bool:
    """Whether prebuilt binaries are put before the compiler in this process."""
    module = sys.modules.get("aotkern.triton_bridge.installed")
    return module is not None and bool(module.active())


def _outcome(files: Mapping[str, str], times: Any, *, cached: bool) -> dict[str, Any]:
    """What the listener knows, for the end event: stages in seconds, and the digest of the code object."""
    found: dict[str, Any] = {"outcome": "cached" if cached else "compiled"}
    if times is not None and not cached:
        found["stages"] = {name: micros / 1e6 for name, micros in times.lowering_stages}
    binary = next((path for name, path in files.items() if name.endswith(_BINARIES)), None)
    if binary is not None and Path(binary).is_file():
        found["object"] = f"sha256:{hashlib.sha256(Path(binary).read_bytes()).hexdigest()}"
    return found
