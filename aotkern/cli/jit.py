"""`aotkern audit jit`: run a program and count what it compiles."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.jit import budget as budgets
from aotkern.audit.jit import program
from aotkern.audit.jit.judge import JitReport, judge
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.cli import reports as files
from aotkern.errors import InputError
from aotkern.report import html, jit_page
from aotkern.report import jit as text
from aotkern.report import jit_machine as machine
from aotkern.triton_bridge.budget import MODES, SERVING, Budget, PhaseBudget
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.launch import Ready
from aotkern.workfolder import work_folder

FORMS: Mapping[str, Callable[[JitReport], str]] = {
    "text": text.summary,
    "json": lambda report: json.dumps(machine.json_document(report), indent=2, ensure_ascii=False) + "\n",
    "markdown": text.markdown,
    "html": jit_page.render,
    "junit": machine.junit,
    "prometheus": machine.prometheus,
}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--budget", "budget_file", help="TOML file: what each phase allows.")
@click.option("--mode", type=click.Choice(MODES), help="What to do beyond the budget (default: observe).")
@click.option("--ready-pattern", help="Ready when a line of the output matches this regular expression.")
@click.option("--ready-file", help="Ready when this file exists.")
@click.option("--ready-signal", help="Ready when this command gets the signal, such as USR1.")
@click.option("--ready-after", type=float, help="Ready after so many seconds.")
@click.option("--bundle", "bundles", multiple=True, help="A bundle or manifest with prebuilt variants.")
@click.option("--events", help="Keep the event files in this folder; without COMMAND, report on those in it.")
@click.option("--report", "reports", multiple=True, metavar="FORM=FILE", help=f"Also write {', '.join(FORMS)}.")
@common.json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def jit(
    budget_file: str | None,
    mode: str | None,
    ready_pattern: str | None,
    ready_file: str | None,
    ready_signal: str | None,
    ready_after: float | None,
    bundles: tuple[str, ...],
    events: str | None,
    reports: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> NoReturn:
    """Run COMMAND unchanged and count what Triton compiles in all its processes.

    Without a budget file, a ready condition means: no compile after ready. Exit codes: 0 within the budget, 1 beyond
    it, 2 when it could not be told (no Triton, interpreted kernels, events lost, the program failed).
    """
    ready = Ready(
        pattern=_pattern(ready_pattern),
        file=Path(ready_file) if ready_file else None,
        signal=_signal(ready_signal),
        seconds=ready_after,
    )
    budget = _budget(budget_file, mode, has_ready=ready != Ready())
    outputs = _outputs(reports)
    catalogues = [Catalogue.of_manifest(path, Side.either(Path(path)).manifest) for path in bundles]
    with ExitStack() as stack:
        folder = Path(events or stack.enter_context(work_folder("jit")))
        if command:
            output = sys.stderr.buffer if as_json else sys.stdout.buffer
            ran = program.Program(command, common.environment(), output, sys.stderr.buffer)
            obstacle = program.watch(ran, folder, Gate(budget, known=program.known(catalogues)), ready)
            obstacle = obstacle or program.never_began(folder, budget)
        elif events:
            obstacle = "" if folder.is_dir() else f"no such folder: {folder}"
        else:
            raise InputError.one("COMMAND", "a command to run, or --events with a folder to report on", "neither")
        report = judge(program.read_log(folder), budget, obstacle, catalogues)
    for form, path in outputs:
        files.save(path, FORMS[form](report))
    common.finish(report.verdict, as_json=as_json, document=machine.json_document(report), text=text.summary(report))


def _budget(file: str | None, mode: str | None, *, has_ready: bool) -> Budget:
    budget = budgets.read(Path(file)) if file else Budget()
    if not budget.phases and has_ready:
        budget = Budget(budget.mode, (PhaseBudget(SERVING, compiles=0, retunes=0),))
    return Budget(next((known for known in MODES if known == mode), budget.mode), budget.phases)


def _pattern(expression: str | None) -> re.Pattern[str] | None:
    try:
        return None if expression is None else re.compile(expression)
    except re.error as error:
        raise InputError.one("--ready-pattern", "a regular expression", f"{expression!r}: {error}") from error


def _signal(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except KeyError:
        raise InputError.one("--ready-signal", "the name of a signal, such as USR1", repr(name)) from None


def _outputs(reports: tuple[str, ...]) -> list[tuple[str, Path]]:
    outputs = []
    for item in reports:
        form, _, path = item.partition("=")
        if form not in FORMS or not path:
            raise InputError.one("--report", f"FORM=FILE with one of {', '.join(FORMS)}", repr(item))
        if form == "html":
            html.require()
        files.writable(Path(path))
        outputs.append((form, Path(path)))
    return outputs
