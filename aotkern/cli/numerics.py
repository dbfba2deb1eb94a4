"""`aotkern audit numerics`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit import cases, numerics
from aotkern.audit.executors import Emulated, OnGpu
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.cli import reports as files
from aotkern.errors import InputError
from aotkern.report.numerics import machine, text
from aotkern.target import Backend

SHIPPED_CASES = "aotkern_kernels.cases"


@click.command(name="numerics")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--cases",
    "source",
    default=SHIPPED_CASES,
    show_default=True,
    help="A module or file with CASES: inputs and references for each kernel.",
)
@click.option("--on", type=click.Choice(["emulator", "cuda"]), help="What executes the code; by default what can.")
@click.option("--seed", type=int, default=0, show_default=True, help="Inputs and the choice of variants.")
@click.option(
    "--most",
    type=click.IntRange(1),
    default=numerics.MOST,
    show_default=True,
    help="Most variants of one kernel; the rest is counted in the report.",
)
@common.reports_option
@common.json_option
def run(
    bundle: Path,
    source: str,
    on: str | None,
    seed: int,
    most: int,
    reports: tuple[Path, ...],
    as_json: bool,
) -> NoReturn:
    """Does the machine code of BUNDLE compute the right numbers?

    Each kernel's binaries are launched on small inputs, through the loader's own dispatch and packing, and compared
    with a reference. AMD code is executed by an emulator, which models neither timing nor hazards: what is shown is
    that the code is right, not that a chip ran it.
    """
    files.check(reports)
    started = time.perf_counter()
    side = Side.bundle(bundle)
    target = side.manifest.target
    on = on or ("emulator" if target.backend is Backend.HIP else "cuda")
    if (on == "emulator") != (target.backend is Backend.HIP):
        raise InputError.one("--on", "emulator for AMD code, cuda for NVIDIA code", f"{on} for {target}")
    executor = Emulated(bundle, target.arch) if on == "emulator" else OnGpu(bundle)
    report = numerics.audit(side.manifest, cases.load(source), executor, seed=seed, most=most)
    step = StepResult.of(numerics.AUDIT, str(bundle), report, time.perf_counter() - started, str(bundle))
    files.write(reports, GateReport("audit numerics", (step,)))
    common.finish(report.verdict, as_json=as_json, document=machine(report), text=text(report))
