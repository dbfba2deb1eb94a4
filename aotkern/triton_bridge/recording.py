"""A recording from beginning to end: in a process of its own program, or in this one.

Each process writes rows to a file of its own, line by line, so that one that is killed has lost nothing; `collect`
makes a trace of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotkern.canonical import loads
from aotkern.errors import IntegrityError
from aotkern.trace import Row, Trace, row
from aotkern.triton_bridge.imports import AfterImport
from aotkern.triton_bridge.sink import FileSink, MemorySink
from aotkern.triton_bridge.tracing import Tracer


def start(folder: str) -> AfterImport:
    """Record this process into a folder; returns the finder that must look for `triton` next."""
    tracer = Tracer(FileSink(Path(folder), dict))
    tracer.begin()
    return tracer.seam.finder


@contextmanager
def record() -> Iterator[list[Trace]]:
    """Record this process for the duration of a block; the trace is in the list when the block has ended."""
    sink, found = MemorySink(), list[Trace]()
    tracer = Tracer(sink)
    tracer.begin()
    try:
        yield found
    finally:
        tracer.end()
        found.append(Trace.of(row(event, "recording") for event in sink.events))


def collect(folder: Path) -> Trace:
    """The trace of everything that recorded processes left in a folder.

    A line that is no row of a trace is left out: one that was cut short when its process was killed, or damaged later.
    """
    rows: list[Row] = []
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            try:
                value = loads(line.encode(), f"line {number}")
                fields = value if isinstance(value, dict) else {}
                if "event" not in fields:  # the head of the file is an event of the sink
                    rows.append(row({key: item for key, item in fields.items() if key != "lost"}, f"line {number}"))
            except IntegrityError:
                continue
    return Trace.of(rows)
