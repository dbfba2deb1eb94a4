"""Executed by the emulator, the code gives the references' numbers."""

from __future__ import annotations

from functools import partial

from aotkern.audit.findings import Report
from aotkern.audit.policy import NumericsStep
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.errors import InputError, MissingToolError
from aotkern.target import Backend


def planned(step: NumericsStep, circumstances: Circumstances) -> Planned:
    """The step for one bundle."""
    action = partial(_numerics, step, circumstances.jobs)
    return Planned("numerics", str(step.bundle), str(step.bundle), action)


def _numerics(step: NumericsStep, jobs: int) -> Report:
    try:
        from aotkern.audit import numerics_jobs  # noqa: PLC0415 - numpy and the emulator are an optional extra
        from aotkern.audit.executors import USUAL_ORDERS, Limits  # noqa: PLC0415
    except ImportError as error:
        advice = "pip install 'aotkern[emulator]'"
        raise MissingToolError(error.name or "numpy", "to execute machine code", advice) from error
    target = Side.bundle(step.bundle).manifest.target
    if target.backend is not Backend.HIP:
        raise InputError.one(str(step.bundle), "an AMD bundle, which an emulator can execute", str(target))
    limits = Limits() if step.limit is None else Limits(step.limit)
    setting = numerics_jobs.Setting(
        step.bundle, step.cases, step.seed, step.orders or USUAL_ORDERS, Limits(limits.instructions, step.timeout)
    )
    return numerics_jobs.audit(setting, jobs=jobs, most=step.most, bound=step.coverage)
