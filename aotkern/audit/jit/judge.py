"""Counts, findings and the verdict of a run: what compiled in which phase, why, and whether the budget allowed it.

A variant that eight ranks compile is one compile of the job, and one of each rank: budgets count the first, reports
show both. A variant that one process compiles twice counts twice.

The verdict is "could not tell" when nothing was watched, when kernels are interpreted, or when event lines are lost and
nothing was found; an excess that was seen is a finding whatever else was not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aotkern.audit.coverage import trace
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Finding, Verdict
from aotkern.audit.jit.causes import Cause, Explained, causes, explain
from aotkern.audit.jit.declare import declaration
from aotkern.audit.jit.events import Compile, Log, Tuning, ranks
from aotkern.dispatch import Choice, Miss
from aotkern.triton_bridge.budget import Budget

AUDIT = "jit"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The compiles of one kernel in one phase.

    Attributes:
        phase: The phase.
        kernel: The kernel's name.
        module: The module that defines it.
        count: Compiles of the job: each variant once over all ranks, as often as one process compiled it.
        variants: Distinct variants.
        binaries: Distinct code objects among them, where they are known.
        outcomes: How many compiles ended how, over all processes.
        routes: How many came about how, over all processes.
        ranks: Compiles of each rank.
        seconds: Time lost, over all processes.
        causes: Why, the main reason first.
        compiles: The compiles with their explanations.
        excess: Which budget is exceeded, in words; None within the budget.
    """

    phase: str
    kernel: str
    module: str
    count: int
    variants: int
    binaries: int
    outcomes: Mapping[str, int]
    routes: Mapping[str, int]
    ranks: Mapping[str, int]
    seconds: float
    causes: tuple[Cause, ...]
    compiles: tuple[Explained, ...]
    excess: str | None = None

    @property
    def prebuilt(self) -> str:
        """What a given bundle says to the first of these calls; empty without a bundle."""
        return self.compiles[0].prebuilt

    @property
    def declaration(self) -> str:
        """Lines for a declaration that builds these variants; empty where the arguments are not known."""
        first = [row.compile for row in self.compiles if row.compile.arguments]
        if not first:
            return ""
        variants = list({compile_.key: compile_.arguments for compile_ in first}.values())
        target = first[0].key.partition("[")[2].partition("]")[0]
        return declaration(target, variants, first[0].constexprs)


@dataclass(frozen=True, slots=True)
class TuningRow:
    """The tunings of one kernel in one phase.

    Attributes:
        phase: The phase.
        kernel: The kernel's name.
        module: The module that defines it.
        count: Tunings of the job: each key once over all ranks.
        keys: Distinct keys.
        varying: Arguments of the key that took several values, with their number.
        chosen: Distinct configurations that won.
        ranks: Tunings of each rank.
        seconds: Time lost, over all processes.
        excess: Which budget is exceeded, in words; None within the budget.
    """

    phase: str
    kernel: str
    module: str
    count: int
    keys: int
    varying: Mapping[str, int]
    chosen: tuple[str, ...]
    ranks: Mapping[str, int]
    seconds: float
    excess: str | None = None

    @property
    def message(self) -> str:
        """What happened, in one sentence."""
        names = ", ".join(f"{name} ({number} values)" for name, number in self.varying.items())
        text = f"tuned {self.count} times for {self.keys} keys" + (f", which differ in {names}" if names else "")
        if self.keys > 1 and len(self.chosen) == 1:
            text += "; every key chose the same configuration: take it out of the key"
        return text


