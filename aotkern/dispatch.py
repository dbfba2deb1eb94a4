"""Which prebuilt variant serves a call: a pure choice, with a reason for each variant that is refused.

The rule is short. Every parameter of a variant assumes something of its argument: an element type, an aligned address,
a storage of at most 2 GiB - 1, a range, a multiple of 16, a constant. Variants are tried from the most special to the
most general, and the first whose assumptions all hold is taken. The order does not depend on the call:

1. integers in the width that Triton itself would take first: i32, i64, u64, and then the others,
2. then the variant that assumes more, counted over all parameters (a constant counts two, a class one),
3. then the one that assumes more of an earlier parameter,
4. then by place: a manifest lists its variants by the text of their keys.

So a call gets exactly the variant of its own specialisation where that was built, and a more general one where not.
Variants that differ in compile options only are told apart by the options that the call names; a call that names none
means Triton's defaults. Where no variant has these, the call must name the option.

Nothing here knows drivers, bundles or tensors: all facts come in as arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from aotkern import dispatchadvice as helps
from aotkern.advice import Advice, Change, say
from aotkern.arguments import Pointer, Value
from aotkern.errors import InputError
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Parameter, Runtime, VariantKey
from aotkern.spec.key import flatten
from aotkern.target import Backend

SMALL_STORAGE = 2**31 - 1
"""Most bytes of a storage that 32-bit offsets reach (class S, AMD)."""
DIVISOR = 16
"""What class D promises of an address or an integer."""

INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u64": (0, 2**64 - 1),
    "i8": (-(2**7), 2**7 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "u8": (0, 2**8 - 1),
    "u16": (0, 2**16 - 1),
    "u32": (0, 2**32 - 1),
}
"""Least and greatest value of each integer type, in the order in which dispatch prefers them."""
_LEFT_OUT = Constant("None")
"""What a call names to ask for the variants that do not have an option: those built without a setting."""
_PREFERENCE = {name: rank for rank, name in enumerate(INTEGER_RANGES)}


_COMMON = {"num_warps": Constant("4"), "num_ctas": Constant("1"), "launch_cooperative_grid": Constant("False")}
DEFAULTS: Mapping[Backend, Mapping[str, Constant]] = {
    Backend.HIP: {
        **_COMMON,
        "num_stages": Constant("2"),
        "waves_per_eu": Constant("0"),
        "kpack": Constant("1"),
        "matrix_instr_nonkdim": Constant("0"),
    },
    Backend.CUDA: {**_COMMON, "num_stages": Constant("3"), "maxnreg": Constant("None")},
}
"""What Triton takes for compile options that a call does not name. A test holds them against the installed Triton."""


class Rule(Enum):
    """The kind of assumption that does not hold; the number weighs it when the nearest variant is sought."""

    DIVISIBLE = 1
    ALIGNMENT = 2
    STORAGE = 3
    RANGE = 4
    OPTION = 5
    AMBIGUOUS = 6
    DENIED = 0
    CONSTANT = 7
    ELEMENT = 8
    KIND = 9


@dataclass(frozen=True, slots=True)
class Refusal:
    """One assumption of a variant that a call does not meet.

    Attributes:
        name: The parameter, or the compile option.
        rule: Which kind of assumption.
        built: What the variant assumes, in words.
        given: What the call has, in words.
        subject: What advice needs to know; None for reasons that are no argument's.
    """

    name: str
    rule: Rule
    built: str
    given: str
    subject: Subject | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.built} -> {self.given}"

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What the author of the declaration, or the caller, can do about it: alternatives, each of which is enough."""
        subject = self.subject
        match self.rule:
            case Rule.DENIED:
                return (Advice(Change.UNDENY, self.name, self.given.removeprefix("denied by ")),)
            case Rule.OPTION:
                return (Advice(Change.BUILD_OPTION, self.name, helps.python(Constant(self.given))),)
            case Rule.AMBIGUOUS:
                return (Advice(Change.NAME_OPTION, self.name, self.built),)
        return () if subject is None else subject.advice(self.rule, self.name)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a refusal is about, as far as advice needs it.

    Attributes:
        parameter: The parameter.
        spec: The assumption that does not hold, or the part of it for an item of a tuple.
        value: The argument, or that part of it.
    """

    parameter: Parameter
    spec: ArgumentSpec
    value: Value

    def advice(self, rule: Rule, name: str) -> tuple[Advice, ...]:
        """What helps against a refusal of this kind; `name` is the parameter with its tuple positions."""
        parameter, value = self.parameter, self.value
        if rule is Rule.CONSTANT:
            return helps.for_constant(name, parameter, value)
        if rule is Rule.KIND:
            return helps.for_kind(name, parameter, self.spec, value)
        if rule is Rule.RANGE:
            return helps.for_range(name, parameter, value)
        if isinstance(self.spec, Runtime) and isinstance(value, Pointer):
            return self._pointer(rule, name, self.spec, value)
        kind = self.spec.type if isinstance(self.spec, Runtime) else ""
        return (Advice(Change.DECLARE, name, f'Int("{kind}", classes=("any",))'),)

    @staticmethod
    def _pointer(rule: Rule, name: str, spec: Runtime, value: Pointer) -> tuple[Advice, ...]:
        if rule is Rule.ALIGNMENT:
            wider = Advice(Change.DECLARE, name, f'Pointer("{one_bit(spec.element)}", alignment="both")')
            return Advice(Change.ALIGN, name), wider
        if rule is Rule.STORAGE:
            wider = Advice(Change.DECLARE, name, f'Pointer("{one_bit(spec.element)}", storage="both")')
            return (Advice(Change.STORAGE_BYTES, name), wider) if value.storage_bytes is None else (wider,)
        return (
            Advice(Change.DECLARE, name, f'Pointer("{value.element}")'),
            Advice(Change.CONVERT, name, one_bit(spec.element)),
        )


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant as dispatch sees it: its key, and the compile options in effect."""

    key: VariantKey
    options: Mapping[str, Constant]


