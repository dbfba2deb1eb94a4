"""A program run under watch, up to the log that it leaves: for the JIT audit on its own and as a step of a gate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.jit.events import Log, read
from aotkern.errors import InputError
from aotkern.triton_bridge import child
from aotkern.triton_bridge.budget import STARTUP, Budget
from aotkern.triton_bridge.gate import PHASES_FILE, Gate
from aotkern.triton_bridge.launch import Ready, Runner


@dataclass(frozen=True, slots=True)
class Program:
    """What is run.

    Attributes:
        command: The program and its arguments.
        environment: Its environment, before the watch is added.
        output: Where its standard output goes.
        error: Where its standard error goes.
        seconds: When it is ended; None to wait for as long as it takes.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    output: IO[bytes]
    error: IO[bytes]
    seconds: float | None = None


def watch(program: Program, folder: Path, gate: Gate, ready: Ready) -> str:
    """Run a program under watch, or without where that is impossible; what stood in the way, or nothing.

    Raises:
        InputError: The folder holds events already, or the program cannot be started.
    """
    obstacle, environment, watched = "", dict(program.environment), None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("*.jsonl")):
            raise InputError.one(str(folder), "a folder without event files", "those of an earlier run")
        (folder / child.GATE_FILE).write_text(json.dumps(gate.to_json()), "utf-8")
        environment, watched = child.environment(environment, folder.absolute()), folder
    except OSError as error:
        obstacle = f"events could not be written, so nothing was watched: {folder}: {error.strerror}"
        program.error.write(f"aotkern: {obstacle}\n".encode())
        program.error.flush()
    runner = Runner(program.command, watched, ready, program.output, program.error, program.seconds)
    try:
        status = runner.run(environment)
    except (OSError, ValueError) as error:
        reason = f"{program.command[0]}: {getattr(error, 'strerror', None) or error}"
        raise InputError.one("COMMAND", "a program that can be started", reason) from error
    if runner.overdue:
        return f"the program was ended after {program.seconds:g} s"
    return obstacle or (f"the program ended with status {status}" if status else "")


def read_log(folder: Path) -> Log:
    """Everything that a watched program left in its folder of events."""
    files = sorted(path for path in folder.glob("*.jsonl") if path.name != PHASES_FILE)
    return read(path.read_bytes().decode("utf-8", "replace").splitlines() for path in files)


def never_began(folder: Path, budget: Budget) -> str:
    """The phases of a budget that the program did not come to, as an obstacle: what was not reached kept its budget."""
    begun = {STARTUP}
    try:
        rows = (folder / PHASES_FILE).read_bytes().splitlines()
    except OSError:
        rows = []
    for row in rows:
        try:
            begun.add(str(json.loads(row)["phase"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
    missing = [row.phase for row in budget.phases if row.phase not in begun]
    return f"phase {' and '.join(missing)} never began, so nothing is known of it" if missing else ""


def known(catalogues: Sequence[Catalogue]) -> dict[str, tuple[str, ...]]:
    """The keys of prebuilt variants by kernel, for the message of a compile that is refused."""
    found: dict[str, list[str]] = {}
    for catalogue in catalogues:
        for kernel, table in catalogue.tables.items():
            found.setdefault(kernel, []).extend(str(variant.key) for variant in table.variants)
    return {kernel: tuple(keys) for kernel, keys in found.items()}
