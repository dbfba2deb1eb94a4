"""From what the observers see to events: one start and one end for every compile, whichever observer saw it.

A compile is a record that the first observer opens and the last one closes. Observers of the same compile find each
other's record by the thread, or by the identity of the signature object that Triton passes through (an asynchronous
compile goes on in another thread). The start is written before the compile begins, so that a process that is killed in
the middle, or hangs, has said what it was doing.

Nothing here raises, except for the one error that a budget in mode `error` asks for.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aotkern.errors import UnexpectedCompileError
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.sink import Event, ForkLock, Sink
from aotkern.triton_bridge.subject import Subject
from aotkern.triton_bridge.surroundings import rank, say


@dataclass(eq=False)
class Record:
    """A compile that has begun.

    Attributes:
        number: Unique in the process.
        began: `perf_counter` at the start.
        thread: Who began it.
        signature: Triton's signature object, by which another observer recognises the compile.
        claimed: Whether a wrapper around the compile will close it.
        outcome: What the end event will say beside the time.
    """

    number: int
    began: float
    thread: int
    signature: Any = None
    claimed: bool = False
    outcome: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Opens and closes records, and writes them.

    Args:
        sink: Takes the events.
        gate: Judges every compile before it begins.
    """

    def __init__(self, sink: Sink, gate: Gate) -> None:
        self.sink, self.gate = sink, gate
        self._numbers = itertools.count(1)
        self._open: list[Record] = []
        self._lock = ForkLock()
        self._local = threading.local()

    def note(self, event: Event) -> None:
        """Write an event that is not a compile."""
        self.sink.write({"at": time.time_ns(), "rank": rank(), "phase": self.gate.phases.current(), **event})

    def begin(self, route: str, subject: Subject, signature: Any = None, *, late: bool = False) -> Record:
        """Open a record and write its start.

        Args:
            route: How the compile came about: `jit`, `warmup`, `direct`, `autotune` or `launcher`.
            subject: What is compiled.
            signature: Triton's signature object, where other observers will meet it.
            late: The compile is over already; only its end could be seen.

        Raises:
            UnexpectedCompileError: The gate is in mode `error` and its budget is exceeded.
        """
        record = Record(next(self._numbers), time.perf_counter(), threading.get_ident(), signature)
        phase = self.gate.phases.current()
        head = {"event": "start", "id": record.number, "at": time.time_ns(), "route": route, "phase": phase}
        flags = {"late": True} if late else {}
        self.sink.write({**head, **flags, "rank": rank(), "thread": record.thread, **subject.facts()})
        for abandoned in self._enlist(record):
            self.end(abandoned, {"outcome": "failed", "error": "the compile did not finish"})
        excess = self.gate.excess(subject.kernel, phase)
        if excess is not None and self.gate.budget.mode != "observe":
            self._refuse(record, subject, excess)
        return record

    def _refuse(self, record: Record, subject: Subject, excess: str) -> None:
        error = UnexpectedCompileError(subject.key, excess, self.gate.nearest(subject))
        if self.gate.budget.mode == "warn":
            say(str(error))
            return
        self.end(record, {"outcome": "refused", "error": excess})
        raise error

    def _enlist(self, record: Record) -> list[Record]:
        """Keep the record, and return those of its thread that nobody will close any more."""
        with self._lock.held():
            dead = []
            if record.signature is not None and not asynchronous():
                dead = [old for old in self._open if old.thread == record.thread and not old.claimed]
            self._open.append(record)
            return dead

    def find(self, signature: Any) -> Record | None:
        """The record of this thread's innermost watched compile, or one that another observer opened."""
        if self.stack:
            return self.stack[-1]
        return self.unclaimed(signature)

    def unclaimed(self, signature: Any) -> Record | None:
        """The record that was opened with this very signature object and that no wrapper has claimed."""
        if signature is None:
            return None
        with self._lock.held():
            return next((old for old in self._open if old.signature is signature and not old.claimed), None)

    @property
    def stack(self) -> list[Record]:
        """The records that wrappers in this thread have entered, the innermost last."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[Record] = self._local.stack
        return stack

    def enter(self, record: Record) -> None:
        """A wrapper has begun to run the compile of this record, and will `leave` it."""
        record.claimed = True
        self.stack.append(record)

    def leave(self, record: Record, outcome: Mapping[str, Any]) -> None:
        """The wrapper's compile is over."""
        if record in self.stack:
            self.stack.remove(record)
        self.end(record, outcome)

    def end(self, record: Record, outcome: Mapping[str, Any]) -> None:
        """Close a record and write its end; the second time does nothing."""
        with self._lock.held():
            if record not in self._open:
                return
            self._open.remove(record)
        seconds = round(time.perf_counter() - record.began, 6)
        event = {"event": "end", "id": record.number, "at": time.time_ns(), "seconds": seconds, "outcome": "finished"}
        self.sink.write({**event, **record.outcome, **outcome})

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Keep a fault of ours out of the program, and write it down."""
        try:
            yield
        except UnexpectedCompileError:
            raise
        except Exception as error:  # an observer must not break what it observes
            message = f"{type(error).__name__}: {error}"[:300]
            self.sink.write({"event": "fault", "at": time.time_ns(), "message": message})


def asynchronous() -> bool:
    """Whether this thread's compiles are handed to others, as `triton.AsyncCompileMode` does."""
    module = sys.modules.get("triton.runtime._async_compile")
    return module is not None and module.active_mode.get() is not None
