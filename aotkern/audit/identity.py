"""Is this machine code what the baseline's was? A pure comparison of two manifests, with bytes where both have them.

Variants are compared key by key. A variant whose options changed is compared with the one it replaces, so that a change
of `waves_per_eu` alone is seen for what it is: equal text under another descriptor.

The gate passes on two states only: equal bytes, and equal code (text, descriptor, metadata values, ELF flags, symbol
and launch data), where just debug information and string tables differ. A comparison of nothing passes no gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.listing import Listings
from aotkern.audit.sides import Side
from aotkern.codeobject import explain, recover, section_bytes
from aotkern.codeobject.facts import CodeObject, Role
from aotkern.errors import ProblemsError
from aotkern.manifest import Manifest, VariantEntry
from aotkern.spec.select import selected

AUDIT = "identity"

_NAMED = 3
"""Variants outside of the patterns that a summary names."""


class State(str, Enum):
    """How one variant compares with the baseline.

    Attributes:
        IDENTICAL: The code objects are equal byte by byte.
        SAME_CODE: Everything that runs is equal; debug information, comments or string tables differ.
        METADATA: The machine instructions are equal, but the descriptor, the metadata, the ELF flags or the launch data
            are not: it may run differently.
        DIFFERENT: The machine instructions differ.
        MISSING: The baseline has this variant, the candidate does not.
        NEW: The candidate has this variant, the baseline does not.
        UNREADABLE: One of the two could not be read.
    """

    IDENTICAL = "identical"
    SAME_CODE = "same code"
    METADATA = "descriptor or metadata differ"
    DIFFERENT = "different"
    MISSING = "missing"
    NEW = "new"
    UNREADABLE = "unreadable"

    def __str__(self) -> str:
        return self.value

    @property
    def passes(self) -> bool:
        """Whether the gate lets this through."""
        return self in (State.IDENTICAL, State.SAME_CODE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One variant, compared.

    Attributes:
        key: The candidate's key, or the baseline's where the candidate has none.
        state: How it compares.
        source_changed: Whether the kernel's source text differs.
        details: What differs: `sections`, `first_difference`, `header`, `features`, `resources`, `launch`, `options`,
            `reason`, and where both sides have bytes `instructions` or `no_listing` (see `listing`) and the fields of
            `descriptor`, `metadata`, `attributes`, `flags` and `data` (see `codeobject.explain`); plain values.
    """

    key: str
    state: State
    source_changed: bool
    details: Mapping[str, Any]

    @property
    def message(self) -> str:
        """The difference in one line; instructions are too many for it."""
        parts: list[str] = []
        for name, change in self.details.items():
            if name in ("instructions", "no_listing"):
                continue
            if isinstance(change, Mapping):
                pairs = (
                    (item, *("absent" if value is None else value for value in row)) for item, row in change.items()
                )
                inner = ", ".join(f"{item} {one} -> {other}" for item, one, other in pairs)
                parts.append(f"{name}: {inner}")
            else:
                parts.append(f"{name}: {', '.join(change) if isinstance(change, list) else change}")
        return "; ".join(parts)


