"""A served workload compiles no more than is allowed, on paper."""

from __future__ import annotations

from functools import partial

from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Report
from aotkern.audit.policy import ReplayStep
from aotkern.audit.replay import judge, run
from aotkern.audit.replay.workload import BUNDLE, Workload
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.errors import InputError


def planned(step: ReplayStep, _: Circumstances) -> Planned:
    """The step for one arm of a workload."""
    subject = f"{step.bundle or step.workload}, arm {step.arm}"
    return Planned(judge.AUDIT, subject, str(step.workload), partial(_replay, step))


def _replay(step: ReplayStep) -> Report:
    workload = Workload.read(step.workload)
    arm = workload.arm(step.arm)
    if (arm.kind == BUNDLE) != (step.bundle is not None):
        expected = "a bundle for an arm of prebuilt variants, and none for another"
        raise InputError.one(f"{step.workload}: arm {arm.name}", expected, f"{step.bundle or 'none'} ({arm.kind})")
    variants = Catalogue.of_manifest(str(step.bundle), Side.bundle(step.bundle).manifest) if step.bundle else None
    result = run.on_paper(workload, arm, workload.server, variants)
    return judge.ReplayReport(workload.name, result, step.compiles)
