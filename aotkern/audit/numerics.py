"""Does the machine code compute the right numbers? Every kernel of a bundle, run on small inputs, against a reference.

The binary that ships is launched through the loader's own dispatch and argument packing: by an emulator for gfx942 and
gfx950, or on an NVIDIA GPU. What an emulator executes is the code; what that leaves open is in `NOT_SAID`.

Every distinct code object is run: variants that share one count once. Where a user asks for a part, at most `most` of a
kernel are taken, first those that bring a constant, a class or an option that none before them had, in an order drawn
from the seed, then any. The report says how many that are of how many, and lists what was left out.

Wrong numbers are findings. A case that shows nothing, or that could not be run, leaves the question open; so does a
kernel without cases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aotkern.audit.cases import CaseFunction
from aotkern.audit.examining import Coverage, Examined, Outcome, examine, run_case
from aotkern.audit.execution import Executor
from aotkern.audit.findings import Finding, Verdict
from aotkern.manifest import Manifest, VariantEntry
from aotkern.target import Target

AUDIT = "numerics"
NOT_SAID = (
    "not said: timing, hazards, caches and their control, progress, rounding inside MFMA, the last place of "
    "transcendental functions, the HIP launch itself, code that no case executed (docs/numerics.md)"
)
"""What a clean run in the emulator leaves open, in one line."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Distinct code objects of one kernel: how many were run, of how many there are."""

    run: int
    of: int


@dataclass(frozen=True, slots=True)
class NumericsReport:
    """The outcome for one bundle.

    Attributes:
        target: Its target.
        on: What executed the code: `emulator`, `cuda: NVIDIA H200`, ...
        outcomes: Every case that ran, or could not.
        objects: By kernel, its distinct code objects.
        left_out: By kernel, variants that were not run although they have code of their own.
        without_cases: Kernels for which no cases are declared.
        orders: The orders of waves in which each case was to run.
        coverage: By variant, which instructions ran; empty where that is not known.
        bound: Least share of instructions that the cases of each code object must execute; None for no bound.
    """

    target: Target
    on: str
    outcomes: tuple[Outcome, ...]
    objects: Mapping[str, Counts]
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without_cases: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    bound: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Findings when something is wrong; unknown when something was not shown, or nothing ran."""
        if self.findings:
            return Verdict.FINDINGS
        return Verdict.UNKNOWN if self.unknown or not self.outcomes else Verdict.CLEAN

    @property
    def summary(self) -> str:
        """What ran on what, of how much, and what could not."""
        counts = Counts(sum(c.run for c in self.objects.values()), sum(c.of for c in self.objects.values()))
        orders = f" in orders {', '.join(self.orders)}" if len(self.orders) > 1 else ""
        missing = f"; no cases for {', '.join(self.without_cases)}" if self.without_cases else ""
        return (
            f"{self.target} on {self.on}: {counts.run} of {counts.of} code objects, {self.cases} cases{orders}, "
            f"wrong {self.wrong}, could not tell {self.undecided}{self._covered}{missing}"
        )

    @property
    def _covered(self) -> str:
        share = self.covered
        return "" if share is None else f"; {percent(share)} of instructions ran"

    @property
    def covered(self) -> float | None:
        """The share of reachable instructions that ran, over all code objects; None where that is not known."""
        reachable = sum(one.reachable for one in self.coverage.values())
        return sum(one.executed for one in self.coverage.values()) / reachable if reachable else None

    @property
    def variants(self) -> int:
        """How many variants were run, one for each code object."""
        return sum(counts.run for counts in self.objects.values())

    @property
    def cases(self) -> int:
        """How many cases ran to their end in some order."""
        return sum(bool(outcome.orders or outcome.error) for outcome in self.outcomes)

    @property
    def wrong(self) -> int:
        """How many cases are wrong."""
        return sum(bool(outcome.error) for outcome in self.outcomes)

    @property
    def undecided(self) -> int:
        """How many cases show nothing, and are not wrong either."""
        return sum(bool(outcome.doubt and not outcome.error) for outcome in self.outcomes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Cases that came out wrong, and code objects of which too little ran."""
        wrong = (
            Finding(AUDIT, o.key, "wrong", f"{o.case}, seed {o.seed}: {o.error}", {"case": o.case, "seed": o.seed})
            for o in self.outcomes
            if o.error
        )
        return (*wrong, *self._uncovered())

    def _uncovered(self) -> Iterator[Finding]:
        if self.bound is None:
            return
        for key, one in self.coverage.items():
            if one.share < self.bound:
                text = f"{percent(one.share)} of its instructions ran, at least {percent(self.bound)} must: {gaps(one)}"
                facts = {"bound": "coverage", "limit": self.bound, "share": round(one.share, 4)}
                yield Finding(AUDIT, key, "too little executed", text, facts)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """What could not be told: cases that show nothing or cannot be run, kernels without cases."""
        cases = (
            Finding(AUDIT, o.key, "could not tell", f"{o.case}, seed {o.seed}: {o.doubt}", {"case": o.case})
            for o in self.outcomes
            if o.doubt and not o.error
        )
        kernels = (Finding(AUDIT, name, "could not tell", "no cases are declared") for name in self.without_cases)
        bound = self.bound is not None and any(outcome.orders for outcome in self.outcomes) and not self.coverage
        what = "which instructions ran is not known here, and the policy has a bound for it"
        return (*cases, *kernels, *((Finding(AUDIT, str(self.target), "could not tell", what),) if bound else ()))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Variants that were not run although they have code of their own."""
        return tuple(key for keys in self.left_out.values() for key in keys)


def percent(share: float) -> str:
    """With one digit, and never rounded up to all."""
    return "100 %" if share == 1 else f"{int(share * 1000) / 10:.1f} %"


def gaps(coverage: Coverage, most: int = 3) -> str:
    """The longest runs of instructions that did not run."""
    longest = sorted(coverage.gaps, key=lambda gap: -gap.count)[:most]
    rest = len(coverage.gaps) - len(longest)
    more = [f"{rest} more places"] if rest else []
    return "not " + "; ".join([*map(str, longest), *more])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run of a bundle.

    Attributes:
        manifest: The bundle's manifest.
        chosen: The variants to run.
        objects: By kernel, how many code objects that are, of how many.
        left_out: By kernel, the variants that are not run.
        without_cases: Kernels for which no cases are declared.
    """

    manifest: Manifest
    chosen: tuple[VariantEntry, ...]
    objects: Mapping[str, Counts]
    left_out: Mapping[str, tuple[str, ...]]
    without_cases: tuple[str, ...]

    def report(
        self,
        examined: Iterable[Examined],
        on: str,
        orders: Sequence[str],
        coverage: Mapping[str, Coverage],
        bound: float | None = None,
    ) -> NumericsReport:
        """The report over what came out."""
        outcomes = tuple(outcome for one in examined for outcome in one.outcomes)
        named = tuple(dict.fromkeys(order for order in orders if order))
        return NumericsReport(
            self.manifest.target, on, outcomes, self.objects, self.left_out, self.without_cases, named, coverage, bound
        )


