"""From a gate's report to the values of a page: what each audit's report contributes to it.

`contribution` is open: an audit with something of its own to show registers a function for its report's type, and the
renderers need not change. A report of a type that is not registered shows its findings and summary alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any

from aotkern.audit import identity
from aotkern.audit.contents import ContentsReport
from aotkern.audit.identity import Comparison, IdentityReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.reproducible import ReproducibleReport
from aotkern.audit.resources import ResourceReport
from aotkern.report.page import (
    Block,
    Cell,
    Delta,
    Difference,
    Grid,
    Line,
    Page,
    Section,
    State,
    Table,
    Tone,
    VariantRow,
)
from aotkern.report.plain import amount

_SLOWEST = 20
"""Variants in the list of compile times."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one report adds to a page: blocks for its section, and what it says of single variants."""

    blocks: tuple[Block, ...] = ()
    variants: tuple[VariantRow, ...] = ()


@singledispatch
def contribution(report: object) -> Contribution:
    """What this report adds to a page."""
    del report
    return Contribution()


def page(report: GateReport) -> Page:
    """The page of a gate, or of a single audit."""
    parts = [contribution(step.report) for step in report.steps]
    sections = tuple(_section(n, step, part) for n, (step, part) in enumerate(zip(report.steps, parts, strict=True)))
    variants = _merged(row for part in parts for row in part.variants)
    return Page(report.policy, report.verdict, sections, variants, _matrix(variants))


def _section(number: int, step: StepResult, part: Contribution) -> Section:
    differences = [block for block in part.blocks if isinstance(block, Difference) and block.state.tone is Tone.BAD]
    shown = {key for block in differences for key in block.keys}
    return Section(
        anchor=f"step-{number + 1}",
        title=step.name,
        subject=step.subject,
        verdict=step.verdict,
        seconds=step.seconds,
        message=step.message,
        findings=(*(finding for finding in step.findings if finding.subject not in shown), *step.unknown),
        blocks=part.blocks,
    )


