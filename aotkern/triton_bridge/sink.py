"""Where event lines go: an append-only file of this process, or a list in memory.

A line is one JSON object and is written by one `write` call on a descriptor opened for appending, so that lines of
several threads never mix and a process that is killed leaves everything it had begun. A forked child writes a file of
its own. A folder that cannot be written is said once on standard error; the program goes on unwatched.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from aotkern.forklock import ForkLock
from aotkern.triton_bridge.surroundings import say

__all__ = ["FORMAT", "Event", "FileSink", "ForkLock", "MemorySink", "Sink"]

FORMAT = "aotkern.jit-events/1"
"""Name and version of the format, in the first line of every file."""

Event = Mapping[str, Any]


class Sink(Protocol):
    """Takes events, in the order in which they happen in one thread."""

    def write(self, event: Event) -> None:
        """Keep one event; never raises."""


class MemorySink:
    """Keeps events in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        """Append the event."""
        self.events.append(event)


class FileSink:
    """Writes a file `HOST.PID.START.jsonl` in a folder, created with the first event.

    Args:
        folder: An existing folder.
        header: Makes the fields of the file's first line; called again in a forked child.
    """

    def __init__(self, folder: Path, header: Callable[[], Event]) -> None:
        self._folder, self._header = folder, header
        self._pid, self._descriptor, self._lost = 0, -1, 0
        self._lock = ForkLock()

    def write(self, event: Event) -> None:
        """Append one line; what cannot be written is counted, and the count goes into the next line that can."""
        with self._lock.held():
            if self._pid != os.getpid():
                self._open()
            if self._descriptor < 0:
                return
            lost = {"lost": self._lost} if self._lost else {}
            try:
                self._put({**event, **lost})
                self._lost = 0
            except OSError:
                self._lost += 1

    def _put(self, event: Event) -> None:
        line = json.dumps(event, ensure_ascii=False, default=repr, separators=(",", ":")) + "\n"
        data = line.encode("utf-8", "backslashreplace")
        if os.write(self._descriptor, data) != len(data):
            # A disk that filled up in the middle of a line: end the stump, so that later lines stay whole.
            os.write(self._descriptor, b"\n")
            raise OSError("short write")

    def _open(self) -> None:
        forked_from = self._pid
        self._pid, self._descriptor, self._lost = os.getpid(), -1, 0
        name = f"{os.uname().nodename}.{self._pid}.{time.time_ns()}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            self._descriptor = os.open(self._folder / name, flags, 0o644)
            self._put(
                {
                    "event": "process",
                    "format": FORMAT,
                    "at": time.time_ns(),
                    "pid": self._pid,
                    "parent": os.getppid(),
                    "forked_from": forked_from or None,
                    "host": os.uname().nodename,
                    # Arguments may hold what nobody wants in a report.
                    "command": "".join(getattr(sys, "argv", [])[:1])[:200],
                    **self._header(),
                }
            )
        except OSError as error:
            self._descriptor = -1
            say(f"process {self._pid} is not watched: {self._folder}: {error.strerror}")