@dataclass(frozen=True, slots=True)
class Test:
    """An assumption about one argument, and the variants that make it.

    Attributes:
        spec: The assumption.
        variants: A bit for each variant of the table; bit 0 is the first.
    """

    spec: ArgumentSpec
    variants: int


@dataclass(frozen=True, slots=True)
class Table:
    """The variants of one kernel, arranged for choosing.

    Attributes:
        kernel: Its name.
        parameters: Its parameters in order.
        variants: From the most special to the most general.
        positions: For each of them, its place in the sequence that the table was made from.
        tests: For each parameter, the distinct assumptions made of it.
        options: For each compile option, its distinct values with the variants that have them.
        families: For each variant, a bit for every variant with equal arguments (they differ in options only).
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    variants: tuple[Variant, ...]
    positions: tuple[int, ...]
    tests: tuple[tuple[Test, ...], ...]
    options: Mapping[str, tuple[tuple[Constant, int], ...]]
    families: tuple[int, ...]

    @classmethod
    def make(cls, kernel: str, parameters: Sequence[Parameter], variants: Sequence[Variant]) -> Table:
        """Arrange the variants of a kernel."""
        positions = sorted(range(len(variants)), key=lambda index: order(variants[index].key))
        arranged = tuple(variants[index] for index in positions)
        # For each parameter: each distinct assumption, with its number and the variants that make it.
        tests: list[dict[ArgumentSpec, list[int]]] = [{} for _ in parameters]
        # Variants share a few mappings of options, each with dozens of entries: take a mapping apart once.
        mappings: dict[int, tuple[Mapping[str, Constant], int]] = {}
        # What a build was asked for, which a back end may turn into something else (kpack=2 becomes 1 on gfx950).
        requests: dict[tuple[tuple[str, Constant], ...], tuple[Mapping[str, Constant], int]] = {}
        families: dict[tuple[int, ...], int] = {}
        members: list[tuple[int, ...]] = []
        for index, variant in enumerate(arranged):
            bit = 1 << index
            numbers = []
            for row, (_, spec) in zip(tests, variant.key.arguments, strict=True):
                entry = row.setdefault(spec, [len(row), 0])
                entry[1] |= bit
                numbers.append(entry[0])
            mappings[id(variant.options)] = variant.options, mappings.get(id(variant.options), (None, 0))[1] | bit
            asked = dict(variant.key.options)
            requests[tuple(asked.items())] = asked, requests.get(tuple(asked.items()), (asked, 0))[1] | bit
            members.append(tuple(numbers))
            families[members[-1]] = families.get(members[-1], 0) | bit
        return cls(
            kernel=kernel,
            parameters=tuple(parameters),
            variants=arranged,
            positions=tuple(positions),
            tests=tuple(tuple(Test(spec, bits) for spec, (_, bits) in row.items()) for row in tests),
            options=_columns((*mappings.values(), *requests.values())),
            families=tuple(families[numbers] for numbers in members),
        )


def _columns(mappings: Iterable[tuple[Mapping[str, Constant], int]]) -> dict[str, tuple[tuple[Constant, int], ...]]:
    """For each option its distinct values, each with the variants that have it."""
    columns: dict[str, dict[Constant, int]] = {}
    for options, variants in mappings:
        for name, value in options.items():
            column = columns.setdefault(name, {})
            column[value] = column.get(value, 0) | variants
    return {name: tuple(column.items()) for name, column in columns.items()}


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant that serves a call: its place in the table's `variants`."""

    index: int


