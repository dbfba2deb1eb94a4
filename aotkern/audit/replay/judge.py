"""What a replayed arm comes to: its counts held against bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotkern.audit.coverage.proof import Gap
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.jit.judge import KernelRow
from aotkern.audit.replay.drive import PHASES, SCORED, ArmResult
from aotkern.audit.replay.workload import BUNDLE

AUDIT = "replay"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """One arm of a workload, replayed.

    Attributes:
        workload: The workload's name.
        result: What the arm did.
        bounds: Most compiles of each phase that is judged. In an arm of prebuilt variants, each kind of call that no
            variant serves counts as one compile.
    """

    workload: str
    result: ArmResult
    bounds: Mapping[str, int]

    @property
    def obstacle(self) -> str:
        """Why nothing can be told; empty when it can: a phase without a launch keeps every bound and shows nothing."""
        if not self.result.launches:
            return "nothing was launched"
        launched = {phase for phase, _ in self.result.launches}
        idle = [phase for phase in PHASES if phase in self.bounds and phase not in launched]
        return f"nothing was launched in phase {' and '.join(idle)}, which is to be judged" if idle else ""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """The phases that compile more than their bounds."""
        return tuple(phase for phase, most in self.bounds.items() if self.result.compiled(phase) > most)

    @property
    def verdict(self) -> Verdict:
        """Findings outweigh an obstacle: what was seen was seen."""
        if self.exceeded:
            return Verdict.FINDINGS
        return Verdict.UNKNOWN if self.obstacle else Verdict.CLEAN

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What compiles, and what no variant serves, in the phases that exceed their bounds."""
        return tuple(finding for phase in self.exceeded for finding in self._of(phase))

    @property
    def summary(self) -> str:
        """Launches, and compiles of each phase beside their bounds."""
        result = self.result
        if self.obstacle and not self.exceeded:
            return f"{self.workload}: {self.obstacle}"
        launches = sum(result.launches.values())
        phases = ", ".join(f"{phase} {result.compiled(phase)}{self._bound(phase)}" for phase in PHASES)
        variants = f"{len(result.served)} prebuilt variant" + ("" if len(result.served) == 1 else "s")
        served = f", {sum(result.served.values()):,} of them by {variants}"
        found = served if result.arm.kind == BUNDLE else ""
        return f"{self.workload}: {launches:,} launches{found}; would compile: {phases}"

    def _bound(self, phase: str) -> str:
        return f" (at most {self.bounds[phase]})" if phase in self.bounds else ""

    def _of(self, phase: str) -> Iterator[Finding]:
        allowed = f"phase {phase} allows {self.bounds[phase]} compiles, {self.result.compiled(phase)} would happen"
        for row in self.result.report.rows:
            if row.phase == phase:
                yield _compiled(row, allowed)
        for (where, kernel), gaps in self.result.gaps.items():
            if where == phase:
                yield from (_missed(kernel, phase, gap) for gap in gaps)


def _compiled(row: KernelRow, allowed: str) -> Finding:
    why = "; ".join(cause.message for cause in row.causes)
    facts = {"phase": row.phase, "compiles": row.variants, "bound": row.phase}
    return Finding(AUDIT, row.kernel, "compiles", f"{allowed}; {row.variants} of them here: {why}", facts)


def _missed(kernel: str, phase: str, gap: Gap) -> Finding:
    nearest = f"; nearest: {gap.nearest}, differs in: {'; '.join(gap.reasons)}" if gap.nearest else ""
    reasons = nearest or f": {'; '.join(gap.reasons)}"
    advice = f" ({'; '.join(gap.advice)})" if gap.advice else ""
    message = f"no variant serves a call in phase {phase}{reasons}{advice}"
    facts = {"phase": phase, "example": gap.example, "nearest": gap.nearest, "bound": f"{phase}: {gap.example}"}
    return Finding(AUDIT, kernel, "no variant", message, facts)


def usual_bounds(result: ArmResult) -> dict[str, int]:
    """What is asked of an arm where nobody says otherwise: no compile while scored, and prebuilt variants always."""
    launched = {phase for phase, _ in result.launches}
    judged = PHASES if result.arm.kind == BUNDLE or result.gaps else (SCORED,)
    return {phase: 0 for phase in judged if phase in launched}
