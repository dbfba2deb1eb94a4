"""Does the machine code compute the right numbers? Every kernel of a bundle, run on small inputs, against a reference.

The binary that ships is launched through the loader's own dispatch and argument packing: by an emulator for gfx942 and
gfx950, or on an NVIDIA GPU. What an emulator executes is the code; timing, hazards, the rounding inside MFMA and the
last place of transcendental functions are not modelled, and no hardware is validated by it.

Which variants are run, when there are many: variants that share a code object count once; of each kernel at most `most`
are taken, first those that bring a constant, a class or an option that none before them had, in an order drawn from the
seed, then any. The report says how many were left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from aotkern.audit.cases import Array, Case, CaseFunction, Exact, Expected, Near, Typed, constants
from aotkern.audit.findings import Finding, Verdict
from aotkern.errors import AotkernError
from aotkern.manifest import Manifest, VariantEntry
from aotkern.target import Target

AUDIT = "numerics"
MOST = 40
"""Variants of one kernel unless asked otherwise: enough for every constant of every shipped kernel."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case on one variant.

    Attributes:
        key: The variant.
        case: Name of the case.
        seed: What its inputs were drawn from.
        error: Why it is wrong, or nothing.
        worst: For each output, the largest absolute error and the relative L2 error (0, 0 for exact ones).
    """

    key: str
    case: str
    seed: int
    error: str
    worst: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class NumericsReport:
    """The outcome for one bundle.

    Attributes:
        target: Its target.
        on: What executed the code: `emulator`, `cuda: NVIDIA H200`, ...
        outcomes: Every case that ran.
        left_out: Variants of each kernel that were not run although they have code of their own.
        without_cases: Kernels for which no cases are declared.
    """

    target: Target
    on: str
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, int]
    without_cases: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Unknown when nothing ran, or when a kernel has no cases."""
        if any(outcome.error for outcome in self.outcomes):
            return Verdict.FINDINGS
        return Verdict.UNKNOWN if self.without_cases or not self.outcomes else Verdict.CLEAN

    @property
    def summary(self) -> str:
        """What ran on what, and what could not."""
        missing = f"; no cases for {', '.join(self.without_cases)}" if self.without_cases else ""
        wrong = sum(bool(outcome.error) for outcome in self.outcomes)
        return (
            f"{self.target} on {self.on}: variants {self.variants}, cases {len(self.outcomes)}, wrong {wrong}{missing}"
        )

    @property
    def variants(self) -> int:
        """How many variants were run."""
        return len({outcome.key for outcome in self.outcomes})

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Cases that came out wrong."""
        return tuple(
            Finding(AUDIT, o.key, "wrong", f"{o.case}, seed {o.seed}: {o.error}", {"case": o.case, "seed": o.seed})
            for o in self.outcomes
            if o.error
        )


class Executor(Protocol):
    """What runs a case; see `executors`."""

    @property
    def on(self) -> str:
        """What executes the code, for the report."""

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> None:
        """Launch once. `values` holds the arguments by name, arrays to be changed in place."""


def audit(
    manifest: Manifest,
    cases: Mapping[str, CaseFunction],
    executor: Executor,
    *,
    seed: int = 0,
    most: int = MOST,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> NumericsReport:
    """Run the cases of every kernel.

    Args:
        manifest: The bundle's manifest.
        cases: Functions by kernel name.
        executor: What runs them.
        seed: Inputs and the choice of variants are drawn from it.
        most: Most variants of one kernel.
        tell: Told of each outcome as it comes.
    """
    outcomes: list[Outcome] = []
    left_out: dict[str, int] = {}
    without: list[str] = []
    for kernel in manifest.kernels:
        if kernel.name not in cases:
            without.append(kernel.name)
            continue
        distinct = list({v.object: v for v in manifest.variants if v.kernel == kernel.name}.values())
        chosen = choose(distinct, most, seed)
        if len(distinct) > len(chosen):
            left_out[kernel.name] = len(distinct) - len(chosen)
        for variant in chosen:
            for case in cases[kernel.name](variant.key, seed):
                outcomes.append(run_case(variant, case, executor, seed))
                tell(outcomes[-1])
    return NumericsReport(manifest.target, executor.on, tuple(outcomes), left_out, tuple(without))


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


def run_case(variant: VariantEntry, case: Case, executor: Executor, seed: int) -> Outcome:
    """Run one case; its inputs were drawn from `seed`, and stay as they are."""
    values = {name: _copied(value) for name, value in case.arguments.items()}
    try:
        executor.run(variant, case, {**constants(variant.key), **values})
    except AotkernError as error:
        return Outcome(variant.text, case.name, seed, f"{type(error).__name__}: {error}", {})
    worst: dict[str, tuple[float, float]] = {}
    errors: list[str] = []
    for name, expected in case.expected.items():
        worst[name], wrong = judge(values[name], expected)
        errors += [f"{name}: {wrong}"] if wrong else []
    return Outcome(variant.text, case.name, seed, "; ".join(errors), worst)


def _copied(value: Any) -> Any:
    if isinstance(value, Typed):
        return Typed(aligned(value.data), value.element)
    return aligned(value) if isinstance(value, np.ndarray) else value


def aligned(data: Array) -> Array:
    """A copy whose memory starts at a multiple of 16 bytes, which NumPy alone does not promise."""
    room = np.empty(data.nbytes + 16, np.uint8)
    start = -room.ctypes.data % 16
    copy = room[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy


def judge(found: Array | Typed, expected: Expected) -> tuple[tuple[float, float], str]:
    """Errors of one output, and what is wrong with it, if anything."""
    raw = found.data if isinstance(found, Typed) else found
    if isinstance(expected, Exact):
        return (0.0, 0.0), _unequal(raw, expected.data)
    known = ~np.isnan(expected.data)
    if expected.elsewhere is not None:
        kept = raw.copy()
        kept[~known] = expected.elsewhere[~known]
        if wrong := _unequal(raw, kept):
            return (0.0, 0.0), f"where nothing is computed, {wrong}"
    atol = np.broadcast_to(expected.atol, expected.data.shape)[known]
    return _distant(decoded(found)[known], expected.data[known], atol, expected)


def _unequal(found: Array, wanted: Array) -> str:
    same = found.reshape(-1).view(np.uint8) == np.ascontiguousarray(wanted).reshape(-1).view(np.uint8)
    if same.all():
        return ""
    at = int(np.argmin(same)) // found.itemsize
    index = np.unravel_index(at, found.shape)
    place = [int(number) for number in index]
    count = int((~same).sum())
    return f"{count} bytes differ, first at {place}: expected {wanted[index]!r}, found {found[index]!r}"


def _distant(found: Array, wanted: Array, atol: Array, limits: Near) -> tuple[tuple[float, float], str]:
    if not found.size:
        return (0.0, 0.0), ""
    gap = np.abs(found - wanted)
    norm = float(np.linalg.norm(wanted))
    relative = float(np.linalg.norm(gap)) / norm if norm else float(np.linalg.norm(gap))
    worst = (float(gap.max()), relative)
    wrong = ~(gap <= atol + limits.rtol * np.abs(wanted))  # NaN is wrong
    if wrong.any():
        return worst, f"{int(wrong.sum())} of {gap.size} elements off, by up to {worst[0]:.3g}"
    if not relative <= limits.l2:
        return worst, f"relative L2 error {relative:.3g} > {limits.l2:g}"
    return worst, ""


def decoded(value: Array | Typed) -> Array:
    """The numbers of an array, as float64."""
    if not isinstance(value, Typed):
        return value.astype(np.float64)
    if value.element == "bf16":
        return (value.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    raise ValueError(f"no decoding for {value.element}: compare it as Exact")


__all__ = ["Case", "Exact", "Executor", "Near", "NumericsReport", "Outcome", "audit", "choose", "judge", "run_case"]
