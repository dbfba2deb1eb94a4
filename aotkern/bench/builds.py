"""How fast kernels are built: `aotkern build` with several numbers of jobs beside a plain loop over `triton.compile`.

Every contender is a whole process with a private, empty cache, and compiles every variant anew; they take turns. So a
figure holds everything that somebody waits for: start-up, hashing the toolchain, the plan, the compiles, the bundle.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aotkern.bench import plain, processes
from aotkern.bench.measurement import Measurement
from aotkern.bench.record import Row, Table
from aotkern.bench.timing import interleaved, ratios
from aotkern.build import environment as pinning
from aotkern.errors import InputError
from aotkern.target import Target

PLAIN = "plain loop over triton.compile"
_COMPILED = re.compile(r"^(\d+) compiled, ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is built, and where.

    Attributes:
        sources: Kernel files, folders or modules, as `aotkern build` takes them.
        target: For which target.
        only: Patterns for some of the variants.
        environment: The caller's; tools and libraries are found by it.
        folder: A folder of the caller's in which all outputs and caches go.
    """

    sources: tuple[str, ...]
    target: Target
    only: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path

    def commands_environment(self) -> dict[str, str]:
        """What `aotkern build` runs in."""
        return processes.with_this_aotkern(self.environment)

    def build(self, *more: str) -> list[str]:
        """The command that builds it."""
        only = [word for pattern in self.only for word in ("--only", pattern)]
        where = ("-t", str(self.target), "-o", str(self.folder / "out"), "--name", "measured")
        return processes.aotkern("build", *self.sources, *where, *only, *more)

    def plain(self, share: tuple[int, int] = (0, 1)) -> list[str]:
        """The plain loop, or one of several that share the variants."""
        return plain.command(self.target, self.only, self.sources, share)

    def plain_environment(self) -> dict[str, str]:
        """What the plain loop runs in: the caller's environment, the pinned settings, a Triton cache of its own."""
        private = {"TRITON_CACHE_DIR": str(self.folder / "triton"), "TRITON_HOME": str(self.folder)}
        return {**processes.with_this_aotkern(self.environment), **pinning.pinned(), **private}


def measure(subject: Subject, jobs: Sequence[int], rounds: int, *, memory: bool = True) -> tuple[Table, ...]:
    """Variants a second of each contender, and the memory that one more run of each takes.

    Args:
        subject: What to build.
        jobs: Numbers of worker processes, the first of which the others are compared with.
        rounds: How often each contender runs; there is no warm-up, as every run starts from nothing.
        memory: Whether to measure memory.

    Raises:
        InputError: It cannot be built, or nothing is declared for the target.
    """
    count = _count(subject, max(jobs))

    def build(number: int) -> float:
        return processes.seconds(subject.build("--no-cache", "-j", str(number)), subject.commands_environment())()

    def loop(number: int) -> float:
        shutil.rmtree(subject.folder / "triton", ignore_errors=True)
        shares = [subject.plain((place, number)) for place in range(number)]
        return processes.together(shares, subject.plain_environment())

    names = {_name(number): number for number in jobs}
    contenders = {name: (lambda number=number: build(number)) for name, number in names.items()}
    most = max(jobs)
    loops = {PLAIN: partial(loop, 1), **({_loops(most): partial(loop, most)} if most > 1 else {})}
    times = interleaved({**contenders, **loops}, rounds)
    first = times[_name(jobs[0])]
    rows = tuple(
        Row(
            name,
            (
                Measurement.of("s", samples),
                Measurement.of("1/s", (count / sample for sample in samples)),
                ratios(times[PLAIN], samples),
                ratios(first, samples),
            ),
        )
        for name, samples in times.items()
    )
    columns = ("contender", "whole command", "variants a second", "speed against the loop", f"against {_name(jobs[0])}")
    speed = Table(f"build of {count} variants for {subject.target}, nothing reused", columns, rows)
    return (speed, *((_memory(subject, jobs),) if memory and rows else ()))


def _name(jobs: int) -> str:
    return f"aotkern build, {jobs} job{'s' if jobs > 1 else ''}"


def _loops(number: int) -> str:
    """What the machine itself gives for more processes, without anything of ours between them."""
    return f"{number} plain loops at once, a share each"


def _count(subject: Subject, jobs: int) -> int:
    """How many variants there are, by one build that also warms the files up."""
    said = processes.run(subject.build("--no-cache", "-j", str(jobs)), subject.commands_environment())
    found = _COMPILED.search(said)
    if found is None or not int(found[1]):
        raise InputError.one("KERNELS", f"variants for {subject.target}", said.strip()[:200])
    return int(found[1])


def _memory(subject: Subject, jobs: Sequence[int]) -> Table:
    runs = {
        _name(number): (subject.build("--no-cache", "-j", str(number)), subject.commands_environment())
        for number in jobs
    }
    runs[PLAIN] = (subject.plain(), subject.plain_environment())
    rows = []
    for name, (command, environment) in runs.items():
        shutil.rmtree(subject.folder / "triton", ignore_errors=True)
        peak = processes.peak(command, environment)
        if peak is None:
            rows.append(Row(name, (None, None, None), "this system does not tell"))
            continue
        cells = (peak.parent, peak.child, peak.parent + peak.children)
        rows.append(Row(name, tuple(Measurement.single("B", cell) if cell else None for cell in cells)))
    return Table(
        "most memory held (RSS), one run", ("contender", "parent", "largest worker", "all together"), tuple(rows)
    )
