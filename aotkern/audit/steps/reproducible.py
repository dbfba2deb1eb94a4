"""A second build under other circumstances gives the same bytes."""

from __future__ import annotations

from functools import partial

from aotkern.audit import reproducible
from aotkern.audit.findings import Report
from aotkern.audit.policy import ReproducibleStep
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.build import sources
from aotkern.build.builder import Request


def planned(step: ReproducibleStep, circumstances: Circumstances) -> Planned:
    """The step for some kernel sources."""
    subject = ", ".join(step.kernels) or "shipped kernels"
    place = step.kernels[0] if len(step.kernels) == 1 and step.kernels[0].endswith(".py") else ""
    return Planned(reproducible.AUDIT, subject, place, partial(_reproducible, step, circumstances))


def _reproducible(step: ReproducibleStep, circumstances: Circumstances) -> Report:
    request = Request(sources.parse(step.kernels), step.targets, circumstances.inherited, circumstances.jobs)
    return reproducible.audit(request, circumstances.progress)
