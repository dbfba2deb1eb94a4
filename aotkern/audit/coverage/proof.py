"""Every class of a domain against the variants: which calls find one, which do not, and what is in their way.

The classes of the arguments multiply to more calls than could be listed, but variants see little of them: a set of
variants that still fit is all that one argument leaves to the next. So the calls are folded argument by argument into
the distinct sets that can remain, each with the number of its calls and one example. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotkern.advice import say
from aotkern.arguments import Pointer, Value
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.coverage.classes import ValueClass, classes
from aotkern.audit.coverage.domain import Argument, Calls, Values
from aotkern.audit.findings import Finding, Verdict
from aotkern.dispatch import Choice, Miss, Table, choose, refusals
from aotkern.errors import InputError, Problem
from aotkern.spec import Constant, Parameter

AUDIT = "coverage"


@dataclass(frozen=True, slots=True)
class Gap:
    """Calls without a variant, for one reason.

    Attributes:
        calls: How many classes of calls, or recorded calls.
        example: One of them, in words.
        nearest: Key of the nearest variant; None when the kernel has none.
        reasons: What differs from it, in words.
        advice: What to declare or to change.
        impossible: No build can cover them: a constexpr takes endless values.
    """

    calls: int
    example: str
    nearest: str | None
    reasons: tuple[str, ...]
    advice: tuple[str, ...]
    impossible: bool = False


@dataclass(frozen=True, slots=True)
class KernelCoverage:
    """The calls of one kernel.

    Attributes:
        kernel: Its name.
        calls: Classes of calls, or recorded calls, in all.
        covered: How many of them find a variant.
        gaps: The rest, by reason, the largest first.
    """

    kernel: str
    calls: int
    covered: int
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """The outcome of a coverage audit.

    Attributes:
        label: What was held against the calls.
        target: Its target.
        source: Where the calls come from.
        kernels: By kernel.
        obstacle: Why it could not tell; empty when it could.
    """

    label: str
    target: str
    source: str
    kernels: tuple[KernelCoverage, ...] = field(default=())
    obstacle: str = ""

    @property
    def verdict(self) -> Verdict:
        """Clean when there are calls and each finds a variant."""
        if any(kernel.gaps for kernel in self.kernels):
            return Verdict.FINDINGS
        return Verdict.UNKNOWN if self.obstacle or not self.kernels else Verdict.CLEAN

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The gaps, the largest of each kernel first."""
        return tuple(
            Finding(
                AUDIT,
                kernel.kernel,
                "cannot be covered" if gap.impossible else "not covered",
                f"{gap.calls} calls, such as {gap.example}: {'; '.join((*gap.reasons, *gap.advice))}",
                {"calls": gap.calls, "nearest": gap.nearest},
            )
            for kernel in self.kernels
            for gap in kernel.gaps
        )

    @property
    def summary(self) -> str:
        """The obstacle, or how many calls find a variant."""
        calls, covered = (sum(getattr(kernel, name) for kernel in self.kernels) for name in ("calls", "covered"))
        return self.obstacle or f"{self.target}: {covered} of {calls} calls of {self.source} find a variant"