def plan(manifest: Manifest, cases: Mapping[str, CaseFunction], seed: int = 0, most: int | None = None) -> Plan:
    """Choose the variants of a bundle that are run: one for each code object, or a part of them."""
    chosen: list[VariantEntry] = []
    objects: dict[str, Counts] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    without: list[str] = []
    for kernel in manifest.kernels:
        # In reverse, so that of the variants that share their code the first one stays.
        mine = reversed([variant for variant in manifest.variants if variant.kernel == kernel.name])
        distinct = list({variant.object: variant for variant in mine}.values())[::-1]
        if kernel.name not in cases:
            without.append(kernel.name)
            objects[kernel.name] = Counts(0, len(distinct))
            continue
        taken = distinct if most is None or len(distinct) <= most else choose(distinct, most, seed)
        objects[kernel.name] = Counts(len(taken), len(distinct))
        if rest := tuple(variant.text for variant in distinct if variant not in taken):
            left_out[kernel.name] = rest
        chosen.extend(taken)
    return Plan(manifest, tuple(chosen), objects, left_out, tuple(without))


def audit(
    manifest: Manifest,
    cases: Mapping[str, CaseFunction],
    executor: Executor,
    *,
    others: Sequence[Executor] = (),
    seed: int = 0,
    most: int | None = None,
    bound: float | None = None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> NumericsReport:
    """Run the cases of every kernel, in this process; see `numerics_jobs` for several.

    Args:
        manifest: The bundle's manifest.
        cases: Functions by kernel name.
        executor: What runs them.
        others: What runs them again: other orders of waves.
        seed: Inputs and the choice of variants are drawn from it.
        most: Most code objects of one kernel; None for all.
        bound: Least share of instructions to be executed, which is not known here; see `NumericsReport.unknown`.
        tell: Told of each outcome as it comes.
    """
    todo = plan(manifest, cases, seed, most)
    executors = (executor, *others)
    examined: list[Examined] = []
    for variant in todo.chosen:
        examined.append(examine(variant, cases[variant.kernel], executors, seed))
        for outcome in examined[-1].outcomes:
            tell(outcome)
    return todo.report(examined, executor.on, [one.order for one in executors], {}, bound)


def choose(variants: Sequence[VariantEntry], most: int, seed: int) -> tuple[VariantEntry, ...]:
    """At most `most` variants; see the module for the rule."""
    drawn = sorted(variants, key=lambda v: hashlib.sha256(f"{seed} {v.text}".encode()).digest())
    seen: set[tuple[str, str]] = set()
    first: list[VariantEntry] = []
    rest: list[VariantEntry] = []
    for variant in drawn:
        traits = set(_traits(variant))
        (rest if traits <= seen else first).append(variant)
        seen |= traits
    return tuple((first + rest)[:most])


def _traits(variant: VariantEntry) -> Iterator[tuple[str, str]]:
    for name, spec in variant.key.arguments:
        yield name, str(spec)
    for name, value in variant.key.options:
        yield name, str(value)


__all__ = ["NumericsReport", "Outcome", "Plan", "audit", "choose", "plan", "run_case"]
