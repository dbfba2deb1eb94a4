"""A bundle's machine code is what a baseline says."""

from __future__ import annotations

from functools import partial

from aotkern.audit import identity
from aotkern.audit.findings import Report
from aotkern.audit.policy import IdentityStep
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError


def planned(step: IdentityStep, _: Circumstances) -> Planned:
    """The step for one comparison."""
    return Planned(identity.AUDIT, str(step.bundle), str(step.baseline), partial(_identity, step))


def _identity(step: IdentityStep) -> Report:
    if step.bundle.resolve() == step.baseline.resolve():
        raise InputError.one(str(step.baseline), "a baseline that is not the bundle itself", "the same file")
    known: dict[Digest, CodeObject] = {}
    return identity.compare(Side.either(step.baseline, known), Side.bundle(step.bundle, known), step.only)