def prove(catalogue: Catalogue, domain: Sequence[Calls], source: str) -> CoverageReport:
    """Hold a declared domain against the variants.

    Raises:
        InputError: A call leaves out an argument, or names one that the kernel does not have.
    """
    by_kernel: dict[str, list[KernelCoverage]] = {}
    for calls in domain:
        by_kernel.setdefault(calls.kernel, []).append(_prove(catalogue.tables.get(calls.kernel), calls))
    kernels = tuple(
        KernelCoverage(
            name, sum(r.calls for r in rows), sum(r.covered for r in rows), merged(g for r in rows for g in r.gaps)
        )
        for name, rows in by_kernel.items()
    )
    return CoverageReport(catalogue.label, str(catalogue.target), source, kernels)


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Gaps with the same reasons as one, the largest first."""
    found: dict[tuple[str, ...], Gap] = {}
    for gap in gaps:
        known = found.get(gap.reasons)
        found[gap.reasons] = gap if known is None else replace(known, calls=known.calls + gap.calls)
    return tuple(sorted(found.values(), key=lambda gap: -gap.calls))


@dataclass(frozen=True, slots=True)
class _State:
    """Calls, as far as they are folded, that leave the same variants."""

    calls: int
    example: tuple[ValueClass, ...]


def _prove(table: Table | None, calls: Calls) -> KernelCoverage:
    if table is None:
        gap = Gap(1, "every call", None, ("no variant was built",), ("declare this kernel",))
        return KernelCoverage(calls.kernel, 1, 0, (gap,))
    columns = _columns(table, _complete(table, calls))
    rest = [1]
    for column in reversed(columns):
        rest.append(rest[-1] * len(column))
    rest.reverse()
    states: dict[int, _State] = {_with_options(table, calls.options): _State(1, ())}
    gaps: list[Gap] = []
    for place, column in enumerate(columns):
        folded: dict[int, _State] = {}
        for mask, state in states.items():
            for item, fitting in column:
                left = mask & fitting
                number = state.calls * (1 if left else rest[place + 1])
                example = (*state.example, item)
                if not left:
                    gaps.append(_gap(table, calls, _completed(example, columns), number))
                elif left in folded:
                    folded[left] = replace(folded[left], calls=folded[left].calls + number)
                else:
                    folded[left] = _State(number, example)
        states = folded
    for state in states.values():
        outcome = choose(table, [item.value for item in state.example], calls.options)
        if isinstance(outcome, Miss):
            gaps.append(_gap(table, calls, state.example, state.calls))
    missing = sum(gap.calls for gap in gaps)
    return KernelCoverage(calls.kernel, rest[0], rest[0] - missing, merged(gaps))


_Column = Sequence[tuple[ValueClass, int]]


def _columns(table: Table, arguments: Mapping[str, Argument]) -> list[_Column]:
    """For each parameter its classes, each with the variants that it fits."""
    columns: list[_Column] = []
    for parameter, tests in zip(table.parameters, table.tests, strict=True):
        rows = []
        for item in classes(parameter, arguments[parameter.name], [test.spec for test in tests]):
            fitting = 0
            for test in tests:
                if next(refusals(parameter, test.spec, item.value), None) is None:
                    fitting |= test.variants
            rows.append((item, fitting))
        columns.append(rows)
    return columns


def _complete(table: Table, calls: Calls) -> dict[str, Argument]:
    """The arguments of every parameter, with defaults for those that are left out."""
    where = f"domain: {calls.kernel}"
    names = {parameter.name for parameter in table.parameters}
    problems = [
        Problem(f"{where}: {name}", "a parameter of it", "none") for name in calls.arguments if name not in names
    ]
    arguments: dict[str, Argument] = dict(calls.arguments)
    for parameter in table.parameters:
        if parameter.name not in arguments:
            if parameter.default is None:
                problems.append(Problem(f"{where}: {parameter.name}", "what it may be", "nothing, and no default"))
            else:
                arguments[parameter.name] = Values((Constant(parameter.default),))
    if problems:
        raise InputError(problems)
    return arguments


def _with_options(table: Table, options: Mapping[str, Constant]) -> int:
    """The variants that have the options which the calls name."""
    alive = (1 << len(table.variants)) - 1
    for name, value in options.items():
        alive &= sum(bits for built, bits in table.options.get(name, ()) if built == value)
    return alive


def _completed(example: tuple[ValueClass, ...], columns: Sequence[_Column]) -> tuple[ValueClass, ...]:
    """The example with a class for each argument that was not looked at: the one that fits most variants."""
    return (*example, *(max(column, key=lambda row: row[1].bit_count())[0] for column in columns[len(example) :]))


def _gap(table: Table, calls: Calls, example: Sequence[ValueClass], number: int) -> Gap:
    values = [item.value for item in example]
    impossible = any(p.constexpr and item.endless for p, item in zip(table.parameters, example, strict=True))
    words = in_words(table.parameters, [item.text for item in example])
    return gap_of(choose(table, values, calls.options), words, number, impossible=impossible)


def in_words(parameters: Sequence[Parameter], texts: Sequence[str]) -> str:
    """A call in words: `x: fp32, 16-byte aligned; n: 2`."""
    return "; ".join(f"{parameter.name}: {text}" for parameter, text in zip(parameters, texts, strict=True))


def gap_of(outcome: Choice | Miss, example: str, number: int, *, impossible: bool = False) -> Gap:
    """A gap from dispatch's own answer."""
    if isinstance(outcome, Choice) or not outcome.refused:
        return Gap(number, example, None, ("no variant was built",), ("declare this kernel",))
    key, reasons = outcome.refused[0]
    advice = dict.fromkeys(text for reason in reasons if (text := say(reason.advice)))
    words = ("make it a run-time argument: a constexpr with endless values cannot be covered",) if impossible else ()
    return Gap(number, example, str(key), tuple(map(str, reasons)), (*words, *advice), impossible)


def values_in_words(values: Sequence[Value]) -> list[str]:
    """Values of a recorded call."""
    return [_in_words(value) for value in values]


def _in_words(value: Value) -> str:
    if isinstance(value, Pointer):
        size = "" if value.storage_bytes is None else f", storage of {value.storage_bytes} bytes"
        return f"{value.element} at {value.address:#x}{size}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_in_words, value))})"
    return value.text if isinstance(value, Constant) else str(value)
