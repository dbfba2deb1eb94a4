"""A replay for people, for a page of text, and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotkern.audit.findings import Verdict
from aotkern.audit.replay.drive import CAPTURE, PHASES, SCORED, WARMUP, ArmResult
from aotkern.audit.replay.judge import ReplayReport
from aotkern.audit.replay.workload import BUNDLE, Workload
from aotkern.report.contributions import Contribution, contribution
from aotkern.report.machine import audited
from aotkern.report.page import Bar, Block, Cell, Grid, Table, Timeline, Tone
from aotkern.report.plain import JSON, counted, document, table

_REASONS = 3


def summary(reports: Sequence[ReplayReport], verdict: Verdict) -> str:
    """Binaries by arm, kernel and phase, then the reasons of those that compile while scored."""
    rows: list[Sequence[object]] = [("arm", "kernel", *PHASES)]
    results = [report.result for report in reports]
    for result in results:
        for kernel in result.kernels:
            rows.append((result.arm.name, kernel, *(result.compiled(phase, kernel) for phase in PHASES)))
        rows.append((result.arm.name, "all", *(result.compiled(phase) for phase in PHASES)))
    lines = [f"{reports[0].workload}: binaries that would be compiled", *table(rows, "  rrr").splitlines()]
    for report in reports:
        result = report.result
        lines += [f"{result.arm.name}: {reason}" for reason in (*_found(result), *_reasons(result))]
        lines += [f"{result.arm.name}: could not tell: {report.obstacle}"] if report.obstacle else []
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


def json_document(reports: Sequence[ReplayReport], verdict: Verdict) -> JSON:
    """Everything (schema `replay.schema.json`)."""
    return document("replay", verdict, workload=reports[0].workload, arms=[_arm(report) for report in reports])


def _arm(report: ReplayReport) -> JSON:
    result = report.result
    return {
        "arm": result.arm.name,
        "kind": result.arm.kind,
        "target": str(result.arm.target),
        "verdict": str(report.verdict),
        "obstacle": report.obstacle or None,
        "bounds": dict(report.bounds),
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


@audited.register
def _audited(report: ReplayReport) -> JSON:
    return json_document([report], report.verdict)


@contribution.register
def _of_replay(report: ReplayReport) -> Contribution:
    blocks: list[Block] = [_map(report)]
    if bars := tuple(_bars(report.result)):
        blocks.append(Timeline("When it would compile, by step", bars, "steps"))
    if gaps := _gaps(report.result):
        blocks.append(gaps)
    return Contribution(tuple(blocks))


def _map(report: ReplayReport) -> Grid:
    """Kernels by phase: what each would compile, out of how many launches."""
    result = report.result
    cells: dict[tuple[str, str], Cell] = {}
    for (phase, kernel), launches in result.launches.items():
        number = result.compiled(phase, kernel)
        tone = (Tone.BAD if phase in report.exceeded else Tone.NOTICE) if number else Tone.GOOD
        what = f"{number:,} unserved" if result.arm.kind == BUNDLE else counted(number, "compile")
        cells[kernel, phase] = Cell(f"{what if number else 'none'} in {counted(launches, 'launch', 'es')}", tone)
    title = f"{report.workload}, arm {result.arm.name}: what each kernel would compile, by phase"
    return Grid(title, "kernel", result.kernels, PHASES, cells)


def _bars(result: ArmResult) -> Iterator[Bar]:
    """The phases as stretches of steps, and in a lane for each kernel the steps in which something compiles."""
    begin = 0
    for phase in PHASES:
        steps, replayed = result.steps[phase]
        if steps:
            graphs = f", {replayed} of which replay a graph" if replayed else ""
            yield Bar("all steps", begin, steps, phase, f"{counted(steps, 'step')}{graphs}")
        begin += steps
    compiles: dict[tuple[str, int, str], int] = {}
    for met in result.met:
        place = (met.kernel, met.step, met.phase)
        compiles[place] = compiles.get(place, 0) + 1
    for (kernel, step, phase), number in sorted(compiles.items()):
        yield Bar(kernel, step, 1, phase, f"{kernel}: {counted(number, 'compile')}")


def _gaps(result: ArmResult) -> Table | None:
    rows = tuple(
        (phase, kernel, gap.example, gap.nearest or "none", "; ".join((*gap.reasons, *gap.advice)))
        for (phase, kernel), gaps in result.gaps.items()
        for gap in gaps
    )
    columns = ("phase", "kernel", "such as", "nearest variant", "differs in")
    return Table("Calls that no variant serves", columns, rows) if rows else None
