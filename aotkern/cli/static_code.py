"""`aotkern audit static`."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit import static_code
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.report.static_code import machine, text


@click.command(name="static")
@click.argument("bundle", type=click.Path(path_type=Path))
@common.json_option
def run(bundle: Path, as_json: bool) -> NoReturn:
    """Does the machine code of BUNDLE show faults without being run?

    Walks every path of every AMD code object: loads whose result is read before the wait that they need, branches out
    of the code, bytes that are no instruction of the target, registers beyond the declared ones, barriers before which
    this wave's writes to LDS were not waited for. Reads of registers that nothing wrote are counted and are no
    findings, and so are instructions that the emulator cannot execute. Hazards that need nops are not checked.
    """
    report = static_code.audit(Side.bundle(bundle))
    common.finish(report.verdict, as_json=as_json, document=machine(report), text=text(report))
