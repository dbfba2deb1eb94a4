"""What the benchmarks share: how they are asked, where they may write, and why one cannot run here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:  # `python benchmarks/NAME.py` puts this folder there, and not the repository
    sys.path.insert(0, str(ROOT))

from aotkern.bench import Measurement, Table, observed, processes  # noqa: E402
from aotkern.bench.observed import Observation  # noqa: E402

MANY = ROOT / "benchmarks" / "many_kernels.py"
REVISION = "revision.txt"
"""Beside bundles that are carried to another machine: the git revision of the tree that goes with them."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark is asked to run.

    Attributes:
        folder: An empty folder of its own, which is removed afterwards.
        shared: A folder that benchmarks of one run share, so that what takes long to build is built once.
        quick: Few variants and rounds: whether it works, not how fast it is.
        ref: A revision to compare with.
        bundles: For a machine with a GPU: what `benchmarks/prepare.py` made elsewhere.
    """

    folder: Path
    shared: Path
    quick: bool = False
    bundles: Path | None = None
    ref: str = ""


class NotHereError(Exception):
    """This benchmark cannot run on this machine; the message says what it needs."""


def needs_gpu() -> None:
    """Raise `NotHereError` where there is no NVIDIA GPU, or no torch that can use it."""
    if (
        shutil.which("nvidia-smi") is None
        or subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode
    ):
        raise NotHereError("needs an NVIDIA GPU")
    needs("torch")


def needs(*packages: str) -> None:
    """Raise `NotHereError` unless these packages are installed."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise NotHereError(f"needs {', '.join(missing)}")


def prepared(options: Options) -> Path:
    """The folder of bundles that were built for this machine."""
    if options.bundles is None:
        raise NotHereError("needs --bundles FOLDER, made by benchmarks/prepare.py on a machine with the pinned Triton")
    return options.bundles


def carried(name: str, options: Options, packages: Iterable[str] = ()) -> Observation:
    """The observation of a benchmark on a machine that has no repository, only what was carried there."""
    noted = prepared(options) / REVISION
    revision = noted.read_text("utf-8").strip() if noted.exists() else None
    return observed(name, f"{command(name, options)} --bundles FOLDER", packages, revision)


def command(name: str, options: Options) -> str:
    """How to run a benchmark again."""
    return f"python -m benchmarks {name}{' --quick' if options.quick else ''}"


def environment(cache: Path) -> dict[str, str]:
    """This process's environment, with a local store in `cache` and this repository's aotkern."""
    return processes.with_this_aotkern({**os.environ, "AOTKERN_CACHE": str(cache)})


def subset(count: int, folder: Path) -> Path:
    """A kernel file with `count` of the variants of `many_kernels` for each AMD target: 24, or a multiple of 100.

    Of each step there are 20 variants of two kernels, and 4 of the third; a thousand has 40 and 50 steps of them.
    """
    steps, tiles = (1, 1) if count == 24 else (count // 25, count // 20)
    path = folder / f"many_{count}_kernels.py"
    text = MANY.read_text("utf-8").replace("range(40)", f"range({steps})").replace("range(50)", f"range({tiles})")
    path.write_text(text, "utf-8")
    return path


def thousand(options: Options) -> Path:
    """The bundle of the 1,000 variants for gfx942, built once in a run; its store lies beside it."""
    out = options.shared / "many_kernels.gfx942.aotk"
    if not out.exists():
        processes.run(rebuild_command(options), environment(options.shared / "cache"))
    return out


def rebuild_command(options: Options) -> list[str]:
    """The command that builds the 1,000 variants into the shared folder (200 when it has to be quick)."""
    source = subset(200, options.shared) if options.quick else MANY
    where = ("-o", str(options.shared), "--name", "many_kernels", "-j", "2")
    return processes.aotkern("build", str(source), "-t", "gfx942", *where)


def median(table: Table, row: str, column: str) -> float:
    """The median of a measurement in a table."""
    cell = table.cell(row, column)
    assert isinstance(cell, Measurement), cell
    return cell.median
