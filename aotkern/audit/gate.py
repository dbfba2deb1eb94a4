"""The release gate: every step of a policy, one after the other, and one verdict over all of them.

A step that cannot be carried out does not stop the others; it counts as "could not tell", which no gate passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Union

from aotkern.audit import identity, reproducible, resources
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.identity import IdentityReport
from aotkern.audit.policy import IdentityStep, Policy, ReproducibleStep, ResourcesStep
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.audit.resources import ResourceReport
from aotkern.audit.sides import Side, mnemonics
from aotkern.build import sources
from aotkern.build.builder import Request, Step
from aotkern.errors import AotkernError, IntegrityError

Progress = Callable[[Step], None]
Report = Union[IdentityReport, ReproducibleReport, ResourceReport]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of the gate, done.

    Attributes:
        name: `verify`, `identity`, `resources` or `reproducible`.
        subject: What it worked on, for people.
        verdict: Its outcome.
        seconds: How long it took.
        message: One line: what was shown, or why nothing could be told.
        findings: What somebody should look at.
        report: The audit's own report, where it has one.
    """

    name: str
    subject: str
    verdict: Verdict
    seconds: float
    message: str
    findings: tuple[Finding, ...] = ()
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class GateReport:
    """All steps, and the verdict over them."""

    policy: str
    steps: tuple[StepResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the steps' verdicts; a gate without steps could not tell."""
        return Verdict.worst([step.verdict for step in self.steps])


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the steps need from outside: the caller's environment, worker processes, and who hears of progress."""

    inherited: Mapping[str, str]
    jobs: int = 1
    progress: Progress = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class _Outcome:
    verdict: Verdict
    message: str
    findings: tuple[Finding, ...] = ()
    report: Report | None = None


_Action = Callable[[], _Outcome]


def run(policy: Policy, label: str, circumstances: Circumstances) -> GateReport:
    """Carry out every step of a policy.

    Args:
        policy: The steps.
        label: The policy's name, for the report.
        circumstances: What they need from outside.
    """
    return GateReport(label, tuple(_timed(*step) for step in _steps(policy, circumstances)))


def _steps(policy: Policy, circumstances: Circumstances) -> Iterator[tuple[str, str, _Action]]:
    for path in policy.verify:
        yield "verify", str(path), partial(_verify, path)
    for comparison in policy.identity:
        yield identity.AUDIT, str(comparison.bundle), partial(_identity, comparison)
    for bounds in policy.resources:
        yield resources.AUDIT, str(bounds.bundle), partial(_resources, bounds)
    for rebuild in policy.reproducible:
        subject = ", ".join(rebuild.kernels) or "shipped kernels"
        yield reproducible.AUDIT, subject, partial(_reproducible, rebuild, circumstances)


def _timed(name: str, subject: str, action: _Action) -> StepResult:
    started = time.perf_counter()
    try:
        outcome = action()
    except IntegrityError as error:
        found = tuple(
            Finding(name, problem.where, "refused", f"expected {problem.expected}, found {problem.found}")
            for problem in error.problems
        )
        outcome = _Outcome(Verdict.FINDINGS, f"refused: {error.problems[0]}", found)
    except AotkernError as error:
        outcome = _Outcome(Verdict.UNKNOWN, str(error))
    seconds = time.perf_counter() - started
    return StepResult(name, subject, outcome.verdict, seconds, outcome.message, outcome.findings, outcome.report)


def _verify(path: Path) -> _Outcome:
    opened = Side.bundle(path)
    manifest = opened.manifest
    counts = f"{len(manifest.variants)} variants, {len(manifest.objects)} code objects, {manifest.digest.short}"
    return _Outcome(Verdict.CLEAN, f"every byte checked: {manifest.target}, {counts}")


def _identity(step: IdentityStep) -> _Outcome:
    report = identity.compare(Side.either(step.baseline), Side.either(step.bundle))
    counts = ", ".join(f"{number} {state}" for state, number in report.counts.items())
    return _Outcome(report.verdict, report.obstacle or f"{counts} against {report.baseline}", report.findings, report)


def _resources(step: ResourcesStep) -> _Outcome:
    opened = Side.bundle(step.bundle)
    baseline = Side.either(step.baseline).manifest if step.baseline else None
    named = any(rule.instructions for rule in step.rules)
    code = mnemonics(opened) if named else None
    report = resources.audit(opened.manifest, step.rules, code, baseline)
    message = (
        f"{len(report.usages)} variants, {len(step.rules)} rules, {len(report.findings)} out of bounds, "
        f"{len(report.changes)} changed against the baseline"
    )
    return _Outcome(report.verdict, message, report.findings, report)


def _reproducible(step: ReproducibleStep, circumstances: Circumstances) -> _Outcome:
    request = Request(sources.parse(step.kernels), step.targets, circumstances.inherited, circumstances.jobs)
    report = reproducible.audit(request, circumstances.progress)
    message = report.obstacle or f"{report.variants} variants built twice, {len(report.axes)} circumstances changed"
    return _Outcome(report.verdict, message, report.findings, report)
