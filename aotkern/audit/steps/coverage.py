"""Every call of a declared domain finds a variant."""

from __future__ import annotations

from functools import partial

from aotkern.audit.coverage import domain as domains
from aotkern.audit.coverage import proof
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Report
from aotkern.audit.policy import CoverageStep
from aotkern.audit.sides import Side
from aotkern.audit.steps.planned import Circumstances, Planned


def planned(step: CoverageStep, _: Circumstances) -> Planned:
    """The step for one domain."""
    return Planned(proof.AUDIT, str(step.bundle), str(step.domain), partial(_coverage, step))


def _coverage(step: CoverageStep) -> Report:
    catalogue = Catalogue.of_manifest(str(step.bundle), Side.bundle(step.bundle).manifest)
    return proof.prove(catalogue, domains.read(step.domain), str(step.domain))
