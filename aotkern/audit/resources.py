"""What each variant takes: registers, LDS, scratch, spills, occupancy, code size. Pure.

Bounds come from a policy: each rule names kernels and a target by pattern and says what may not be exceeded. A rule
that fits no variant is a finding too: a bound that binds nothing protects nothing. Changes against a baseline are
listed, whether a rule bounds them or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase

from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.occupancy import occupancy
from aotkern.manifest import Manifest, VariantEntry
from aotkern.target import Target

AUDIT = "resources"


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of one variant; see `codeobject.facts.Resources` for the units.

    Attributes:
        lds_bytes: Static and dynamic LDS of a workgroup together.
        waves: Waves of a SIMD by registers and LDS, or 0 where that is not known for the target.
        code_bytes: Bytes of machine instructions.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    waves: int
    code_bytes: int


BOUNDS = tuple(item.name for item in fields(Usage))
"""What a rule can bound; `waves` is bounded from below, everything else from above."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Bounds for some variants.

    Attributes:
        kernel: A shell pattern for kernel names.
        target: For which target.
        bounds: Limit by name, of `BOUNDS`.
        variants: A shell pattern for variant keys, to bound only some of a kernel.
        instructions: Mnemonics that the code must contain; alternatives are divided by `|`.
    """

    kernel: str
    target: Target
    bounds: Mapping[str, int]
    variants: str = "*"
    instructions: tuple[str, ...] = ()

    def fits(self, entry: VariantEntry, target: Target) -> bool:
        """Whether the rule is about this variant."""
        return (
            self.target == target and fnmatchcase(entry.kernel, self.kernel) and fnmatchcase(entry.text, self.variants)
        )


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """The outcome for one bundle.

    Attributes:
        target: Its target.
        usages: By key text.
        findings: Bounds exceeded, rules that bind nothing.
        changes: For each variant that the baseline has too: what differs, `{name: [before, after]}`. Never a finding.
        rules: How many rules the variants were held against.
    """

    target: Target
    usages: Mapping[str, Usage]
    findings: tuple[Finding, ...]
    changes: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    rules: int = 0

    @property
    def verdict(self) -> Verdict:
        """Unknown when there was no variant to look at."""
        if not self.usages:
            return Verdict.UNKNOWN
        return Verdict.FINDINGS if self.findings else Verdict.CLEAN

    @property
    def summary(self) -> str:
        """How many variants were looked at, how many bounds were exceeded, how much changed."""
        return (
            f"{self.target}: variants {len(self.usages)}, rules {self.rules}, findings {len(self.findings)}, "
            f"changed against the baseline {len(self.changes)}"
        )


def usage(manifest: Manifest, entry: VariantEntry) -> Usage:
    """The resources of a variant, from the facts in its manifest."""
    code = manifest.object(entry.object).code
    held = code.resources
    lds = held.lds_bytes + entry.launch.shared
    waves = occupancy(
        manifest.target, vgprs=held.vgprs, sgprs=held.sgprs, lds_bytes=lds, num_warps=entry.launch.num_warps
    )
    return Usage(
        vgprs=held.vgprs,
        agprs=held.agprs,
        sgprs=held.sgprs,
        vgpr_spills=held.vgpr_spills,
        sgpr_spills=held.sgpr_spills,
        scratch_bytes=held.scratch_bytes,
        lds_bytes=lds,
        waves=waves.waves if waves else 0,
        code_bytes=code.code_bytes,
    )


def audit(
    manifest: Manifest,
    rules: Sequence[Rule],
    mnemonics: Mapping[str, frozenset[str]] | None = None,
    baseline: Manifest | None = None,
) -> ResourceReport:
    """Hold every variant against the rules for its target, and against a baseline.

    Args:
        manifest: The variants.
        rules: Rules for this bundle. One for another target fits no variant here, which is a finding.
        mnemonics: By key text, the instructions that occur in the code; needed where a rule names instructions.
        baseline: An older manifest to list changes against.
    """
    usages = {entry.text: usage(manifest, entry) for entry in manifest.variants}
    found = [finding for rule in rules for finding in _apply(rule, manifest, usages, mnemonics or {})]
    changes = dict(_changes(baseline, usages)) if baseline else {}
    return ResourceReport(manifest.target, usages, tuple(found), changes, len(rules))


def _apply(
    rule: Rule, manifest: Manifest, usages: Mapping[str, Usage], mnemonics: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    fitting = [entry for entry in manifest.variants if rule.fits(entry, manifest.target)]
    if not fitting:
        message = f"the rule for {rule.kernel} on {rule.target} fits no variant of this bundle for {manifest.target}"
        yield Finding(AUDIT, rule.kernel, "rule without variants", message, {"variants": rule.variants})
    for entry in fitting:
        held = asdict(usages[entry.text])
        for name, limit in rule.bounds.items():
            lower = name == "waves"
            if held[name] < limit if lower else held[name] > limit:
                message = f"{name}: {held[name]} {'<' if lower else '>'} {limit}"
                if lower and not held[name]:
                    message = f"waves: not known for {manifest.target}, {limit} wanted"
                yield Finding(AUDIT, entry.text, "out of bounds", message, {"bound": name, "limit": limit, **held})
        for wanted in rule.instructions:
            if not set(wanted.split("|")) & mnemonics.get(entry.text, frozenset()):
                yield Finding(AUDIT, entry.text, "instruction missing", f"no {wanted} in the code", {"wanted": wanted})


def _changes(baseline: Manifest, usages: Mapping[str, Usage]) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    for entry in baseline.variants:
        if entry.text not in usages:
            continue
        before, after = asdict(usage(baseline, entry)), asdict(usages[entry.text])
        if different := {name: (before[name], after[name]) for name in BOUNDS if before[name] != after[name]}:
            yield entry.text, different
