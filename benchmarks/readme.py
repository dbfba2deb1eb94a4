"""README's section "Measured", made from the results in audits/benchmarks: no figure in it is typed by hand.

Every promise of every result stands there, missed ones where met ones stand, and a few figures that are no promises.
A benchmark without a result is named as not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from aotkern.bench import Measurement, Run, Table
from aotkern.report import bench as report

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- measured: made by `python -m benchmarks --page` -->", "<!-- measured: end -->"
RECORDS = "audits/benchmarks"
ON_GPU = ("launch", "cold-start", "decode", "kernels", "serving")
HERE = ("build", "size", "audits", "jit-watch", "emulator", "report-page")

HEAD = f"""\
## Measured

Made by `python -m benchmarks --page` from the records in [{RECORDS}]({RECORDS}), which hold the samples, the git
revision, the digests of the bundles, the versions and the command; a test holds this section to them. All tables stand
in [docs/benchmarks.md](docs/benchmarks.md), what was run on the GPU in [audits/h200.md](audits/h200.md). Figures are
medians; promises that are missed stand beside those that are met.
"""

Figure = tuple[str, Callable[[Run], str]]


def section(runs: Sequence[Run]) -> str:
    """The section, without the marks around it."""
    found = {run.benchmark: run for run in runs}
    gpu = _part("On an NVIDIA GPU, from bundles that were built on a machine without one", ON_GPU, found)
    return "\n".join((HEAD, *gpu, *_part("On a machine without a GPU (`make bench`)", HERE, found))).rstrip("\n") + "\n"


def put(text: str, made: str) -> str:
    """A README with this section between its marks.

    Raises:
        ValueError: It has no marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no {BEGIN} ... {END}")
    return f"{before}{begin}\n{made}{end}{after}"


def _part(title: str, names: Sequence[str], found: Mapping[str, Run]) -> Iterator[str]:
    """A table of what was promised and one of other figures."""
    here = [found[name] for name in names if name in found]
    absent = [name for name in names if name not in found]
    if here:
        machines = "; ".join(dict.fromkeys(map(_machine, here)))
        revisions = ", ".join(dict.fromkeys(map(_revision, here)))
        yield f"{title}: {machines}; {revisions}.\n"
        yield from _table(("promise", "bound", "measured", "", "record"), _promises(here))
        yield from _table(("what", "figure", "record"), _figures(here))
    if absent:
        yield f"{title}: not measured at this revision: {', '.join(absent)}.\n"


def _machine(run: Run) -> str:
    where = run.machine
    return where.gpu or f"{where.processor}, {where.cores} cores"


def _promises(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for run in runs:
        for cells in report.bars(run.bars):
            yield (*cells, _link(run))


def _figures(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for run in runs:
        for what, figure in FIGURES.get(run.benchmark, ()):
            yield what, figure(run), _link(run)


def _table(columns: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    body = list(rows)
    if body:
        yield f"| {' | '.join(columns)} |"
        yield "|---" * len(columns) + "|"
        yield from (f"| {' | '.join(row)} |" for row in body)
        yield ""


def _revision(run: Run) -> str:
    return f"revision {run.revision[:12]}{run.revision[40:]}" if run.revision else "revision not noted"


def _link(run: Run) -> str:
    return f"[{run.benchmark}]({RECORDS}/{run.benchmark}.json)"


def _table_like(run: Run, title: str) -> Table:
    """The table whose title begins so."""
    return next(table for table in run.tables if table.title.startswith(title))


def _median(run: Run, title: str, row: str, column: str) -> str:
    cell = _table_like(run, title).cell(row, column)
    assert isinstance(cell, Measurement), cell
    return report.number(cell.median, cell.unit)


def _served(run: Run) -> str:
    parts = []
    for arm in ("legacy", "despecialised", "bundle"):
        compiled = _median(run, "compiles", arm, "compiled, scored").partition(" ")[0]
        longest = _median(run, "scored steps", arm, "longest")
        parts.append(f"{arm}: {compiled} compiled, longest step {longest}")
    return "; ".join(parts)


def _first_steps(run: Run) -> str:
    arms = ("legacy", "despecialised", "bundle")
    return ", ".join(f"{arm} {_median(run, 'compiles', arm, 'first step')}" for arm in arms)


def _comparisons(run: Run) -> str:
    table = _table_like(run, "all shapes")
    said = []
    for row in table.rows:
        hold, compared = (_median(run, "all shapes", row.name, name).partition(" ")[0] for name in ("hold", "compared"))
        said.append(f"{row.name}'s design {hold} of {compared}")
    return "; ".join(said)


def _range(run: Run, column: str) -> str:
    table = _table_like(run, "gfx950's design over")
    values = [cell.median for row in table.rows if isinstance(cell := table.cell(row.name, column), Measurement)]
    below = sum(value < 1 for value in values)
    return f"{min(values):.2f} to {max(values):.2f} x; below 1 at {below} of {len(values)} shapes"


FIGURES: Mapping[str, Sequence[Figure]] = {
    "decode": (("distinct comparisons with float64 that hold, 40 shapes", _comparisons),),
    "kernels": tuple(
        (f"gfx950's design over gfx942's, both built for this GPU, {form}", partial(_range, column=form))
        for form in ("graph", "quickest form of each")
    ),
    "cold-start": (
        (
            "200 variants opened, verified, loaded and arranged in a fresh process",
            lambda run: _median(run, "200 variants", "aotkern", "after import and context"),
        ),
    ),
    "serving": (
        ("served workload, 8 requests at a time: binaries compiled while scored, longest step", _served),
        ("time to its first step, empty caches", _first_steps),
    ),
    "build": (
        (
            "400 variants compiled, two jobs; a plain loop over `triton.compile`",
            lambda run: "; ".join(
                _median(run, "build of 400", row, "whole command")
                for row in ("aotkern build, 2 jobs", "plain loop over triton.compile")
            ),
        ),
        (
            "`aotkern --help`",
            lambda run: _median(run, "rebuild of 1,000 variants", "aotkern --help", "whole command"),
        ),
    ),
    "size": (
        (
            "bundle of 24, 200 and 1,000 variants against Triton's cache folder of them",
            lambda run: ", ".join(
                _median(run, "bytes of files", count, "bundle / folder") for count in ("24", "200", "1000")
            ),
        ),
    ),
    "audits": (
        (
            "`verify` of 1,000 variants",
            lambda run: _median(run, "1000 variants", "verify", "whole command"),
        ),
    ),
}
"""By benchmark: figures that are no promises."""
