"""`aotkern record`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.build import traceplan
from aotkern.bundle import publish
from aotkern.cli import common
from aotkern.errors import InputError
from aotkern.trace import Trace, Unbuildable, merge
from aotkern.triton_bridge import child, recording
from aotkern.triton_bridge.launch import Ready, Runner
from aotkern.triton_bridge.surroundings import TRACE
from aotkern.workfolder import work_folder


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), default=Path("trace.jsonl"), show_default=True, help="The trace."
)
@click.option("--append", is_flag=True, help="Merge with the trace that is there, instead of replacing it.")
@common.json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def record(out: Path, append: bool, as_json: bool, command: tuple[str, ...]) -> NoReturn:
    """Run COMMAND unchanged and write down what its processes ask Triton's compiler for.

    The trace holds kernels by name and content digest, argument classes, compile-time constants, options, and what
    autotuners chose; no tensor, address or path. Build it with `aotkern build --from`. What was asked for and cannot be
    built is listed, with the reason. The exit code is the command's; 2 when nothing could be recorded.
    """
    before = [Trace.parse(out.read_bytes(), str(out))] if append and out.exists() else []
    with work_folder("record") as folder:
        environment = child.injected(common.environment(), {TRACE: str(folder)})
        status = run_command(command, environment, divert=as_json)
        trace = merge((*before, recording.collect(folder)))
    try:
        publish(out, trace.to_bytes())
    except OSError as error:
        raise InputError.one(str(out), "a place that can be written", error.strerror or str(error)) from error
    if as_json:
        common.emit(json.dumps(document(out, trace, status), indent=2, ensure_ascii=False))
    else:
        click.echo(summary(out, trace), err=True)
    sys.exit(status or (0 if trace.recorded else 2))


def summary(out: Path, trace: Trace) -> str:
    """A trace in words."""
    asked = sum(not row.trial for row in trace.recorded)
    kernels = len({row.key.kernel for row in trace.recorded})
    lines = [
        f"{out}: {asked} variants of {kernels} kernels, {len(trace.recorded) - asked} more that only benchmarks asked "
        f"for, {len(trace.chosen)} choices of autotuners",
        *(f"note: {note}" for note in traceplan.notes(trace)),
        *(f"left out: {row.kernel} ({row.target}): {row.reason}" for row in left_out(trace)),
    ]
    if missing := len(left_out(trace)):
        lines.append(f"incomplete: {missing} of what was asked for cannot be built from this trace")
    return "\n".join(lines)


def document(out: Path, trace: Trace, status: int) -> dict[str, Any]:
    """A trace for machines (schema `record`)."""
    asked = sum(not row.trial for row in trace.recorded)
    return {
        "schema": "aotkern.record/1",
        "file": str(out),
        "status": status,
        "kernels": len({row.key.kernel for row in trace.recorded}),
        "variants": asked,
        "trials": len(trace.recorded) - asked,
        "choices": len(trace.chosen),
        "paper_choices": sum(choice.paper for choice in trace.chosen),
        "left_out": [
            {"what": row.kernel, "target": row.target, "kind": row.kind, "reason": row.reason}
            for row in left_out(trace)
        ],
        "notes": list(traceplan.notes(trace)),
    }


def left_out(trace: Trace) -> tuple[Unbuildable, ...]:
    """What was asked for and cannot be built from a trace."""
    return (*trace.unbuildable, *traceplan.untuned(trace))


def run_command(command: tuple[str, ...], environment: dict[str, str], *, divert: bool) -> int:
    """Run a command with its output passed on; its exit status.

    Args:
        command: The command.
        environment: Its environment.
        divert: Pass its standard output to standard error, because a document goes to standard output.

    Raises:
        InputError: It cannot be started.
    """
    try:
        output = sys.stderr.buffer if divert else sys.stdout.buffer
        runner = Runner(command, None, Ready(), output, sys.stderr.buffer)
        status = runner.run(environment)
    except OSError as error:
        raise InputError.one("COMMAND", "a program that can be started", f"{command[0]}: {error.strerror}") from error
    return status if status >= 0 else 128 - status