@dataclass(frozen=True, slots=True)
class Miss:
    """No variant serves the call.

    Attributes:
        kernel: The kernel that was called.
        refused: Every variant with its refusals, the nearest first.
    """

    kernel: str
    refused: tuple[tuple[VariantKey, tuple[Refusal, ...]], ...]

    @property
    def nearest(self) -> VariantKey | None:
        """The variant with the least against it; None when the kernel has none at all."""
        return self.refused[0][0] if self.refused else None

    def __str__(self) -> str:
        if not self.refused:
            return f"{self.kernel}: no variant was built"
        key, reasons = self.refused[0]
        differs = "; ".join(map(str, reasons))
        advice = "; ".join(dict.fromkeys(text for reason in reasons if (text := say(reason.advice))))
        return f"{self.kernel}: no prebuilt variant fits this call\nnearest: {key}\ndiffers in: {differs} ({advice})"

    def table(self) -> tuple[tuple[str, str], ...]:
        """Every variant by the text of its key, with the first reason against it."""
        return tuple((str(key), str(reasons[0])) for key, reasons in self.refused)


def order(key: VariantKey) -> tuple[int, int, tuple[int, ...]]:
    """The place of a variant between the most special and the most general; see the module's docstring."""
    ranks = [_rank(spec) for _, spec in key.arguments]
    unused = tuple(item for _, items in ranks for item in items)
    return sum(widened for widened, _ in ranks), sum(unused), unused


@functools.lru_cache(maxsize=4096)
def _rank(spec: ArgumentSpec) -> tuple[int, tuple[int, ...]]:
    """How far the integers of an assumption are from the width that Triton takes first, and what each leaf forgoes."""
    leaves = tuple(leaf for _, leaf in flatten(spec))
    widened = sum(_PREFERENCE.get(leaf.type, 0) for leaf in leaves if isinstance(leaf, Runtime))
    return widened, tuple(0 if isinstance(leaf, Fixed) else 2 - leaf.divisible - leaf.small for leaf in leaves)


