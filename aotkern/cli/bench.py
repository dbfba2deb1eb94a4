"""`aotkern bench`: the project's promises, measured on the user's own machine, kernels and bundles."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bench import Run, observed
from aotkern.cli import common
from aotkern.cli.lazy import LazyGroup
from aotkern.report import bench as report
from aotkern.workfolder import work_folder

COMMANDS = {
    "build": ("aotkern.cli.bench:build", "How fast kernels are built, beside a plain loop over triton.compile."),
    "bundle": ("aotkern.cli.bench:bundle", "What bundles cost: size, verification, loading, choosing a variant."),
}

_rounds_help = "How often each contender has its turn."
_save_option = click.option(
    "--save", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Also write the JSON there."
)


@click.group(cls=LazyGroup, lazy=COMMANDS)
def bench() -> None:
    """Measure aotkern on this machine, beside what one would use instead.

    Contenders take turns. A figure is a median; the quartiles stand behind it. Nothing is judged: the exit code is 0
    whatever is measured.
    """


@click.command()
@common.sources_argument
@click.option("--target", "-t", default="gfx942", show_default=True, help="A target such as gfx950 or cuda:90.")
@common.only_option
@click.option("--jobs", "-j", "jobs", type=click.IntRange(1, 1024), multiple=True, default=(1, 2), show_default=True,
              help="Worker processes; once for each number to compare.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=3, show_default=True, help=_rounds_help)
@_save_option
@common.json_option
def build(
    kernels: tuple[str, ...],
    target: str,
    only: tuple[str, ...],
    jobs: tuple[int, ...],
    rounds: int,
    save: Path | None,
    as_json: bool,
) -> NoReturn:
    """How fast KERNELS are built: variants a second with several numbers of jobs, and the memory it takes.

    Every variant is compiled anew by whole commands in fresh processes; a plain loop over triton.compile takes turns
    with them. Without KERNELS those that aotkern ships, which take minutes: name some with --only.
    """
    from aotkern.bench import builds  # noqa: PLC0415 - needs the build half
    from aotkern.build import sources  # noqa: PLC0415

    wanted = common.parse_targets((target,))[0]
    named = tuple(str(source.path or source.name) for source in sources.parse(kernels))
    words = " ".join([*map(_name, kernels), "-t", target, *(f"--only '{p}'" for p in only), "--rounds", str(rounds)])
    observation = observed("user-build", f"aotkern bench build {words}")
    with work_folder("bench") as folder:
        subject = builds.Subject(named, wanted, only, common.environment(), folder)
        tables = builds.measure(subject, tuple(dict.fromkeys(jobs)), rounds)
    _finish(observation.run(tables), save, as_json=as_json)


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")
@click.option("--rounds", type=click.IntRange(1, 1000), default=9, show_default=True, help=_rounds_help)
@_save_option
@common.json_option
def bundle(bundles: tuple[Path, ...], rounds: int, save: Path | None, as_json: bool) -> NoReturn:
    """What BUNDLEs cost: size beside zip and zstd, verification, opening and loading, choosing a variant.

    Loading is measured on a device where there is one that the bundle fits; on the null driver it goes nowhere.
    """
    from aotkern.bench import bundles as measuring  # noqa: PLC0415 - needs the loader

    paths = list(dict.fromkeys(bundles))
    observation = observed("user-bundle", f"aotkern bench bundle {' '.join(path.name for path in paths)}")
    tables = measuring.measure(paths, rounds)
    _finish(observation.run(tables, bundles=paths), save, as_json=as_json)


def _name(kernels: str) -> str:
    """A source as one would type it on another machine, too."""
    return Path(kernels).name if "/" in kernels else kernels


def _finish(run: Run, save: Path | None, *, as_json: bool) -> NoReturn:
    if save is not None:
        run.write(save)
    common.finish(Verdict.CLEAN, as_json=as_json, document=run.to_json(), text=report.text(run))
