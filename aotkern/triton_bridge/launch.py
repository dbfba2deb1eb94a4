"""Running a program under watch: its environment, the moment when it is ready, its signals and its exit status."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from aotkern.triton_bridge.budget import SERVING
from aotkern.triton_bridge.gate import mark

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class Ready:
    """When the program counts as ready; the first of these that happens. A program can also say it itself.

    Attributes:
        pattern: A line of its output matches this regular expression.
        file: This file exists.
        signal: The auditing process gets this signal.
        seconds: So much time has passed.
    """

    pattern: re.Pattern[str] | None = None
    file: Path | None = None
    signal: int | None = None
    seconds: float | None = None


class Runner:
    """Runs one command.

    Args:
        command: The command and its arguments.
        folder: The folder of event files, where phases are marked; None to run without a watch.
        ready: When the phase `serving` begins.
        output: Where the program's standard output goes.
        error: Where its standard error goes.
        seconds: When the program and all that it started are ended; None to wait for as long as it takes.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path | None,
        ready: Ready,
        output: IO[bytes],
        error: IO[bytes],
        seconds: float | None = None,
    ) -> None:
        self._command, self._folder, self._ready = list(command), folder, ready
        self._output, self._error = output, error
        self._over = threading.Event()
        self._lock, self._marked = threading.Lock(), False
        self._seconds, self.overdue = seconds, False

    def run(self, environment: Mapping[str, str]) -> int:
        """Run to the end; the exit status, negative for the signal that ended it.

        Raises:
            OSError: The command cannot be started.
        """
        piped = self._ready.pattern is not None
        streams: Any = (subprocess.PIPE, subprocess.PIPE) if piped else (self._output, self._error)
        limited = self._seconds is not None
        process = subprocess.Popen(
            self._command, env=dict(environment), stdout=streams[0], stderr=streams[1], start_new_session=limited
        )
        helpers = [threading.Thread(target=self._wait_for_ready, daemon=True)]
        if piped:
            for source, target in ((process.stdout, self._output), (process.stderr, self._error)):
                helpers.append(threading.Thread(target=self._forward, args=(source, target), daemon=True))
        for helper in helpers:
            helper.start()
        with self._signals(process):
            status = self._waited(process)
        self._over.set()
        for helper in helpers:
            # A grandchild may keep the pipe open after the program has ended; its output is not waited for.
            helper.join(timeout=1)
        return status

    def _waited(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end, or bring it about: an overdue program is asked, then killed with all its children."""
        try:
            return process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            self.overdue = True
        for number, patience in ((signal.SIGTERM, _PATIENCE_SECONDS), (signal.SIGKILL, None)):
            try:
                # It leads a session of its own, so that its number is also that of its group.
                os.killpg(process.pid, number)
                process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        return process.wait()

    def _mark(self, by: str) -> None:
        with self._lock:
            if self._marked or self._folder is None:
                return
            self._marked = True
        mark(self._folder, SERVING, by)

    def _wait_for_ready(self) -> None:
        waited = 0.0
        while not self._over.wait(_POLL_SECONDS):
            waited += _POLL_SECONDS
            if self._ready.file is not None and self._ready.file.exists():
                self._mark(f"file {self._ready.file}")
            if self._ready.seconds is not None and waited >= self._ready.seconds:
                self._mark(f"{self._ready.seconds} s")

    def _forward(self, source: IO[bytes], target: IO[bytes]) -> None:
        pattern, line = self._ready.pattern, b""
        for chunk in iter(lambda: source.read1(_LONGEST_LINE), b""):  # type: ignore[attr-defined]
            target.write(chunk)
            target.flush()
            *whole, line = (line + chunk).split(b"\n")
            for text in (*whole, line):
                if pattern is not None and pattern.search(text.decode("utf-8", "replace")):
                    self._mark(f"output {pattern.pattern!r}")
                    pattern = None
            line = line[-_LONGEST_LINE:]

    @contextmanager
    def _signals(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Pass signals that mean the program on to it, and take the one that means ready."""

        def forward(number: int, _: FrameType | None) -> None:
            process.send_signal(number)

        def ready(number: int, _: FrameType | None) -> None:
            self._mark(signal.Signals(number).name)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {signal.SIGTERM: forward, signal.SIGHUP: forward, signal.SIGINT: forward}
        if self._ready.signal is not None:
            handlers[self._ready.signal] = ready
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
