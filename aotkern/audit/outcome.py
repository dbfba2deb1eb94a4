"""What comes out of the release gate: its steps, and one verdict over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aotkern.audit.findings import Doubtful, Finding, Report, Verdict
from aotkern.audit.places import Place


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
        unknown: What could not be told, one by one, where the audit can say that.
        skipped: What was left out because a part was asked for, likewise.
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
    unknown: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, subject: str, report: Report, seconds: float, place: str = "") -> StepResult:
        """The step that came to this report."""
        step = cls(name, subject, report.verdict, seconds, report.summary, report.findings, report, place)
        if isinstance(report, Doubtful):
            return replace(step, unknown=report.unknown, skipped=report.skipped)
        return step


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
