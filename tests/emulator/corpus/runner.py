"""Runs configurations on all processors and prints the coverage table."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotkern.emulator.static import Fault, check
from aotkern.errors import EmulatorError

from .harness import Configuration, prepare


@dataclass(frozen=True)
class Outcome:
    """What became of one configuration on one target.

    Attributes:
        kind: Row of the table.
        name: The configuration.
        arch: The target.
        state: `right`, `wrong`, `cannot run`, `explained` or `not compiled`.
        detail: Why, where it is not right.
        static: Findings of the static check.
        seconds: Of the launch alone.
        instructions: Wave instructions.
    """

    kind: str
    name: str
    arch: str
    state: str
    detail: str = ""
    static: tuple[str, ...] = ()
    seconds: float = 0.0
    instructions: int = 0


def outcome(configuration: Configuration, arch: str, seed: int) -> Outcome:
    """Compile, check, run, compare."""
    kind, name = configuration.kind, configuration.name
    try:
        prepared = prepare(configuration, arch, seed)
    except Exception as error:
        line = next((part for part in str(error).splitlines() if part.strip()), type(error).__name__)
        return Outcome(kind, name, arch, "not compiled", line[:200])
    flaws = [flaw for flaw in check(prepared.code) if flaw.fault is not Fault.NEVER_WRITTEN]
    static = tuple(f"{flaw.pc:#x} {flaw.fault.value}: {flaw.instruction} {flaw.detail}" for flaw in flaws)
    begin = time.perf_counter()
    try:
        statistics = prepared.run(limit=20_000_000)
    except EmulatorError as error:
        return Outcome(kind, name, arch, "cannot run", str(error), static)
    seconds = time.perf_counter() - begin
    complaint = prepared.complaint()
    state = "right" if complaint is None else "explained" if arch in configuration.explained else "wrong"
    count = statistics.wave_instructions
    return Outcome(kind, name, arch, state, complaint or "", static, seconds, count)


def _one(task: tuple[int, str, int]) -> Outcome:
    from . import CONFIGURATIONS

    place, arch, seed = task
    return outcome(CONFIGURATIONS[place], arch, seed)


def run_all(places: Sequence[int], archs: Sequence[str], seed: int, jobs: int) -> Iterable[Outcome]:
    """Outcomes of configurations by their places, as they come."""
    from . import CONFIGURATIONS

    tasks = [(place, arch, seed) for place in places for arch in archs if arch in CONFIGURATIONS[place].archs]
    if jobs == 1:
        yield from map(_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_one, tasks, chunksize=4)


def table(outcomes: Sequence[Outcome], archs: Sequence[str]) -> str:
    """Markdown: a row for each kind, right and not right by target."""
    kinds = list(dict.fromkeys(one.kind for one in outcomes))
    lines = ["| kind | " + " | ".join(archs) + " | not right because |", "|---|" + "---|" * (len(archs) + 1)]
    for kind in [*kinds, "all"]:
        mine = [one for one in outcomes if kind in (one.kind, "all")]
        counts = []
        for arch in archs:
            there = [one for one in mine if one.arch == arch]
            right = sum(one.state == "right" for one in there)
            counts.append(f"{right}/{len(there) - right}")
        states = Counter(f"{one.arch}: {one.state}" for one in mine if one.state != "right")
        reasons = ", ".join(f"{state} {count}" for state, count in sorted(states.items()))
        lines.append(f"| {kind} | " + " | ".join(counts) + f" | {reasons} |")
    return "\n".join(lines)


def jobs_here() -> int:
    """Processors."""
    return os.cpu_count() or 1


def private_cache(folder: str | None) -> None:
    """Where Triton keeps what it compiled; the project's pinned settings."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.environ["TRITON_CACHE_DIR"] = folder
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
