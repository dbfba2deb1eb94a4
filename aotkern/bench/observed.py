"""The facts of this machine and this environment that a figure depends on. Nothing heavy is imported for them."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import aotkern
from aotkern.bench.record import Bar, Machine, Run, Table
from aotkern.bundle import Bundle

PACKAGES = ("triton", "torch", "numpy", "zstandard")
"""Whose versions every run names, where they are installed."""

_CPUINFO = Path("/proc/cpuinfo")
_ROOT = Path(aotkern.__file__).parents[1]
_RESULTS = ("audits/benchmarks", "docs", "README.md")


class Observation:
    """The state of the machine when a benchmark began; `run` makes the record of it."""

    def __init__(self, benchmark: str, command: str, packages: Iterable[str], revision: str) -> None:
        self._benchmark, self._command, self._revision = benchmark, command, revision
        self._began = time.time()
        self._load = os.getloadavg()[0]
        self._machine, self._versions = machine(), versions((*PACKAGES, *packages))

    def run(
        self,
        tables: Iterable[Table],
        bars: Iterable[Bar] = (),
        notes: Iterable[str] = (),
        versions: Mapping[str, str] | None = None,
        bundles: Iterable[Path] = (),
    ) -> Run:
        """The record of the benchmark, which ends now.

        Args:
            tables: What was measured.
            bars: What was promised, with what was measured of it.
            notes: What a reader must know to understand the figures.
            versions: Further versions, by name.
            bundles: Files of the bundles that took part.
        """
        return Run(
            benchmark=self._benchmark,
            command=self._command,
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            load=round(self._load, 2),
            seconds=round(time.time() - self._began, 1),
            machine=self._machine,
            versions=tuple(sorted({**self._versions, **(versions or {})}.items())),
            tables=tuple(tables),
            bars=tuple(bars),
            notes=tuple(notes),
            revision=self._revision,
            bundles=digests(bundles),
        )


def observed(benchmark: str, command: str, packages: Iterable[str] = (), revision: str | None = None) -> Observation:
    """Note the state of the machine before a benchmark.

    Args:
        benchmark: Its name, which is that of its file of results: letters, digits and dashes.
        command: How to run it again, as one would type it, without the paths of one machine.
        packages: Whose versions matter beside `PACKAGES`.
        revision: The git revision of what is measured; that of this aotkern's own repository without it.
    """
    return Observation(benchmark, command, packages, git_revision(_ROOT) if revision is None else revision)


def digests(bundles: Iterable[Path]) -> tuple[tuple[str, str], ...]:
    """File names and manifest digests of bundles, by name; a second one of a name is numbered."""
    found: dict[str, str] = {}
    for path in bundles:
        name = next(name for name in _names(path.name) if name not in found)
        found[name] = str(Bundle.open(path).manifest.digest)
    return tuple(sorted(found.items()))


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({number})" for number in itertools.count(2))


def git_revision(root: Path) -> str:
    """The revision that is checked out in `root`, with `+changes` where code differs from it.

    Empty where `root` is no repository. Results, and pages that are made from them, are no code.
    """
    if not (root / ".git").exists():
        return ""
    apart = [f":(exclude){name}" for name in _RESULTS]
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *apart)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return ""
    return f"{commit}+changes" if changed else commit


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def machine() -> Machine:
    """This machine."""
    gpu, driver = nvidia()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(
        processor=processor(_CPUINFO.read_text("utf-8", "replace") if _CPUINFO.exists() else ""),
        cores=cores,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=gpu,
        driver=driver,
    )


def processor(cpuinfo: str) -> str:
    """The processor's model from the text of /proc/cpuinfo, or what Python knows of it."""
    models = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return f"{next(models, '') or platform.processor() or 'processor'}, {platform.machine()}"


def nvidia() -> tuple[str, str]:
    """Name of the first NVIDIA GPU (and how many there are) and version of its driver; empty where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    rows = [row for row in done.stdout.splitlines() if ", " in row]
    if done.returncode or not rows:
        return "", ""
    name, _, driver = rows[0].rpartition(", ")
    return (name if len(rows) == 1 else f"{len(rows)} x {name}"), driver


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python, aotkern and these packages, where they are installed."""
    found = {"python": platform.python_version(), "aotkern": aotkern.__version__}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
