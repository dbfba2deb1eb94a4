"""Plain text for terminals and logs: short, aligned, without colour, the verdict last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aotkern.audit import resources as resources_audit
from aotkern.audit.identity import Comparison, IdentityReport
from aotkern.audit.outcome import GateReport
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.audit.resources import ResourceReport, Usage
from aotkern.manifest import Manifest
from aotkern.report.plain import counted, limited, table


def identity(report: IdentityReport) -> str:
    """The comparison of one target: what does not pass, then counts and verdict."""
    lines = [_row(comparison) for comparison in report.comparisons if not comparison.state.passes]
    parts = [limited(lines, "variants")] if lines else []
    counts = ", ".join(f"{number} {state}" for state, number in report.counts.items()) or "nothing compared"
    besides = f"; {counted(report.besides, 'other variant')} of the baseline left aside" if report.besides else ""
    parts.append(f"{report.target}: {counts} ({report.candidate} against {report.baseline}{besides})")
    if report.beyond:
        what = counted(len(report.beyond), "other variant")
        parts.append(limited([f"not compared, and new: {key}" for key in report.beyond], what))
    if report.changed_sources:
        changed = counted(report.changed_sources, "variant")
        parts.append(f"source text changed, code identical: {changed}")
    if report.obstacle:
        parts.append(f"could not tell: {report.obstacle}")
    return "\n".join(parts)


def _row(comparison: Comparison) -> str:
    message = f"\n    {comparison.message}" if comparison.message else ""
    return f"{comparison.state}: {comparison.key}{message}"


def reproducible(report: ReproducibleReport) -> str:
    """What was rebuilt under which changes, and what depends on them."""
    lines = [
        f"{target}: "
        + (f"DIFFERS, depends on {', '.join(report.broken[target])}" if target in report.broken else digest)
        for target, digest in ((target, str(digest)) for target, digest in report.digests.items())
    ]
    if report.obstacle:
        lines.append(f"could not tell: {report.obstacle}")
    else:
        what = counted(report.variants, "variant")
        lines.append(f"{what} built twice in private, empty caches, changing: {', '.join(report.axes)}")
    return "\n".join(lines)


def resources(report: ResourceReport) -> str:
    """Spans of each kernel's resources, what is out of bounds, and what changed."""
    rows: list[Sequence[object]] = [("kernel", "variants", *resources_audit.BOUNDS)]
    by_kernel: dict[str, list[Usage]] = {}
    for key, usage in report.usages.items():
        by_kernel.setdefault(key.partition("[")[0], []).append(usage)
    for kernel, usages in by_kernel.items():
        spans = [_span(getattr(usage, name) for usage in usages) for name in resources_audit.BOUNDS]
        rows.append((kernel, len(usages), *spans))
    parts = [f"{report.target}\n{table(rows, ' ' + 'r' * len(rows[0]))}"]
    if report.findings:
        parts.append(limited([f"{f.state}: {f.subject}\n    {f.message}" for f in report.findings], "findings"))
    if report.changes:
        lines = [f"changed: {key}\n    {_pairs(change)}" for key, change in report.changes.items()]
        parts.append(limited(lines, "changes"))
    return "\n\n".join(parts)


def _pairs(change: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name} {before} -> {after}" for name, (before, after) in change.items())


def gate(report: GateReport) -> str:
    """A row for each step, the findings of those that are not clean, and the verdict."""
    rows: list[Sequence[object]] = [("step", "subject", "outcome", "seconds", "")]
    rows += [(s.name, s.subject, s.verdict, f"{s.seconds:.1f}", s.message.partition("\n")[0]) for s in report.steps]
    parts = [table(rows, "   r")]
    for step in report.steps:
        if "\n" in step.message:
            parts.append(f"{step.name} {step.subject} could not tell:\n{step.message}")
        for found, noun in ((step.findings, "findings"), (step.unknown, "questions left open")):
            lines = [f"{finding.state}: {finding.subject}\n    {finding.message}" for finding in found]
            if lines:
                parts.append(f"{step.name} {step.subject}:\n{limited(lines, noun)}")
        if step.skipped:
            parts.append(f"{step.name} {step.subject} left out:\n{limited(step.skipped, 'left out')}")
    parts.append(f"gate {report.policy}: {report.verdict}")
    return "\n\n".join(parts)


def manifest(value: Manifest) -> str:
    """An overview of a bundle: target, toolchain, kernels with their variants and resources."""
    head = [("target", str(value.target)), *value.toolchain.items(), *value.environment.items()]
    rows: list[Sequence[object]] = [("kernel", "variants", "objects", "VGPRs", "spills", "scratch", "LDS", "code")]
    for kernel in value.kernels:
        variants = [variant for variant in value.variants if variant.kernel == kernel.name]
        codes = [value.object(digest).code for digest in dict.fromkeys(variant.object for variant in variants)]
        lds = [variant.launch.shared for variant in variants]
        resources = [code.resources for code in codes]
        rows.append(
            (
                kernel.name,
                len(variants),
                len(codes),
                _span(r.vgprs for r in resources),
                _span(r.vgpr_spills + r.sgpr_spills for r in resources),
                _span(r.scratch_bytes for r in resources),
                _span(lds),
                _span(code.code_bytes for code in codes),
            )
        )
    return f"{table(head)}\n\n{table(rows, ' rrrrrrr')}"


def _span(values: Iterable[int]) -> str:
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"