@dataclass(frozen=True, slots=True)
class JitReport:
    """The outcome of a JIT audit.

    Attributes:
        log: What was recorded.
        budget: What was allowed.
        rows: Compiles by kernel and phase, the most expensive first.
        tunings: Tunings by kernel and phase, the most expensive first.
        obstacle: Why the audit could not tell; empty when it could.
        phases: The phases in which something happened, in their order.
    """

    log: Log
    budget: Budget
    rows: tuple[KernelRow, ...] = ()
    tunings: tuple[TuningRow, ...] = ()
    obstacle: str = ""
    phases: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Findings outweigh an obstacle: what was seen was seen."""
        if any(row.excess for row in self.all_rows):
            return Verdict.FINDINGS
        return Verdict.UNKNOWN if self.obstacle else Verdict.CLEAN

    @property
    def all_rows(self) -> tuple[KernelRow | TuningRow, ...]:
        """Compiles and tunings, beyond their budget first, then by the time that was lost."""
        rows: list[KernelRow | TuningRow] = [*self.rows, *self.tunings]
        return tuple(sorted(rows, key=lambda row: (row.excess is None, -row.seconds)))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything beyond a budget, the most expensive first."""
        found = []
        for row in self.rows:
            if row.excess:
                message = f"{row.excess}: " + "; ".join(cause.message for cause in row.causes)
                found.append(
                    Finding(AUDIT, row.kernel, "compiled", message, {"phase": row.phase, "compiles": row.count})
                )
        for tuning in self.tunings:
            if tuning.excess:
                message = f"{tuning.excess}: {tuning.message}"
                facts = {"phase": tuning.phase, "tunings": tuning.count}
                found.append(Finding(AUDIT, tuning.kernel, "retuned", message, facts))
        return tuple(found)

    @property
    def summary(self) -> str:
        """The obstacle, or how much was compiled and tuned in which phases."""
        tuned = sum(row.count for row in self.tunings)
        phases = ", ".join(f"{phase} {self.count(phase)}" for phase in self.phases) or "none"
        return self.obstacle or f"compiles by phase: {phases}; tunings: {tuned}; findings: {len(self.findings)}"

    def count(self, phase: str | None = None, kernel: str | None = None) -> int:
        """Compiles of the job, in all or of one phase or kernel."""
        return sum(row.count for row in self.rows if phase in (None, row.phase) and kernel in (None, row.kernel))


def judge(log: Log, budget: Budget, obstacle: str = "", catalogues: Sequence[Catalogue] = ()) -> JitReport:
    """The report of a run.

    Args:
        log: What was recorded.
        budget: What each phase allows.
        obstacle: What the caller knows to stand in the way of a verdict (a folder that could not be written, ...).
        catalogues: Prebuilt variants, to say of each compile whether one would have served its call.
    """
    groups: dict[tuple[str, str, str], list[Explained]] = {}
    for explained in explain(log.compiles):
        compile_ = explained.compile
        row = replace(explained, prebuilt=_prebuilt(catalogues, compile_))
        groups.setdefault((compile_.phase, compile_.module, compile_.kernel), []).append(row)
    rows = [_row(key, members) for key, members in groups.items()]
    tuned: dict[tuple[str, str, str], list[Tuning]] = {}
    for tuning in log.tunings:
        tuned.setdefault((tuning.phase, tuning.module, tuning.kernel), []).append(tuning)
    tunings = [_tuning_row(key, members) for key, members in tuned.items()]
    times = sorted([(e.at, e.phase) for e in log.compiles] + [(e.at, e.phase) for e in log.tunings])
    return JitReport(
        log=log,
        budget=budget,
        rows=tuple(sorted(_judged(rows, budget), key=lambda row: -row.seconds)),
        tunings=tuple(sorted(_judged_tunings(tunings, budget), key=lambda row: -row.seconds)),
        obstacle=obstacle or _obstacle(log),
        phases=tuple(dict.fromkeys(phase for _, phase in times)),
    )


def _prebuilt(catalogues: Sequence[Catalogue], compile_: Compile) -> str:
    """Whether a bundle of the compile's target has a variant for its call, and what differs if not."""
    target = compile_.key.partition("[")[2].partition("]")[0]
    for catalogue in catalogues:
        if str(catalogue.target) != target or not compile_.arguments:
            continue
        table = catalogue.tables.get(compile_.kernel)
        outcome = trace.ask(table, compile_) if table is not None else Miss(compile_.kernel, ())
        if isinstance(outcome, Choice):
            return f"{catalogue.label} has a variant for this call, which did not go through it"
        if not outcome.refused:
            return f"{catalogue.label} has no variant of this kernel"
        key, reasons = outcome.refused[0]
        return f"nearest prebuilt: {key}; differs in: {'; '.join(map(str, reasons))}"
    return ""


