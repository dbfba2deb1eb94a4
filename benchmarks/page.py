"""docs/benchmarks.md, made from the results in audits/benchmarks, which are kept in git."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aotkern.bench import Run
from aotkern.report import bench as report
from benchmarks import readme

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "audits" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

Made by `python -m benchmarks --page` from the results in `audits/benchmarks`; a test holds it to them. Each section is
one run on one machine, which its first lines name with the git revision and the digests of the bundles. Contenders take
turns, and each follows each other one equally often. A figure is the median of its samples; behind
it, in brackets, stand the first and the third quartile. "x" is a ratio.

Run them yourself:

```sh
make bench                                  # in a clone: everything that this machine can run
aotkern bench build KERNELS                 # your kernels: jobs beside a plain loop over triton.compile, and memory
aotkern bench bundle out/add.gfx942.aotk    # your bundles: size, verification, loading, choosing a variant
```
"""


def results(folder: Path = RESULTS) -> tuple[Run, ...]:
    """Every result in a folder, by name."""
    return tuple(Run.read(path) for path in sorted(folder.glob("*.json")))


def made(runs: Sequence[Run]) -> str:
    """The page."""
    parts = [HEAD, unmeasured(runs), promises(runs), *(f"## {run.benchmark}\n\n{report.markdown(run)}" for run in runs)]
    return "\n".join(part for part in parts if part)


def unmeasured(runs: Sequence[Run]) -> str:
    """What has no result, in a line of its own."""
    found = {run.benchmark for run in runs}
    absent = [name for name in (*readme.ON_GPU, *readme.HERE) if name not in found]
    return f"Not measured at this revision: {', '.join(absent)}.\n" if absent else ""


def promises(runs: Sequence[Run]) -> str:
    """All bars in one table, with where they are measured."""
    rows = list(_bars(runs))
    if not rows:
        return ""
    return "\n".join(
        ["## Promises\n", "| promise | bound | measured | | section |", "|---|---:|---:|---|---|", *rows, ""]
    )


def _bars(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        for cells in report.bars(run.bars):
            yield f"| {' | '.join(cells)} | [{run.benchmark}](#{run.benchmark}) |"
