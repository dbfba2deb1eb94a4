"""`aotkern audit numerics`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit import cases, numerics, numerics_jobs
from aotkern.audit.executors import ORDERS, USUAL_ORDERS, Limits, OnGpu
from aotkern.audit.numerics import NumericsReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.cli import reports as files
from aotkern.errors import InputError
from aotkern.report.numerics import machine, text
from aotkern.target import Backend

SHIPPED_CASES = "aotkern_kernels.cases"
SHARE = click.FloatRange(0, 1, min_open=True)


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
    help="Most code objects of one kernel, drawn by the seed; by default all. What is left out is listed.",
)
@click.option(
    "--orders",
    default=",".join(USUAL_ORDERS),
    show_default=True,
    metavar="ORDER,...",
    help=f"Orders in which waves run, one after another: {', '.join(ORDERS)}. Emulator only.",
)
@click.option("--limit", type=click.IntRange(1), help="Most wave instructions of a launch. Emulator only.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Most seconds of a launch. Emulator only.")
@click.option(
    "--coverage", type=SHARE, help="Least share of its instructions (0.95) that the cases of each code object run."
)
@common.jobs_option
@common.reports_option
@common.json_option
def run(
    bundle: Path,
    source: str,
    on: str | None,
    seed: int,
    most: int | None,
    orders: str,
    limit: int | None,
    timeout: float | None,
    coverage: float | None,
    jobs: int,
    reports: tuple[Path, ...],
    as_json: bool,
) -> NoReturn:
    """Does the machine code of BUNDLE compute the right numbers?

    The binaries of each kernel are launched on small inputs, through the loader's own dispatch and packing, and
    compared with a reference. AMD code is executed by an emulator, in several orders of its waves: what is shown is
    that the code is right, not that a chip ran it.

    Exit code 1: something is wrong. Exit code 2: a case shows nothing, or the emulator cannot run it, or a launch took
    more than --limit or --timeout.
    """
    files.check(reports)
    started = time.perf_counter()
    side = Side.bundle(bundle)
    target = side.manifest.target
    on = on or ("emulator" if target.backend is Backend.HIP else "cuda")
    if (on == "emulator") != (target.backend is Backend.HIP):
        raise InputError.one("--on", "emulator for AMD code, cuda for NVIDIA code", f"{on} for {target}")
    report: NumericsReport
    if on == "emulator":
        limits = Limits(limit or Limits().instructions, timeout)
        setting = numerics_jobs.Setting(bundle, source, seed, _orders(orders), limits)
        report = numerics_jobs.audit(setting, jobs=jobs, most=most, bound=coverage)
    else:
        report = numerics.audit(side.manifest, cases.load(source), OnGpu(bundle), seed=seed, most=most, bound=coverage)
    step = StepResult.of(numerics.AUDIT, str(bundle), report, time.perf_counter() - started, str(bundle))
    files.write(reports, GateReport("audit numerics", (step,)))
    common.finish(report.verdict, as_json=as_json, document=machine(report), text=text(report))


def _orders(text: str) -> tuple[str, ...]:
    orders = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for order in orders:
        if order not in ORDERS:
            raise InputError.one("--orders", f"some of {', '.join(ORDERS)}", repr(order))
    return orders