def _obstacle(log: Log) -> str:
    if log.interpreted:
        return "not applicable: TRITON_INTERPRET is set, so kernels are interpreted and nothing is compiled"
    if not any(process.triton for process in log.processes):
        return "no watched process imported Triton"
    if log.lost:
        return f"{log.lost} event lines are lost or damaged"
    return f"the watch failed: {log.faults[0]}" if log.faults else ""


def job_count(events: Sequence[Compile]) -> int:
    """How many compiles these are for the job as a whole."""
    counts = Counter((event.identity, event.process) for event in events)
    most: dict[tuple[str, str], int] = {}
    for (identity, _), number in counts.items():
        most[identity] = max(most.get(identity, 0), number)
    return sum(most.values())


def _row(key: tuple[str, str, str], members: Sequence[Explained]) -> KernelRow:
    phase, module, kernel = key
    events = [row.compile for row in members]
    return KernelRow(
        phase=phase,
        kernel=kernel,
        module=module,
        count=job_count(events),
        variants=len({event.identity for event in events}),
        binaries=len({event.object for event in events if event.object}),
        outcomes=dict(Counter(str(event.outcome) for event in events)),
        routes=dict(Counter(event.route for event in events)),
        ranks=ranks(events),
        seconds=sum(event.seconds for event in events),
        causes=causes(members),
        compiles=tuple(members),
    )


def _tuning_row(key: tuple[str, str, str], members: Sequence[Tuning]) -> TuningRow:
    phase, module, kernel = key
    keys = [tuple(sorted(tuning.key.items())) for tuning in members]
    each = Counter((text, tuning.process) for text, tuning in zip(keys, members, strict=True))
    most: dict[tuple[tuple[str, str], ...], int] = {}
    for (text, _), number in each.items():
        most[text] = max(most.get(text, 0), number)
    values = {name: {tuning.key.get(name) for tuning in members} for tuning in members for name in tuning.key}
    return TuningRow(
        phase=phase,
        kernel=kernel,
        module=module,
        count=sum(most.values()),
        keys=len(most),
        varying={name: len(found) for name, found in values.items() if len(found) > 1},
        chosen=tuple(dict.fromkeys(tuning.best for tuning in members if tuning.best)),
        ranks=ranks(members),
        seconds=sum(tuning.seconds for tuning in members),
    )


def _judged(rows: Sequence[KernelRow], budget: Budget) -> list[KernelRow]:
    """The same rows with what they exceed; kernels that share a budget are charged together."""
    used: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found = _allowed(budget, row.phase, row.kernel)
        if found is not None:
            used[row.phase, found[0]] += row.count
    judged = []
    for row in rows:
        found = _allowed(budget, row.phase, row.kernel)
        if found is not None and used[row.phase, found[0]] > found[1]:
            pattern, allowed = found
            whose = f" of kernels {pattern}" if pattern else ""
            text = f"phase {row.phase} allows {allowed} compiles{whose}, {used[row.phase, pattern]} happened"
            judged.append(replace(row, excess=text))
        else:
            judged.append(row)
    return judged


def _judged_tunings(rows: Sequence[TuningRow], budget: Budget) -> list[TuningRow]:
    used: Counter[str] = Counter()
    for row in rows:
        used[row.phase] += row.count
    judged = []
    for row in rows:
        limits = budget.of(row.phase)
        if limits is not None and limits.retunes is not None and used[row.phase] > limits.retunes:
            text = f"phase {row.phase} allows {limits.retunes} retunes, {used[row.phase]} happened"
            judged.append(replace(row, excess=text))
        else:
            judged.append(row)
    return judged


def _allowed(budget: Budget, phase: str, kernel: str) -> tuple[str, int] | None:
    limits = budget.of(phase)
    return None if limits is None else limits.of(kernel)
