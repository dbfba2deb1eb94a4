"""Faults of machine code that show without running it, over all code objects of an AMD bundle.

The walk over the code is the emulator's (`emulator.static`); here its faults become findings. A register that is read
although nothing wrote it is counted but is no finding: compilers leave halves of register pairs undefined where their
value does not matter, and only a person can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.sides import Side
from aotkern.emulator import executable
from aotkern.emulator.executable import Unknown
from aotkern.emulator.static import Fault, Flaw, check
from aotkern.errors import InputError
from aotkern.target import Backend, Target

AUDIT = "static"


@dataclass(frozen=True, slots=True)
class StaticReport:
    """The outcome for one bundle.

    Attributes:
        target: Its target.
        flaws: For each code object that has any, under the key of the first variant that uses it.
        objects: How many code objects were walked.
        unknown: Instructions that the emulator cannot execute, by the same keys. They are no findings: a numerics audit
            that comes to them could not tell.
    """

    target: Target
    flaws: Mapping[str, tuple[Flaw, ...]]
    objects: int
    unknown: Mapping[str, tuple[Unknown, ...]] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[Fault, int]:
        """How many flaws there are of each kind that occurs."""
        return Counter(flaw.fault for flaws in self.flaws.values() for flaw in flaws)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every flaw but reads of registers that nothing wrote."""
        return tuple(
            Finding(
                AUDIT,
                key,
                flaw.fault.value,
                f"at {flaw.pc:#x} ({flaw.instruction}): {flaw.detail}",
                {"pc": flaw.pc, "instruction": flaw.instruction, "detail": flaw.detail},
            )
            for key, flaws in self.flaws.items()
            for flaw in flaws
            if flaw.fault is not Fault.NEVER_WRITTEN
        )

    @property
    def verdict(self) -> Verdict:
        """Unknown when there was no code to look at."""
        if not self.objects:
            return Verdict.UNKNOWN
        return Verdict.FINDINGS if self.findings else Verdict.CLEAN

    @property
    def summary(self) -> str:
        """How many code objects were walked, and what was seen."""
        seen = ", ".join(f"{count} x {fault.value}" for fault, count in sorted(self.counts.items()))
        return f"{self.objects} code objects walked: {seen or 'nothing seen'}"

    @property
    def not_executable(self) -> str:
        """Which instructions the emulator cannot execute; empty when it knows all."""
        counts: Counter[str] = Counter()
        for kinds in self.unknown.values():
            for kind in kinds:
                counts[kind.mnemonic] += kind.count
        if not counts:
            return ""
        names = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        return f"{counts.total()} instructions that the emulator cannot execute: {names}"


def audit(side: Side) -> StaticReport:
    """Walk the code of every code object of a bundle.

    Raises:
        InputError: Only a manifest is at hand, or the target is not an AMD one.
        MissingToolError: The disassembler is not installed.
    """
    manifest = side.manifest
    if side.read is None or manifest.target.backend is not Backend.HIP:
        raise InputError.one(side.label, "an AMD bundle, whose code can be walked", str(manifest.target))
    first: dict[str, str] = {}
    for variant in manifest.variants:
        first.setdefault(variant.object.hex, variant.text)
    flaws: dict[str, tuple[Flaw, ...]] = {}
    unknown: dict[str, tuple[Unknown, ...]] = {}
    for entry in manifest.objects:
        key = first[entry.digest.hex]
        code = side.read(entry.digest)
        if found := check(code, f"{side.label}: {key}"):
            flaws[key] = found
        if kinds := executable.unknown(code, f"{side.label}: {key}"):
            unknown[key] = kinds
    return StaticReport(manifest.target, flaws, len(manifest.objects), unknown)
