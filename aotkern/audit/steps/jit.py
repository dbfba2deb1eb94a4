"""A program keeps to its budget of compiles."""

from __future__ import annotations

import re
import tempfile
from functools import partial
from pathlib import Path

from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Report
from aotkern.audit.jit import budget as budgets
from aotkern.audit.jit import judge, program
from aotkern.audit.policy import JitStep
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.launch import Ready
from aotkern.workfolder import work_folder

_LAST_WORDS = 300
"""Characters of a failed program's output in the step's message."""


def planned(step: JitStep, circumstances: Circumstances) -> Planned:
    """The step for one command."""
    return Planned(judge.AUDIT, " ".join(step.command), str(step.budget), partial(_jit, step, circumstances))


def _jit(step: JitStep, circumstances: Circumstances) -> Report:
    budget = budgets.read(step.budget)
    catalogues = [Catalogue.of_manifest(str(path), Side.either(path).manifest) for path in step.bundles]
    ready = Ready(re.compile(step.ready_pattern) if step.ready_pattern else None, step.ready_file)
    with work_folder("jit") as name, tempfile.TemporaryFile() as output:
        folder = Path(name)
        ran = program.Program(step.command, circumstances.inherited, output, output, step.seconds)
        obstacle = program.watch(ran, folder, Gate(budget, known=program.known(catalogues)), ready)
        if obstacle:
            output.seek(0)
            words = " ".join(output.read().decode("utf-8", "replace").split())
            obstacle += f"; it said at last: {words[-_LAST_WORDS:]}" if words else ""
        obstacle = obstacle or program.never_began(folder, budget)
        return judge.judge(program.read_log(folder), budget, obstacle, catalogues)