def _merged(rows: Iterable[VariantRow]) -> tuple[VariantRow, ...]:
    """One row for each key, from what all audits say of it."""
    by_key: dict[str, list[VariantRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    return tuple(_one(key, same) for key, same in sorted(by_key.items()))


def _one(key: str, rows: Sequence[VariantRow]) -> VariantRow:
    states = dict.fromkeys(state for row in rows for state in row.states)
    numbers = {name: value for row in rows for name, value in row.numbers.items()}
    return VariantRow(key, tuple(sorted(states, key=lambda state: -state.tone.rank)), numbers)


def _matrix(variants: Sequence[VariantRow]) -> Grid:
    tones: dict[tuple[str, str], list[Tone]] = {}
    for row in variants:
        tones.setdefault((row.kernel, row.target), []).append(row.tone)
    kernels = tuple(dict.fromkeys(kernel for kernel, _ in tones))
    targets = tuple(sorted({target for _, target in tones}))
    return Grid(
        "Kernels by target", "kernel", kernels, targets, {place: _counted(found) for place, found in tones.items()}
    )


_WORDS = {Tone.GOOD: "good", Tone.NOTICE: "changed", Tone.BAD: "with findings", Tone.UNKNOWN: "not told"}


def _counted(tones: Sequence[Tone]) -> Cell:
    counts = Counter(tones)
    parts = [f"{counts[tone]} {_WORDS[tone]}" for tone in reversed(Tone) if counts[tone]]
    return Cell(", ".join(parts), max(tones, key=lambda tone: tone.rank))


_ONE_SIDED = {
    identity.State.MISSING: {"only": "the baseline has this variant"},
    identity.State.NEW: {"only": "the candidate has this variant"},
}


@contribution.register
def _of_identity(report: IdentityReport) -> Contribution:
    # Without a common toolchain the comparison proves nothing, whatever came out equal.
    states = [_state(comparison, bool(report.obstacle)) for comparison in report.comparisons]
    pairs = list(zip(report.comparisons, states, strict=True))
    rows = tuple(VariantRow(comparison.key, (state,)) for comparison, state in pairs)
    counts = Table(
        f"{report.candidate} against {report.baseline}",
        ("state", "variants"),
        tuple((str(state), str(number)) for state, number in report.counts.items()),
        frozenset({1}),
    )
    different = [
        (state, c.key, {**c.details, **_ONE_SIDED.get(c.state, {})}) for c, state in pairs if not c.state.passes
    ]
    return Contribution((counts, *_differences(different)), rows)


def _state(comparison: Comparison, proves_nothing: bool) -> State:
    text = str(comparison.state) + (", source changed" if comparison.source_changed else "")
    if proves_nothing:
        return State(text, Tone.UNKNOWN)
    return State(text, Tone.GOOD if comparison.state.passes else Tone.BAD)


@contribution.register
def _of_resources(report: ResourceReport) -> Contribution:
    exceeded = {finding.subject for finding in report.findings}
    rows = tuple(
        VariantRow(key, (_bounded(key in exceeded, key in report.changes, report.rules),), asdict(usage))
        for key, usage in report.usages.items()
    )
    state = State("resources changed", Tone.NOTICE)
    different = [(state, key, {"resources": change}) for key, change in report.changes.items()]
    return Contribution(tuple(_differences(different)), rows)


def _bounded(exceeded: bool, changed: bool, rules: int) -> State:
    if exceeded:
        return State("out of bounds", Tone.BAD)
    if changed:
        return State("resources changed", Tone.NOTICE)
    return State("within bounds" if rules else "resources read", Tone.GOOD)


@contribution.register
def _of_reproducible(report: ReproducibleReport) -> Contribution:
    bundles = Table(
        "Rebuilt bundles",
        ("target", "digest", "depends on"),
        tuple(
            (t, digest.short, ", ".join(report.broken.get(t, ())) or "nothing") for t, digest in report.digests.items()
        ),
    )
    slowest = sorted(report.seconds.items(), key=lambda pair: -pair[1])
    by_kernel: dict[str, list[float]] = {}
    for key, seconds in report.seconds.items():
        by_kernel.setdefault(key.partition("]")[0] + "]", []).append(seconds)
    times = Table(
        "Compile times by kernel and target",
        ("kernel", "variants", "seconds in all", "slowest"),
        tuple((name, str(len(s)), f"{sum(s):.2f}", f"{max(s):.2f}") for name, s in sorted(by_kernel.items())),
        frozenset({1, 2, 3}),
    )
    single = Table(
        "Slowest variants",
        ("variant", "seconds"),
        tuple((key, f"{seconds:.2f}") for key, seconds in slowest[:_SLOWEST]),
        frozenset({1}),
    )
    return Contribution((bundles, times, single) if report.seconds else (bundles,))


@contribution.register
def _of_contents(report: ContentsReport) -> Contribution:
    sizes = Table(
        f"Sizes: {amount(report.file_bytes)} on disk",
        ("kernel", "variants", "code objects", "object bytes", "instruction bytes"),
        tuple(
            (k.name, str(k.variants), str(k.objects), amount(k.object_bytes), amount(k.code_bytes))
            for k in report.kernels
        ),
        frozenset({1, 2, 3, 4}),
    )
    facts = {"manifest": str(report.manifest), **report.toolchain, **report.provenance}
    origin = Table("Made by", ("fact", "value"), tuple(facts.items()))
    return Contribution((sizes, origin))


_Found = tuple[State, str, Mapping[str, Any]]


def _differences(found: Iterable[_Found]) -> Iterator[Difference]:
    """Equal differences of a kernel become one, with all their variants."""
    groups: dict[tuple[str, Difference], list[str]] = {}
    for state, key, details in found:
        groups.setdefault((key.partition("[")[0], _difference(state, details)), []).append(key)
    for (_, same), keys in groups.items():
        yield Difference(same.state, tuple(keys), same.sections, same.deltas, same.notes, same.lines)


def _difference(state: State, details: Mapping[str, Any]) -> Difference:
    deltas: list[Delta] = []
    notes: list[str] = []
    for group, value in details.items():
        if isinstance(value, Mapping):
            deltas += [Delta(group, name, _text(pair[0]), _text(pair[1])) for name, pair in value.items()]
        elif group not in ("sections", "instructions"):
            notes.append(f"{group.replace('_', ' ')}: {value}")
    lines = tuple(Line(before or "", after or "") for before, after in details.get("instructions", ()))
    return Difference(state, (), tuple(details.get("sections", ())), tuple(deltas), tuple(notes), lines)


def _text(value: object) -> str:
    return "absent" if value is None else str(value)
