"""Executed by the emulator, the code gives the references' numbers."""

from __future__ import annotations

from functools import partial

from aotkern.audit.findings import Report
from aotkern.audit.policy import NumericsStep
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.errors import InputError, MissingToolError
from aotkern.target import Backend


def planned(step: NumericsStep, _: Circumstances) -> Planned:
    """The step for one bundle."""
    return Planned("numerics", str(step.bundle), str(step.bundle), partial(_numerics, step))


def _numerics(step: NumericsStep) -> Report:
    try:
        from aotkern.audit import cases, numerics  # noqa: PLC0415 - numpy and the emulator are an optional extra
        from aotkern.audit.executors import Emulated  # noqa: PLC0415
    except ImportError as error:
        advice = "pip install 'aotkern[emulator]'"
        raise MissingToolError(error.name or "numpy", "to execute machine code", advice) from error
    side = Side.bundle(step.bundle)
    target = side.manifest.target
    if target.backend is not Backend.HIP:
        raise InputError.one(str(step.bundle), "an AMD bundle, which an emulator can execute", str(target))
    executor = Emulated(step.bundle, target.arch)
    return numerics.audit(side.manifest, cases.load(step.cases), executor, seed=step.seed, most=step.most)