@dataclass(frozen=True)
class IdentityReport:
    """The outcome for one target.

    Attributes:
        target: Which target.
        baseline: Label of the baseline.
        candidate: Label of what was compared with it.
        comparisons: One for each variant, sorted by key.
        obstacle: Why the comparison proves nothing, or nothing.
        besides: Variants of the baseline that were not meant to be compared.
        beyond: Variants of the candidate that were not meant to be compared and that the baseline does not have, of
            kernels of which nothing was meant.
    """

    target: str
    baseline: str
    candidate: str
    comparisons: tuple[Comparison, ...]
    obstacle: str = ""
    besides: int = 0
    beyond: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Mapping[State, int]:
        """How many variants are in each state that occurs."""
        return {s: n for s in State if (n := sum(comparison.state is s for comparison in self.comparisons))}

    @property
    def verdict(self) -> Verdict:
        """Clean only when something was compared and everything passes."""
        if self.obstacle or not self.comparisons:
            return Verdict.UNKNOWN
        return Verdict.CLEAN if all(c.state.passes for c in self.comparisons) else Verdict.FINDINGS

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The variants that the gate does not let through."""
        return tuple(
            Finding(AUDIT, c.key, str(c.state), c.message or str(c.state), c.details)
            for c in self.comparisons
            if not c.state.passes
        )

    @property
    def summary(self) -> str:
        """The obstacle, or how many variants are in which state."""
        counts = ", ".join(f"{number} {state}" for state, number in self.counts.items())
        besides = f"; {self.besides} others of it left aside" if self.besides else ""
        if self.beyond:
            named = ", ".join(self.beyond[:_NAMED]) + (", ..." if len(self.beyond) > _NAMED else "")
            besides += f"; the candidate has {len(self.beyond)} others that the baseline has not: {named}"
        return self.obstacle or f"{counts} against {self.baseline}{besides}"

    @property
    def changed_sources(self) -> int:
        """Variants whose source text changed while their code passes."""
        return sum(c.source_changed and c.state.passes for c in self.comparisons)


def compare(
    baseline: Side, candidate: Side, only: Sequence[str] = (), *, same_toolchain: bool = True
) -> IdentityReport:
    """Compare two sides of one target.

    Args:
        baseline: What must not have changed.
        candidate: What is to be judged.
        only: Patterns for the variants to compare (see `spec.select`); empty for all. A variant outside of them that is
            new is a finding where the patterns mean other variants of its kernel, and named otherwise.
        same_toolchain: Refuse to judge when the two come from different compilers or pinned environments: a difference
            would then say nothing about the sources, and equality only little.
    """
    report = IdentityReport(str(candidate.manifest.target), baseline.label, candidate.label, ())
    if baseline.manifest.target != candidate.manifest.target:
        found = f"the baseline is for {baseline.manifest.target}, the candidate for {candidate.manifest.target}"
        return IdentityReport(report.target, report.baseline, report.candidate, (), found)
    obstacle = "; ".join(side.doubt for side in (baseline, candidate) if side.doubt)
    if same_toolchain:
        obstacle = obstacle or _toolchains(baseline.manifest, candidate.manifest)
    listings = Listings(candidate.manifest.target)
    pairs = list(_pairs(baseline, candidate, listings, only))
    new, beyond = _outside(baseline, candidate, only)
    pairs += [Comparison(text, State.NEW, False, {"reason": "outside of --only"}) for text in new]
    comparisons = tuple(sorted(pairs, key=lambda comparison: comparison.key))
    if not comparisons:
        obstacle = obstacle or f"nothing was compared: neither side has a variant for {report.target}"
    besides = sum(not selected(text, only) for text in _all(baseline))
    return replace(report, comparisons=comparisons, obstacle=obstacle, besides=besides, beyond=tuple(beyond))


def _all(side: Side) -> set[str]:
    """Every variant of a side, those that were declared and not built included."""
    return {*side.manifest.by_text, *side.aside}


def _outside(baseline: Side, candidate: Side, only: Sequence[str]) -> tuple[list[str], list[str]]:
    """The candidate's variants outside of the patterns that the baseline does not have.

    First those of kernels of which the patterns mean other variants, then those of other kernels.
    """
    extra = sorted(text for text in _all(candidate) - _all(baseline) if not selected(text, only))
    meant = {_kernel(text) for side in (baseline, candidate) for text in _all(side) if selected(text, only)}
    return [text for text in extra if _kernel(text) in meant], [text for text in extra if _kernel(text) not in meant]


def _kernel(text: str) -> str:
    return text.partition("[")[0]


def _toolchains(old: Manifest, new: Manifest) -> str:
    ours, theirs = {**new.toolchain, **new.environment}, {**old.toolchain, **old.environment}
    different = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    changes = "; ".join(f"{name}: {theirs.get(name)} -> {ours.get(name)}" for name in different)
    return f"baseline and candidate were not compiled alike ({changes})" if different else ""


def _pairs(baseline: Side, candidate: Side, listings: Listings, only: Sequence[str]) -> Iterator[Comparison]:
    old, new = (
        {text: entry for text, entry in side.manifest.by_text.items() if selected(text, only)}
        for side in (baseline, candidate)
    )
    unmatched: dict[str, list[str]] = {}
    for text in sorted(new.keys() - old.keys(), reverse=True):
        unmatched.setdefault(_without_options(text), []).append(text)
    for text, entry in old.items():
        replacements = [text] if text in new else unmatched.get(_without_options(text))
        if replacements:
            yield _compared(baseline, entry, candidate, new[replacements.pop()], listings)
        else:
            yield Comparison(text, State.MISSING, False, {})
    for text in (text for texts in unmatched.values() for text in texts):
        yield Comparison(text, State.NEW, False, {})


def _without_options(text: str) -> str:
    # Options follow the last closing parenthesis; no option value can hold one outside a string or tuple, and a wrong
    # split only means that a pair is reported as missing and new.
    return text.rpartition("{")[0] if text.endswith("}") else text


def _compared(baseline: Side, old: VariantEntry, candidate: Side, new: VariantEntry, listings: Listings) -> Comparison:
    changed = baseline.manifest.kernel(old.kernel).source != candidate.manifest.kernel(new.kernel).source
    launch = _changes(asdict(old.launch), asdict(new.launch))
    options = _changes(
        {name: v.text for name, v in baseline.manifest.options[old.options].items()},
        {name: v.text for name, v in candidate.manifest.options[new.options].items()},
    )
    details: dict[str, Any] = {name: value for name, value in (("launch", launch), ("options", options)) if value}
    if old.object == new.object:
        # Equal bytes under other options are equal code; other launch data are not an equal launch.
        return Comparison(new.text, State.METADATA if launch else State.IDENTICAL, changed, details)
    try:
        before = baseline.manifest.object(old.object).code
        after = candidate.manifest.object(new.object).code
        shared = [s.name for s in after.sections if s.role is Role.CODE and s.name in {b.name for b in before.sections}]
        details = {
            **_code_changes(before, after),
            **({} if before.identity == after.identity else _fields(baseline, old, candidate, new)),
            **_first_difference(baseline, old, candidate, new, shared, listings),
            **details,
        }
    except ProblemsError as error:
        return Comparison(new.text, State.UNREADABLE, changed, {"reason": str(error)})
    return Comparison(new.text, _state(before, after, bool(launch)), changed, details)


def _state(before: CodeObject, after: CodeObject, launch_changed: bool) -> State:
    if before.identity == after.identity:
        return State.METADATA if launch_changed else State.SAME_CODE
    text = [[(s.name, s.digest) for s in code.sections if s.role is Role.CODE] for code in (before, after)]
    return State.METADATA if text[0] == text[1] else State.DIFFERENT


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = sorted({*before, *after})
    return {n: [before.get(n), after.get(n)] for n in names if before.get(n) != after.get(n)}


def _code_changes(before: CodeObject, after: CodeObject) -> dict[str, Any]:
    old, new = ({s.name: s for s in code.sections} for code in (before, after))
    sections = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    header = _changes(
        {"e_flags": f"{before.e_flags:#x}", "symbol": before.symbol, "abi_version": before.abi_version},
        {"e_flags": f"{after.e_flags:#x}", "symbol": after.symbol, "abi_version": after.abi_version},
    )
    resources = _changes(
        {**asdict(before.resources), "code_bytes": before.code_bytes},
        {**asdict(after.resources), "code_bytes": after.code_bytes},
    )
    features = explain.features(before, after) if "e_flags" in header else {}
    parts = (("sections", sections), ("header", header), ("features", features), ("resources", resources))
    return {name: value for name, value in parts if value}


def _fields(baseline: Side, old: VariantEntry, candidate: Side, new: VariantEntry) -> dict[str, Any]:
    """The fields that differ outside of the instructions, as far as the bytes at hand say."""
    if candidate.read is None:
        return {}
    if baseline.read is None:
        before = baseline.manifest.object(old.object).code
        return dict(recover.changes(before, candidate.read(new.object), f"{candidate.label}: {new.text}"))
    where = f"{baseline.label}, {candidate.label}: {old.text}"
    return dict(explain.changes(baseline.read(old.object), candidate.read(new.object), where))


def _first_difference(
    baseline: Side,
    old: VariantEntry,
    candidate: Side,
    new: VariantEntry,
    sections: list[str],
    listings: Listings,
) -> dict[str, Any]:
    """Where the machine instructions first differ, and how, when both sides have their bytes and these sections."""
    if baseline.read is None or candidate.read is None:
        return {}
    for name in sections:
        before = section_bytes(baseline.read(old.object), name, f"{baseline.label}: {old.text}")
        after = section_bytes(candidate.read(new.object), name, f"{candidate.label}: {new.text}")
        if before != after:
            pairs = enumerate(zip(before, after, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
            return {"first_difference": f"{name} at byte {at:#x}", **listings.details(before, after)}
    return {}
