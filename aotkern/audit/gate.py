"""The release gate: every step of a policy, one after the other, and one verdict over all of them.

A step that cannot be carried out does not stop the others; it counts as "could not tell", which no gate passes.
"""

from __future__ import annotations

import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aotkern.audit import contents, identity, places, reproducible, resources
from aotkern.audit.coverage import domain as domains
from aotkern.audit.coverage import proof
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Finding, Report, Verdict
from aotkern.audit.jit import budget as budgets
from aotkern.audit.jit import judge as jit
from aotkern.audit.jit import program
from aotkern.audit.places import Place
from aotkern.audit.policy import (
    CoverageStep,
    IdentityStep,
    JitStep,
    NumericsStep,
    Policy,
    ReplayStep,
    ReproducibleStep,
    ResourcesStep,
)
from aotkern.audit.replay import judge as replays
from aotkern.audit.replay import run as replayed
from aotkern.audit.replay.workload import BUNDLE, Workload
from aotkern.audit.sides import Side, mnemonics
from aotkern.build import sources
from aotkern.build.builder import Request, Step
from aotkern.bundle import Bundle
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from aotkern.errors import AotkernError, InputError, IntegrityError, MissingToolError
from aotkern.target import Backend
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.launch import Ready

Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of the gate, done.

    Attributes:
        name: `verify`, `identity`, `resources`, ...
        subject: What it worked on, for people.
        verdict: Its outcome.
        seconds: How long it took.
        message: What was shown, or why nothing could be told: one line, or one for each problem.
        findings: What somebody should look at.
        report: The audit's own report, where it came to one.
        place: The file in which a reader should be shown the findings: kernel source, manifest or bundle; or nothing.
    """

    name: str
    subject: str
    verdict: Verdict
    seconds: float
    message: str
    findings: tuple[Finding, ...] = ()
    report: Report | None = None
    place: str = ""

    @classmethod
    def of(cls, name: str, subject: str, report: Report, seconds: float, place: str = "") -> StepResult:
        """The step that came to this report."""
        return cls(name, subject, report.verdict, seconds, report.summary, report.findings, report, place)


@dataclass(frozen=True, slots=True)
class GateReport:
    """All steps, and the verdict over them.

    Attributes:
        policy: What was run, for people.
        steps: What came out.
        places: Where kernels are defined, by name, as far as that is known.
    """

    policy: str
    steps: tuple[StepResult, ...]
    places: Mapping[str, Place] = field(default_factory=dict)

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
class _Planned:
    """A step that is to be carried out; the texts are those of its `StepResult`."""

    name: str
    subject: str
    place: str
    action: Callable[[], Report]


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
    return GateReport(label, tuple(_carried_out(planned) for planned in _steps(policy, circumstances)), found)


def _steps(policy: Policy, circumstances: Circumstances) -> Iterator[_Planned]:
    for path in policy.verify:
        yield _Planned(contents.AUDIT, str(path), str(path), partial(_verify, path))
    for comparison in policy.identity:
        subject, place = str(comparison.bundle), str(comparison.baseline)
        yield _Planned(identity.AUDIT, subject, place, partial(_identity, comparison))
    for bounds in policy.resources:
        place = str(bounds.baseline or bounds.bundle)
        yield _Planned(resources.AUDIT, str(bounds.bundle), place, partial(_resources, bounds))
    for rebuild in policy.reproducible:
        subject = ", ".join(rebuild.kernels) or "shipped kernels"
        place = rebuild.kernels[0] if len(rebuild.kernels) == 1 and rebuild.kernels[0].endswith(".py") else ""
        yield _Planned(reproducible.AUDIT, subject, place, partial(_reproducible, rebuild, circumstances))
    for domain in policy.coverage:
        yield _Planned(proof.AUDIT, str(domain.bundle), str(domain.domain), partial(_coverage, domain))
    for numbers in policy.numerics:
        yield _Planned("numerics", str(numbers.bundle), str(numbers.bundle), partial(_numerics, numbers))
    for served in policy.replay:
        subject = f"{served.bundle or served.workload}, arm {served.arm}"
        yield _Planned(replays.AUDIT, subject, str(served.workload), partial(_replay, served))
    for watched in policy.jit:
        subject = " ".join(watched.command)
        yield _Planned(jit.AUDIT, subject, str(watched.budget), partial(_jit, watched, circumstances))


def _carried_out(planned: _Planned) -> StepResult:
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


def _verify(path: Path) -> Report:
    return contents.of(Bundle.open(path))


def _identity(step: IdentityStep) -> Report:
    if step.bundle.resolve() == step.baseline.resolve():
        raise InputError.one(str(step.baseline), "a baseline that is not the bundle itself", "the same file")
    known: dict[Digest, CodeObject] = {}
    return identity.compare(Side.either(step.baseline, known), Side.bundle(step.bundle, known), step.only)


def _resources(step: ResourcesStep) -> Report:
    opened = Side.bundle(step.bundle)
    baseline = Side.either(step.baseline).manifest if step.baseline else None
    named = any(rule.instructions for rule in step.rules)
    return resources.audit(opened.manifest, step.rules, mnemonics(opened) if named else None, baseline)


def _reproducible(step: ReproducibleStep, circumstances: Circumstances) -> Report:
    request = Request(sources.parse(step.kernels), step.targets, circumstances.inherited, circumstances.jobs)
    return reproducible.audit(request, circumstances.progress)


def _coverage(step: CoverageStep) -> Report:
    catalogue = Catalogue.of_manifest(str(step.bundle), Side.bundle(step.bundle).manifest)
    return proof.prove(catalogue, domains.read(step.domain), str(step.domain))


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


def _replay(step: ReplayStep) -> Report:
    workload = Workload.read(step.workload)
    arm = workload.arm(step.arm)
    if (arm.kind == BUNDLE) != (step.bundle is not None):
        expected = "a bundle for an arm of prebuilt variants, and none for another"
        raise InputError.one(f"{step.workload}: arm {arm.name}", expected, f"{step.bundle or 'none'} ({arm.kind})")
    variants = Catalogue.of_manifest(str(step.bundle), Side.bundle(step.bundle).manifest) if step.bundle else None
    result = replayed.on_paper(workload, arm, workload.server, variants)
    return replays.ReplayReport(workload.name, result, step.compiles)


_LAST_WORDS = 300
"""Characters of a failed program's output in the step's message."""


def _jit(step: JitStep, circumstances: Circumstances) -> Report:
    budget = budgets.read(step.budget)
    catalogues = [Catalogue.of_manifest(str(path), Side.either(path).manifest) for path in step.bundles]
    ready = Ready(re.compile(step.ready_pattern) if step.ready_pattern else None, step.ready_file)
    with tempfile.TemporaryDirectory(prefix="aotkern-jit-") as name, tempfile.TemporaryFile() as output:
        folder = Path(name)
        ran = program.Program(step.command, circumstances.inherited, output, output, step.seconds)
        obstacle = program.watch(ran, folder, Gate(budget, known=program.known(catalogues)), ready)
        if obstacle:
            output.seek(0)
            words = " ".join(output.read().decode("utf-8", "replace").split())
            obstacle += f"; it said at last: {words[-_LAST_WORDS:]}" if words else ""
        obstacle = obstacle or program.never_began(folder, budget)
        return jit.judge(program.read_log(folder), budget, obstacle, catalogues)
