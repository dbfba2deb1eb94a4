"""Registers, LDS, spills and instructions keep to the rules."""

from __future__ import annotations

from functools import partial

from aotkern.audit import resources
from aotkern.audit.findings import Report
from aotkern.audit.policy import ResourcesStep
from aotkern.audit.sides import Side, mnemonics
from aotkern.audit.steps.planned import Circumstances, Planned


def planned(step: ResourcesStep, _: Circumstances) -> Planned:
    """The step for one bundle."""
    place = str(step.baseline or step.bundle)
    return Planned(resources.AUDIT, str(step.bundle), place, partial(_resources, step))


def _resources(step: ResourcesStep) -> Report:
    opened = Side.bundle(step.bundle)
    baseline = Side.either(step.baseline).manifest if step.baseline else None
    named = any(rule.instructions for rule in step.rules)
    return resources.audit(opened.manifest, step.rules, mnemonics(opened) if named else None, baseline)