def choose(table: Table, values: Sequence[Value], options: Mapping[str, Constant]) -> Choice | Miss:
    """The variant that serves a call.

    Args:
        table: The kernel's variants.
        values: One value for each parameter.
        options: Compile options that the call names; a variant must have them.

    Raises:
        InputError: The call names an option that no variant of the kernel has.
    """
    alive = (1 << len(table.variants)) - 1
    for parameter, value, tests in zip(table.parameters, values, table.tests, strict=True):
        fitting = 0
        for test in tests:
            if next(refusals(parameter, test.spec, value), None) is None:
                fitting |= test.variants
        alive &= fitting
    for name, value in options.items():
        if name not in table.options:
            expected = f"a parameter, or one of the options {', '.join(sorted(table.options))}"
            raise InputError.one(f"{table.kernel}: {name}", expected, "no such name")
        fitting = sum(bits for built, bits in table.options[name] if built == value)
        if value == _LEFT_OUT:
            everyone = (1 << len(table.variants)) - 1
            fitting |= everyone & ~sum(bits for _, bits in table.options[name])
        alive &= fitting
    if not alive:
        return _miss(table, values, options)
    best = (alive & -alive).bit_length() - 1
    rivals = alive & table.families[best]
    return _told_apart(table, rivals, best)


def refusals(parameter: Parameter, spec: ArgumentSpec, value: Value, path: str = "") -> Iterator[Refusal]:
    """What of a variant's assumption about one argument does not hold."""
    name = parameter.name + path
    if isinstance(spec, Group):
        if not isinstance(value, tuple) or len(value) != len(spec.items):
            about = Subject(parameter, spec, value)
            yield Refusal(name, Rule.KIND, f"a tuple of {len(spec.items)}", _say(value), about)
            return
        for index, (item, part) in enumerate(zip(spec.items, value, strict=True)):
            yield from refusals(parameter, item, part, f"{path}[{index}]")
    elif isinstance(spec, Fixed):
        given = value if isinstance(value, Constant) else _constant(value)
        if given != spec.constant:
            about = Subject(parameter, spec, value)
            yield Refusal(name, Rule.CONSTANT, spec.constant.text, given.text if given else _say(value), about)
    elif spec.is_pointer:
        yield from _refused_pointer(name, spec, value, Subject(parameter, spec, value))
    else:
        yield from _refused_scalar(name, spec, value, Subject(parameter, spec, value))


def _constant(value: Value) -> Constant | None:
    if isinstance(value, tuple):
        return Constant.of(value) if not any(isinstance(leaf, Pointer) for leaf in _items(value)) else None
    return None if isinstance(value, (Pointer, Constant)) else Constant.of(value)


def _items(value: Value) -> Iterator[Value]:
    if isinstance(value, tuple):
        for item in value:
            yield from _items(item)
    else:
        yield value


def _refused_pointer(name: str, spec: Runtime, value: Value, about: Subject) -> Iterator[Refusal]:
    if not isinstance(value, Pointer):
        yield Refusal(name, Rule.KIND, f"a tensor of {spec.element}", _say(value), about)
        return
    if one_bit(value.element) != one_bit(spec.element):
        yield Refusal(name, Rule.ELEMENT, spec.element, value.element, about)
    if spec.divisible and value.address % DIVISOR:
        given = f"not 16-byte aligned (address {value.address:#x})"
        yield Refusal(name, Rule.ALIGNMENT, "16-byte aligned", given, about)
    if spec.small and (value.storage_bytes is None or value.storage_bytes > SMALL_STORAGE):
        size = value.storage_bytes
        given = "storage of unknown size" if size is None else f"storage over 2 GiB ({size} bytes)"
        yield Refusal(name, Rule.STORAGE, "storage of at most 2 GiB - 1", given, about)


def one_bit(element: str) -> str:
    """Triton writes a tensor of bools `u1`; `i1` is the same."""
    return "u1" if element == "i1" else element


