"""`aotkern audit replay`: what a served workload would compile, in each of its arms."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit.counting import count_jit
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.replay import run
from aotkern.audit.replay.arms import LaunchingArm, fresh
from aotkern.audit.replay.drive import ArmResult, drive
from aotkern.audit.replay.judge import AUDIT, ReplayReport, usual_bounds
from aotkern.audit.replay.workload import BUNDLE, Arm, Workload
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.cli import reports as files
from aotkern.errors import InputError
from aotkern.loader import load
from aotkern.report import replay as text


@click.command()
@click.argument("workload")
@click.option("--arm", "names", multiple=True, help="Only this arm; once for each. Default: all of them.")
@click.option("--server", help="The module or .py file that is replayed, instead of the workload's.")
@click.option("--bundle", help="Prebuilt variants for `bundle` arms. Default: those that the kernels declare.")
@click.option(
    "--device",
    default=run.ON_PAPER,
    show_default=True,
    help="A GPU, such as cuda, to launch and compile for real on it.",
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write the comparison to this file.")
@common.reports_option
@common.json_option
def replay(
    workload: str,
    names: tuple[str, ...],
    server: str | None,
    bundle: str | None,
    device: str,
    markdown: Path | None,
    reports: tuple[Path, ...],
    as_json: bool,
) -> NoReturn:
    """Serve WORKLOAD on paper and count the binaries that each kernel would compile, and when.

    Drives the kernels' own host code with tensors without memory, on a device on paper; needs Triton and torch, and no
    GPU. Exit codes: 0 nothing compiles in the scored phase and prebuilt variants serve every call, 1 otherwise, 2 it
    could not be told.
    """
    files.check(reports)
    parsed = Workload.read(Path(workload))
    arms = [parsed.arm(name) for name in names] or list(parsed.arms)
    variants = Catalogue.of_manifest(bundle, Side.either(Path(bundle)).manifest) if bundle else None
    steps: list[StepResult] = []
    replayed: list[ReplayReport] = []
    for arm in arms:
        started = time.perf_counter()
        if device == run.ON_PAPER:
            result = run.on_paper(parsed, arm, server or parsed.server, variants)
        else:
            result = _launching(parsed, arm, server or parsed.server, bundle, device)
        replayed.append(ReplayReport(parsed.name, result, usual_bounds(result)))
        seconds = time.perf_counter() - started
        steps.append(StepResult.of(AUDIT, f"{workload}, arm {arm.name}", replayed[-1], seconds, workload))
    files.write(reports, GateReport("audit replay", tuple(steps)))
    verdict = Verdict.worst([report.verdict for report in replayed])
    if markdown is not None:
        where = text.ON_PAPER if device == run.ON_PAPER else f"Everything was launched, on {device}."
        page = text.markdown(parsed, [report.result for report in replayed], where)
        files.save(markdown, page)
    document = text.json_document(replayed, verdict)
    common.finish(verdict, as_json=as_json, document=document, text=text.summary(replayed, verdict))


def _launching(workload: Workload, arm: Arm, server: str, bundle: str | None, device: str) -> ArmResult:
    open_server = run.open_server(server)
    with count_jit() as count:
        if arm.kind == BUNDLE:
            if bundle is None:
                raise InputError.one("--bundle", "a bundle for the device, which this arm launches from", "none")
            launcher = LaunchingArm(None, count)
            launcher.launcher = load(bundle, on_miss=lambda call: launcher.missed(call.kernel, call.miss))
        else:
            functions = run.functions(run.kernels_of(server))
            launcher = LaunchingArm({name: fresh(function) for name, function in functions.items()}, count)
        with run.driving(server):
            return drive(workload, arm, launcher, open_server(launcher, device, arm.settings))
