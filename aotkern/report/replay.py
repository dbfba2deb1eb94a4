"""A replay for people, for a page of text, and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotkern.audit.findings import Verdict
from aotkern.audit.replay.drive import CAPTURE, PHASES, SCORED, WARMUP, ArmResult
from aotkern.audit.replay.workload import Workload
from aotkern.report.plain import JSON, counted, document, table

_REASONS = 3


def summary(workload: Workload, results: Sequence[ArmResult], verdict: Verdict) -> str:
    """Binaries by arm, kernel and phase, then the reasons of those that compile while scored."""
    rows: list[Sequence[object]] = [("arm", "kernel", *PHASES)]
    for result in results:
        for kernel in result.kernels:
            rows.append((result.arm.name, kernel, *(result.compiled(phase, kernel) for phase in PHASES)))
        rows.append((result.arm.name, "all", *(result.compiled(phase) for phase in PHASES)))
    lines = [f"{workload.name}: binaries that would be compiled", *table(rows, "  rrr").splitlines()]
    for result in results:
        lines += [f"{result.arm.name}: {reason}" for reason in (*_found(result), *_reasons(result))]
    return "\n".join([*lines, f"replay: {verdict}"])


def _found(result: ArmResult) -> Iterator[str]:
    """The positive count: that nothing compiles means little where nothing was looked up."""
    if result.served:
        launches = sum(result.served.values())
        yield f"{launches:,} launches found {counted(len(result.served), 'prebuilt variant')}"


def _reasons(result: ArmResult) -> Iterator[str]:
    for row in result.report.rows:
        if row.phase == SCORED:
            why = "; ".join(cause.message for cause in row.causes[:_REASONS])
            yield f"{row.kernel}, {counted(row.count, 'compile')}: {why}"
    for (phase, kernel), gaps in result.gaps.items():
        for gap in gaps[:_REASONS]:
            yield f"{kernel}, no variant in phase {phase}: {'; '.join(gap.reasons)}"


ON_PAPER = (
    "Tensors had no memory and the device existed on paper: no GPU was used and nothing was compiled. Triton's own\n"
    "binder said which specialisations are new; for prebuilt variants the loader's own rule said which serves a call."
)
"""How the numbers came about, without a GPU."""


def markdown(workload: Workload, results: Sequence[ArmResult], where: str = ON_PAPER) -> str:
    """The comparison as a page; `where` says how the numbers came about."""
    lines = [
        f"# Replay: {workload.name}",
        "",
        "Binaries that this workload makes a server compile, counted by driving the kernels' own host code.",
        where,
        "",
        *_served(workload),
        "- One layer of each kind (window only, top entries, all entries); layers of a kind share their binaries.",
        "",
    ]
    for result in results:
        served = ", ".join(f"{phase} {result.steps[phase][0]:,}" for phase in (WARMUP, SCORED))
        graphs = result.steps[WARMUP][1] + result.steps[SCORED][1]
        lines += [
            f"## {result.arm.name} ({result.arm.kind}, {result.arm.target})",
            "",
            f"Steps: {served}, of which {graphs:,} replay a graph.",
            "",
            f"| kernel | {' | '.join(PHASES)} |",
            f"|---|{'--:|' * len(PHASES)}",
        ]
        for kernel in (*result.kernels, None):
            numbers = " | ".join(str(result.compiled(phase, kernel)) for phase in PHASES)
            lines.append(f"| {kernel or '**all**'} | {numbers} |")
        lines += ["", *(f"- {reason}" for reason in (*_found(result), *_reasons(result)))]
        lines += [""] if lines[-1] else []
    return "\n".join(lines)


def _served(workload: Workload) -> Iterator[str]:
    requests, limits = workload.requests, workload.limits
    if workload.sweep:
        yield f"- A sweep of {len(workload.sweep)} steps that each run whole prompts, in the warm-up."
    if requests is not None:
        scored = requests.drawn(requests.scored, requests.seed)
        prompts, outputs = sum(r.prompt for r in scored), sum(r.output for r in scored)
        yield (
            f"- {requests.warmup} warm-up requests, then {requests.scored} scored ones, {requests.concurrency} in "
            f"flight; {prompts:,} prompt tokens and {outputs:,} generated tokens while scored."
        )
        yield f"- At most {limits.batched_tokens:,} tokens and {limits.sequences:,} sequences in a step."
    if limits.captured_rows:
        yield f"- Decode steps of up to {limits.captured_rows[-1]} rows run in captured graphs."


def json_document(workload: Workload, results: Sequence[ArmResult], verdict: Verdict) -> JSON:
    """Everything (schema `replay.schema.json`)."""
    return document("replay", verdict, workload=workload.name, arms=[_arm(result) for result in results])


def _arm(result: ArmResult) -> JSON:
    return {
        "arm": result.arm.name,
        "kind": result.arm.kind,
        "target": str(result.arm.target),
        "verdict": str(result.verdict),
        "steps": {phase: {"all": all_, "replayed": replayed} for phase, (all_, replayed) in result.steps.items()},
        "kernels": [
            {
                "kernel": kernel,
                "binaries": {phase: result.compiled(phase, kernel) for phase in PHASES},
                "launches": {phase: result.launches.get((phase, kernel), 0) for phase in PHASES},
            }
            for kernel in result.kernels
        ],
        "binaries": {phase: result.compiled(phase) for phase in (CAPTURE, WARMUP, SCORED)},
        "served": {"launches": sum(result.served.values()), "variants": len(result.served)},
        "reasons": list(_reasons(result)),
    }
