"""The same commands from two revisions of aotkern, in turns: what a change gained.

    python -m benchmarks against --ref REVISION

The older sources come from git; both read the same files and the same local store: what is compared is the code.
Processor time is that of the command with its workers, which other programs on the machine hardly change.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from aotkern.bench import Measurement, Row, Run, Table, interleaved, observed, processes, ratios
from benchmarks import common
from benchmarks.common import Options


def measure(options: Options) -> Run:
    common.needs("triton")
    if not options.ref:
        raise common.NotHereError("needs --ref REVISION, something to compare with")
    observation = observed("against", f"{common.command('against', options)} --ref {options.ref}")
    older = options.folder / "older"
    commit = export(options.ref, older)
    bundle = common.thousand(options)
    environment = common.environment(options.shared / "cache")
    golden = options.folder / "golden.json"
    processes.run(processes.aotkern("manifest", str(bundle), "--out", str(golden)), environment)
    against = ("audit", "identity", "-t", "gfx942", "--bundle", str(bundle), "--baseline")
    commands = {
        "rebuild of 1,000 variants, nothing changed": common.rebuild_command(options),
        "identity: bundle against golden manifest": processes.aotkern(*against, str(golden)),
        "identity: bundle against bundle": processes.aotkern(*against, str(bundle)),
        "build --help": processes.aotkern("build", "--help"),
    }
    rows = [
        compared(name, command, environment, older, 3 if options.quick else 9) for name, command in commands.items()
    ]
    columns = ("command", "before", "after", "after / before", "before, processor", "after, processor")
    note = f"Before: revision {commit[:12]}; after: the sources that hold this result, when it was made."
    return observation.run((Table("whole commands", columns, tuple(rows)),), notes=(note,))


def export(ref: str, into: Path) -> str:
    """The sources of a revision, in a folder; the revision's full name."""
    git = ["git", "-C", str(common.ROOT)]
    archive = subprocess.run([*git, "archive", ref], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return subprocess.run([*git, "rev-parse", ref], capture_output=True, text=True, check=True).stdout.strip()


def compared(name: str, command: list[str], environment: dict[str, str], older: Path, rounds: int) -> Row:
    """One command from both revisions."""
    before = {**environment, "PYTHONPATH": os.pathsep.join((str(older), environment["PYTHONPATH"]))}
    spent: dict[str, list[float]] = {"before": [], "after": []}

    def sampler(kind: str, variables: dict[str, str]) -> Callable[[], float]:
        def sample() -> float:
            begun, used = time.perf_counter(), processor_time()
            processes.run(command, variables, Path(variables["PYTHONPATH"].partition(os.pathsep)[0]))
            spent[kind].append(processor_time() - used)
            return time.perf_counter() - begun

        return sample

    times = interleaved({"before": sampler("before", before), "after": sampler("after", environment)}, rounds, 1)
    walls = tuple(Measurement.of("s", times[kind]) for kind in ("before", "after"))
    processor = tuple(Measurement.of("s", spent[kind][1:]) for kind in ("before", "after"))
    return Row(name, (*walls, ratios(times["after"], times["before"]), *processor))


def processor_time() -> float:
    """Seconds of processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
