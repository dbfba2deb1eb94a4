"""The release gate: every step of a policy, one after the other, and one verdict over all of them.

A step that cannot be carried out does not stop the others; it counts as "could not tell", which no gate passes.
"""

from __future__ import annotations

import time
import traceback

from aotkern.audit import places
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.policy import Policy
from aotkern.audit.steps import STEPS, Circumstances, Planned
from aotkern.errors import AotkernError, InputError, IntegrityError


def run(policy: Policy, label: str, circumstances: Circumstances) -> GateReport:
    """Carry out every step of a policy.

    Args:
        policy: The steps.
        label: The policy's name, for the report.
        circumstances: What they need from outside.

    Raises:
        InputError: A source that the policy names is not there; nothing was run.
    """
    try:
        found = places.of(policy.sources)
    except InputError as error:
        raise InputError(error.within(f"{label}: sources")) from error
    steps = ((plan, step) for name, plan in STEPS.items() for step in getattr(policy, name))
    return GateReport(label, tuple(_carried_out(plan(step, circumstances)) for plan, step in steps), found)


def _carried_out(planned: Planned) -> StepResult:
    started = time.perf_counter()
    name, subject, place = planned.name, planned.subject, planned.place
    try:
        report = planned.action()
    except IntegrityError as error:
        found = tuple(
            Finding(name, problem.where, "refused", f"expected {problem.expected}, found {problem.found}")
            for problem in error.problems
        )
        seconds = time.perf_counter() - started
        return StepResult(name, subject, Verdict.FINDINGS, seconds, f"refused: {error.problems[0]}", found, None, place)
    except AotkernError as error:
        return StepResult(name, subject, Verdict.UNKNOWN, time.perf_counter() - started, str(error), place=place)
    except Exception as error:
        # Steps run code of the project (cases, servers, kernels): its faults, and our own, do not hide the other steps.
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} (at {last.filename}:{last.lineno})"
        return StepResult(name, subject, Verdict.UNKNOWN, time.perf_counter() - started, message, place=place)
    return StepResult.of(name, subject, report, time.perf_counter() - started, place)
