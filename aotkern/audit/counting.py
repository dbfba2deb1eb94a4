"""Counting the compiles of a block of code, in this process: `with count_jit() as jit: ...`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aotkern.audit.jit.events import Compile, read
from aotkern.audit.jit.judge import JitReport, judge
from aotkern.triton_bridge.budget import SERVING, STARTUP, Budget, Mode, PhaseBudget
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.session import Session
from aotkern.triton_bridge.sink import MemorySink


class JitCount:
    """What a counted block compiled so far."""

    def __init__(self, sink: MemorySink, gate: Gate) -> None:
        self._sink, self._gate = sink, gate

    def phase(self, name: str) -> None:
        """Begin a phase; what compiles from now on belongs to it."""
        self._gate.phases.now = name

    def ready(self) -> None:
        """Begin the phase `serving`."""
        self.phase(SERVING)

    @property
    def report(self) -> JitReport:
        """Counts, reasons and verdict so far."""
        return judge(read([self._sink.events]), self._gate.budget)

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """Every compile so far, whichever way it came about, in order."""
        return self.report.log.compiles

    @property
    def count(self) -> int:
        """How many compiles so far."""
        return len(self.compiles)


@contextmanager
def count_jit(
    *, at_most: int | None = None, mode: Mode = "observe", known: dict[str, tuple[str, ...]] | None = None
) -> Iterator[JitCount]:
    """Count the compiles of a block: JIT functions, warm-ups, direct compiles, autotuning and launcher stubs.

    Args:
        at_most: Budget of the phase `serving`, and of the phase before it when the block begins no other.
        mode: `observe`, `warn` (say an excess on standard error) or `error` (raise before compiling).
        known: For each kernel the keys of prebuilt variants; an error then names the nearest.

    Yields:
        The count, which stays readable after the block.

    Raises:
        UnexpectedCompileError: In mode `error`, inside the block, in place of the compile that exceeds the budget.
    """
    phases = () if at_most is None else tuple(PhaseBudget(name, compiles=at_most) for name in (STARTUP, SERVING))
    sink, gate = MemorySink(), Gate(Budget(mode, phases), known=known or {})
    session = Session(sink, gate)
    session.begin()
    try:
        yield JitCount(sink, gate)
    finally:
        session.end()
