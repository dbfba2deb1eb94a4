"""JSON for machines: plain values with a `schema` name; the schemas are shipped in `aotkern/schemas`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import singledispatch

from aotkern.audit.contents import ContentsReport
from aotkern.audit.findings import Finding
from aotkern.audit.identity import IdentityReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.audit.resources import ResourceReport
from aotkern.report.plain import JSON, document


def findings(found: Iterable[Finding]) -> list[JSON]:
    """Findings with all their facts."""
    return [{**asdict(finding), "facts": dict(finding.facts)} for finding in found]


def identity(report: IdentityReport) -> JSON:
    """The outcome of `aotkern audit identity` or `aotkern diff` for one target, every variant listed."""
    return document(
        "identity",
        report.verdict,
        target=report.target,
        baseline=report.baseline,
        candidate=report.candidate,
        obstacle=report.obstacle or None,
        besides=report.besides,
        beyond=list(report.beyond),
        counts={str(state): number for state, number in report.counts.items()},
        variants=[
            {
                "key": comparison.key,
                "state": str(comparison.state),
                "source_changed": comparison.source_changed,
                "details": dict(comparison.details),
            }
            for comparison in report.comparisons
        ],
    )


def reproducible(report: ReproducibleReport) -> JSON:
    """The outcome of `aotkern audit reproducible`."""
    return document(
        "reproducible",
        report.verdict,
        axes=list(report.axes),
        variants=report.variants,
        bundles={target: str(digest) for target, digest in report.digests.items()},
        broken={target: list(axes) for target, axes in report.broken.items()},
        obstacle=report.obstacle or None,
        seconds={key: round(seconds, 3) for key, seconds in report.seconds.items()},
    )


def resources(report: ResourceReport) -> JSON:
    """The outcome of `aotkern audit resources` for one bundle."""
    return document(
        "resources",
        report.verdict,
        target=str(report.target),
        rules=report.rules,
        findings=findings(report.findings),
        variants=[{"key": key, **asdict(usage)} for key, usage in report.usages.items()],
        changes=[
            {"key": key, "changes": {name: list(pair) for name, pair in change.items()}}
            for key, change in report.changes.items()
        ],
    )


def contents(report: ContentsReport) -> JSON:
    """What a verified bundle holds, as the gate's `verify` step reports it."""
    return document(
        "contents",
        report.verdict,
        target=report.target,
        manifest=str(report.manifest),
        file_bytes=report.file_bytes,
        kernels=[asdict(kernel) for kernel in report.kernels],
        toolchain=dict(report.toolchain),
        provenance=dict(report.provenance),
    )


def gate(report: GateReport) -> JSON:
    """The outcome of `aotkern audit`: every step, with the document of its audit."""
    return document("gate", report.verdict, policy=report.policy, steps=[_step(step) for step in report.steps])


def _step(step: StepResult) -> JSON:
    return {
        "name": step.name,
        "subject": step.subject,
        "verdict": str(step.verdict),
        "seconds": round(step.seconds, 3),
        "message": step.message,
        "place": step.place,
        "findings": findings(step.findings),
        "unknown": findings(step.unknown),
        "skipped": list(step.skipped),
        "report": None if step.report is None else audited(step.report),
    }


@singledispatch
def audited(report: object) -> JSON:
    """The document of one audit; an audit registers a function for its report's type.

    Raises:
        TypeError: No function was registered for this type.
    """
    raise TypeError(f"no JSON form for {type(report).__name__}")


audited.register(ContentsReport, contents)
audited.register(IdentityReport, identity)
audited.register(ReproducibleReport, reproducible)
audited.register(ResourceReport, resources)