def _refused_scalar(name: str, spec: Runtime, value: Value, about: Subject) -> Iterator[Refusal]:
    """An annotation fixes the type, and a Python number is then converted; without one the types must agree."""
    annotated = bool(about.parameter.type)
    kinds: Mapping[str, tuple[type, ...]] = {"f": (float,), "b": (float,), "i": (int,), "u": (int,)}
    wanted = (bool,) if spec.type == "u1" else kinds[spec.type[0]]
    if annotated:
        wanted = (bool, int, float) if spec.type[0] in "fb" else (bool, int)
    if type(value) not in wanted or not isinstance(value, (int, float)):
        yield Refusal(name, Rule.KIND, spec.type, _say(value), about)
        return
    low, high = INTEGER_RANGES.get(spec.type, (0, 1))
    if spec.type[0] in "iu" and not low <= value <= high:
        yield Refusal(name, Rule.RANGE, spec.type, f"out of its range ({name}={value})", about)
    elif spec.divisible and int(value) % DIVISOR:
        yield Refusal(name, Rule.DIVISIBLE, f"{spec.type} multiple of 16", f"other ({name}={value})", about)


def _say(value: Value) -> str:
    if isinstance(value, Pointer):
        return f"a tensor of {value.element}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Constant):
        return value.text
    return "None" if value is None else f"{type(value).__name__} {value!r}"


def _miss(table: Table, values: Sequence[Value], options: Mapping[str, Constant]) -> Miss:
    def against(variant: Variant) -> Iterator[Refusal]:
        for parameter, (_, spec), value in zip(table.parameters, variant.key.arguments, values, strict=True):
            yield from refusals(parameter, spec, value)
        for name, value in options.items():
            if value not in (variant.options.get(name), dict(variant.key.options).get(name)):
                yield Refusal(name, Rule.OPTION, _text(variant, name), value.text)

    rows = ((variant.key, tuple(against(variant))) for variant in table.variants)
    return Miss(table.kernel, tuple(sorted(rows, key=lambda row: sum(reason.rule.value for reason in row[1]))))


def _told_apart(table: Table, rivals: int, best: int) -> Choice | Miss:
    """Of variants with equal arguments, the one that a call which names no further option means.

    Such a call means Triton's defaults. Where no variant was built with these, the call must name what they differ in.
    """
    left = [index for index in range(len(table.variants)) if rivals >> index & 1]
    variants = [table.variants[index] for index in left]
    names = {name for variant in variants for name in variant.options}
    built = {name: sorted({_text(variant, name) for variant in variants}) for name in names}
    differing = sorted(name for name, values in built.items() if len(values) > 1)
    if not differing:
        return Choice(best)
    for index, variant in zip(left, variants, strict=True):
        if all(_is_default(variant, name) for name in differing):
            return Choice(index)
    reasons = tuple(Refusal(name, Rule.AMBIGUOUS, " or ".join(built[name]), "not given") for name in differing)
    return Miss(table.kernel, tuple((variant.key, reasons) for variant in variants))


def _is_default(variant: Variant, name: str) -> bool:
    """Whether an option of a variant is what Triton takes when nobody names it."""
    asked = dict(variant.key.options).get(name)
    known = DEFAULTS[variant.key.target.backend]
    if asked is None:  # nobody named it when it was built, unless the key names no options at all
        return bool(variant.key.options) or name not in known or variant.options.get(name) == known[name]
    return name in known and asked == known[name]


def with_denied(
    miss: Miss,
    parameters: Sequence[Parameter],
    variants: Sequence[Variant],
    entries: Sequence[str],
    values: Sequence[Value],
    options: Mapping[str, Constant],
) -> Miss:
    """The miss, led by the variant that would have served the call if it were not out of service.

    Args:
        miss: What the variants in service come to.
        parameters: The kernel's parameters.
        variants: The variants that are out of service.
        entries: For each of them, the entry that says so.
        values: As for `choose`.
        options: As for `choose`.
    """
    table = Table.make(miss.kernel, parameters, variants)
    known = {name: value for name, value in options.items() if name in table.options}
    outcome = choose(table, values, known)
    if not isinstance(outcome, Choice) or len(known) != len(options):
        return miss
    entry = entries[table.positions[outcome.index]]
    reason = Refusal("variant", Rule.DENIED, "in service", f"denied by {entry}")
    return Miss(miss.kernel, ((table.variants[outcome.index].key, (reason,)), *miss.refused))


def _text(variant: Variant, option: str) -> str:
    return variant.options[option].text if option in variant.options else "not set"
