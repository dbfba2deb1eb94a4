"""One arm from the first graph capture to the last request, and what it would have compiled where.

Phases: `capture` (graphs of decode steps), `warmup` (a sweep, and requests that are not scored), `scored`. Steps that
replay the same graph are driven once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from aotkern.audit.coverage.proof import Gap
from aotkern.audit.jit.judge import JitReport, judge
from aotkern.audit.replay.arms import Counting, Met
from aotkern.audit.replay.scheduler import Chunk, Step, steps
from aotkern.audit.replay.workload import Arm, Workload
from aotkern.triton_bridge.budget import Budget

CAPTURE, WARMUP, SCORED = "capture", "warmup", "scored"
PHASES = (CAPTURE, WARMUP, SCORED)


class Server(Protocol):
    """What a kernel family offers to be replayed; made by `open_server(launcher, device, settings)` of its module."""

    def capture(self, rows: int) -> None:
        """Make the launches of a captured decode graph of `rows` rows."""

    def prepare(self, rows: int) -> None:
        """Make the launches beside the replay of such a graph."""

    def step(self, step: Step) -> None:
        """Make the launches of a step outside of graphs."""


OpenServer = Callable[[Any, str, Mapping[str, Any]], Server]


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What one arm did.

    Attributes:
        arm: The arm.
        kernels: The kernels that were launched, by name.
        binaries: Compiles by phase and kernel.
        launches: Launches that were simulated, by phase and kernel.
        steps: Steps by phase, and how many of them replay a captured graph.
        report: Every compile with its reason.
        gaps: Calls that no prebuilt variant serves, by phase and kernel.
        served: Launches that a prebuilt variant would have served, by kernel and variant key.
        met: When each compile would have happened, in the order of the steps; nothing where that is not known.
    """

    arm: Arm
    kernels: tuple[str, ...]
    binaries: Mapping[tuple[str, str], int]
    launches: Mapping[tuple[str, str], int]
    steps: Mapping[str, tuple[int, int]]
    report: JitReport
    gaps: Mapping[tuple[str, str], tuple[Gap, ...]]
    served: Mapping[tuple[str, str], int]
    met: tuple[Met, ...] = ()

    def compiled(self, phase: str, kernel: str | None = None) -> int:
        """Compiles of one phase, of one kernel or of all."""
        return sum(number for key, number in self.binaries.items() if key[0] == phase and kernel in (None, key[1]))


def drive(workload: Workload, arm: Arm, launcher: Counting, server: Server) -> ArmResult:
    """Serve a workload on one arm."""
    counted: dict[str, tuple[int, int]] = {}
    launcher.phase(CAPTURE)
    for rows in reversed(workload.limits.captured_rows):
        server.capture(rows)
        launcher.step += 1
    counted[CAPTURE] = (len(workload.limits.captured_rows), 0)
    swept = (Step(tuple(Chunk(0, tokens) for tokens in prompts), ()) for prompts in workload.sweep)
    launcher.phase(WARMUP)
    counted[WARMUP] = _serve(chain(swept, _served(workload, WARMUP)), workload, launcher, server)
    launcher.phase(SCORED)
    counted[SCORED] = _serve(_served(workload, SCORED), workload, launcher, server)
    gaps: Mapping[tuple[str, str], tuple[Gap, ...]] = getattr(launcher, "gaps", {})
    report = judge(launcher.log(), Budget())
    binaries = Counter({(row.phase, row.kernel): row.variants for row in report.rows})
    binaries.update({key: len(rows) for key, rows in gaps.items()})
    kernels = tuple(sorted({kernel for _, kernel in launcher.launches}))
    served = dict(getattr(launcher, "found", {}))
    met = tuple(launcher.met)
    return ArmResult(arm, kernels, binaries, dict(launcher.launches), counted, report, gaps, served, met)


def _served(workload: Workload, phase: str) -> Iterator[Step]:
    """The steps of the requests of a phase; the warm-up takes the seed after the scored one."""
    requests = workload.requests
    if requests is not None:
        count, seed = (requests.warmup, requests.seed + 1) if phase == WARMUP else (requests.scored, requests.seed)
        yield from steps(requests.drawn(count, seed), workload.limits, requests.concurrency)


def _serve(served: Iterable[Step], workload: Workload, launcher: Counting, server: Server) -> tuple[int, int]:
    """Drive the steps of one phase; how many there were, and how many of them replay a graph."""
    number = replayed = 0
    prepared: set[int] = set()
    for step in served:
        number += 1
        captured = None if step.chunks else workload.limits.captured(step.rows)
        if captured is None:
            server.step(step)
        else:
            replayed += 1
            if captured not in prepared:
                prepared.add(captured)
                server.prepare(captured)
        launcher.step += 1
    return number, replayed
