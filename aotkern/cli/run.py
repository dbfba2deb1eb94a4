"""`aotkern run`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.audit.findings import Verdict
from aotkern.bundle import Bundle
from aotkern.cli import common
from aotkern.cli.record import run_command
from aotkern.settings import DENY
from aotkern.trace import origins
from aotkern.triton_bridge import child, installed
from aotkern.triton_bridge.serve import ON_MISS, UNTUNED
from aotkern.triton_bridge.surroundings import BUNDLE, LOCK, OTHER_TRITON, SERVED_EVENTS
from aotkern.triton_bridge.surroundings import ON_MISS as ON_MISS_VARIABLE
from aotkern.triton_bridge.surroundings import UNTUNED as UNTUNED_VARIABLE
from aotkern.workfolder import work_folder

SHOWN = 20
"""Reasons for misses that the summary lists."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--bundle", "-b", "bundles", multiple=True, required=True, help="A bundle, folder, entry point, package.")
@click.option("--on-miss", type=click.Choice(ON_MISS), default="error", show_default=True, help="What a miss does.")
@click.option(
    "--untuned",
    type=click.Choice(UNTUNED),
    default="miss",
    show_default=True,
    help="An autotuner's key that was not recorded: a miss, or what was chosen most often.",
)
@click.option("--other-triton", is_flag=True, help="Use bundles that another tested version of Triton built.")
@click.option("--locked", type=click.Path(path_type=Path), help="Refuse bundles that are not in this lock file.")
@click.option(
    "--deny",
    multiple=True,
    metavar="ENTRY",
    help="Take a binary out of service: a variant's key, a digest (12 digits or more), or @FILE with an entry a line.",
)
@common.json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    bundles: tuple[str, ...],
    on_miss: str,
    untuned: str,
    other_triton: bool,
    locked: Path | None,
    deny: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> NoReturn:
    """Run COMMAND unchanged, its Triton kernels served from prebuilt binaries in all its processes.

    Bundles for several targets may come together: the device decides. A summary of hits and misses goes to standard
    error at the end. The exit code is the command's; 2 when it ended well but a process was refused, or, where misses
    are errors, when no process was served at all.
    """
    opened = installed.opened(bundles, locked)  # what is damaged, absent or not locked is said before anything runs
    entries = installed.denied_by(deny).entries
    places = [os.path.abspath(bundle) if Path(bundle).exists() else bundle for bundle in bundles]  # noqa: PTH100
    variables = {
        BUNDLE: os.pathsep.join(places),
        ON_MISS_VARIABLE: on_miss,
        UNTUNED_VARIABLE: untuned,
        OTHER_TRITON: str(int(other_triton)),
        LOCK: str(locked.absolute()) if locked else "",
        DENY: "\n".join(entries),
    }
    with ExitStack() as stack:
        folder: Path | None = None
        with suppress(OSError):  # a read-only system: everything works, without the summary
            folder = stack.enter_context(work_folder("run"))
        told = {**variables, SERVED_EVENTS: str(folder or "")}
        environment = child.injected(common.environment(), told)
        status = run_command(command, environment, divert=as_json)
        rows = events(folder) if folder else []
    failed = unserved(rows) if folder and on_miss == "error" else ""
    if as_json:
        common.emit(json.dumps(document(opened, rows, status), indent=2, ensure_ascii=False))
    else:
        text = summary(rows) if folder else "no summary: no folder for temporary files"
        click.echo(f"aotkern: {len(opened)} bundles; {text}", err=True)
    if failed:
        click.echo(f"aotkern: {failed}", err=True)
    sys.exit(status or (Verdict.UNKNOWN.exit_code if failed else 0))


def unserved(rows: list[dict[str, Any]]) -> str:
    """Why a run in which misses are errors must not count as served; empty when it may."""
    counts = Counter(row.get("event") for row in rows)
    if counts["refused"]:
        return f"{counts['refused']} processes were refused Triton, because they could not be served"
    if _served(counts):
        return ""
    if counts["interpreted"]:
        return "nothing was served: TRITON_INTERPRET is set, so that kernels are interpreted and none is compiled"
    return (
        "nothing was served: no process of the command imported Triton where it could be served "
        "(an interpreter that is started with -I, -E or -S, or with another PYTHONPATH, cannot be)"
    )


def _served(counts: Counter[Any]) -> int:
    """Processes that imported Triton and were served; a forked one that asked for nothing is no further process."""
    return counts["process"] - counts["interpreted"]


def document(bundles: Sequence[Bundle], rows: list[dict[str, Any]], status: int) -> dict[str, Any]:
    """A run for machines (schema `run`)."""
    counts = Counter(row.get("event") for row in rows)
    return {
        "schema": "aotkern.run/1",
        "status": status,
        "bundles": [
            {"file": bundle.where, "target": str(bundle.manifest.target), "digest": str(bundle.digest)}
            for bundle in bundles
        ],
        "processes": _served(counts),
        "refused": counts["refused"],
        "hits": counts["hit"],
        "misses": counts["miss"],
        "tuned": counts["tuned"],
        "untuned": counts["untuned"],
        "borrowed": sum("borrowed" in row for row in rows if row.get("event") == "tuned"),
        "paper": sum("paper" in row for row in rows if row.get("event") == "tuned"),
        "reasons": [{"reason": reason, "count": count} for reason, count in _reasons(rows).most_common()],
    }


def _origins(rows: list[dict[str, Any]]) -> str:
    """Where known tunings come from, if that is not a measurement on this target."""
    tuned = [row for row in rows if row.get("event") == "tuned"]
    borrowed = [str(row["borrowed"]) for row in tuned if "borrowed" in row]
    return origins(borrowed, sum("paper" in row for row in tuned))


def _reasons(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(row["reason"]) for row in rows if row.get("event") in ("miss", "untuned"))


def events(folder: Path) -> list[dict[str, Any]]:
    """What the processes of a run wrote down; lines that were cut short are left out."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def summary(rows: list[dict[str, Any]]) -> str:
    """Hits and misses in words."""
    counts = Counter(row.get("event") for row in rows)
    reasons = _reasons(rows)
    lines = [
        f"{_served(counts)} processes served: {counts['hit']} specialisations hit, {counts['miss']} missed; "
        f"{counts['tuned']} tunings known{_origins(rows)}, {counts['untuned']} not"
    ]
    lines += [f"{count} x {reason}" for reason, count in reasons.most_common(SHOWN)]
    if len(reasons) > SHOWN:
        lines.append(f"... and {len(reasons) - SHOWN} more reasons")
    return "\n".join(lines)
