"""The prebuilt variants that a program may be served, and the choice among them: pure, and without Triton.

A kernel is found by the digest of its source, not by its name: a module that moved, or a comment that changed, is the
same kernel; an edited one is not, whatever it is called.

The choice is dispatch's own. Triton has sorted the call into a specialisation already, so that each argument stands for
all values of its class: the value that is hardest to serve speaks for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aotkern import influences, tritons
from aotkern.arguments import Pointer, Value
from aotkern.bundle import Bundle
from aotkern.deny import Deny
from aotkern.digest import Digest
from aotkern.dispatch import INTEGER_RANGES, SMALL_STORAGE, Choice, Miss, Rule, Table, Variant, choose, with_denied
from aotkern.errors import Problem
from aotkern.manifest import KernelEntry, VariantEntry
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Parameter, Runtime, VariantKey
from aotkern.spec.key import flatten
from aotkern.target import Target
from aotkern.trace import TUNING, Chosen, choices

OF_AN_INSTALLATION = ("extern_libs",)
"""Options that differ between two versions of Triton whose code may be mixed only by permission."""


Settings = tuple[tuple[str, Constant], ...]
"""Knobs and variables by the names of the variables, sorted; see `aotkern.influences`."""


@dataclass(frozen=True)
class Prebuilt:
    """A kernel in a bundle.

    Attributes:
        bundle: The bundle.
        entry: The kernel.
        deny: Binaries that are out of service.
    """

    bundle: Bundle
    entry: KernelEntry
    deny: Deny = Deny()  # noqa: RUF009 - it cannot be changed

    @property
    def built_by(self) -> str:
        """The version of Triton that built it."""
        return self.bundle.manifest.toolchain.get("triton", "unknown")

    @cached_property
    def variants(self) -> tuple[VariantEntry, ...]:
        """Its variants as the manifest lists them."""
        found = tuple(item for item in self.bundle.manifest.variants if item.kernel == self.entry.name)
        self.bundle.manifest.check_variants(found, f"{self.bundle.where}: manifest")
        return tuple(item for item in found if not self.deny.of(item))

    @cached_property
    def denied(self) -> tuple[tuple[VariantEntry, str], ...]:
        """Those of its variants that are out of service, each with the entry that says so."""
        found = (item for item in self.bundle.manifest.variants if item.kernel == self.entry.name)
        return tuple((item, entry) for item in found if (entry := self.deny.of(item)))

    @cached_property
    def typed(self) -> Mapping[tuple[str, ...], Mapping[Settings, Table]]:
        """Its variants arranged for choosing, by `fixed_types` and then by the settings that they were built with."""
        groups: dict[tuple[str, ...], dict[Settings, list[VariantEntry]]] = {}
        for item in self.variants:
            types = groups.setdefault(fixed_types(item.key.arguments), {})
            types.setdefault(self.settings(item), []).append(item)
        return {types: {held: self._arranged(items) for held, items in rows.items()} for types, rows in groups.items()}

    def settings(self, variant: VariantEntry) -> Settings:
        """The settings that a variant was built with, as far as they differ from those of a plain build."""
        own = ((name, value) for name, value in variant.key.options if influences.is_setting(name))
        return tuple(sorted({**influences.of_variables(self.bundle.manifest.environment), **dict(own)}.items()))

    def variant(self, key: VariantKey) -> VariantEntry:
        """The variant with this key."""
        return next(item for item in self.variants if item.key == key)

    def _arranged(self, items: Sequence[VariantEntry]) -> Table:
        options = self.bundle.manifest.options
        rows = [Variant(item.key, options[item.options]) for item in items]
        return Table.make(self.entry.name, self.entry.parameters, rows)


@dataclass(frozen=True, slots=True)
class Hit:
    """The variant that serves a request."""

    kernel: Prebuilt
    variant: VariantEntry


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing serves a request.

    Attributes:
        kernel: The kernel that was asked for.
        reason: Why, in words, with the nearest variant and what differs where there is one.
        nearest: Text of that variant's key, or None.
        problems: What differs from it.
    """

    kernel: str
    reason: str
    nearest: str | None = None
    problems: tuple[Problem, ...] = ()


class Shelf:
    """The kernels of some bundles.

    Args:
        bundles: The bundles, each for one target.
        triton: Version of the running Triton.
        mixed: Whether bundles that another version built may be used.
        deny: Binaries that are out of service.
    """

    def __init__(self, bundles: Sequence[Bundle], triton: str, *, mixed: bool, deny: Deny = Deny()) -> None:  # noqa: B008
        self.bundles, self.triton, self.mixed = tuple(bundles), triton, mixed
        self._kernels: dict[tuple[Target, Digest], list[Prebuilt]] = {}
        self._names: dict[str, Prebuilt] = {}
        self._choices: dict[tuple[str, Digest], dict[tuple[str, tuple[str, ...]], Chosen]] = {}
        for bundle in self.bundles:  # the first one counts
            target = bundle.manifest.target
            for entry in bundle.manifest.kernels:
                kernel = Prebuilt(bundle, entry, deny)
                self._kernels.setdefault((target, entry.source), []).append(kernel)
                self._names.setdefault(entry.name, kernel)
            for chosen in choices(bundle.provenance.get(TUNING, ""), f"{bundle.where}: {TUNING}"):
                known = self._choices.setdefault((str(target), chosen.source), {})
                known.setdefault((chosen.tuner, chosen.key), chosen)

    def kernels(self, name: str, source: Digest, target: Target) -> tuple[Prebuilt, ...] | Refusal:
        """The kernels with this source for a device of this target, or why there is none.

        They are several where two modules have equal kernels, or where several bundles have them; the one that is
        called `name` comes first, then those of the first bundle.
        """
        if not tritons.tested(self.triton, target.backend):
            known = tritons.for_people()
            return Refusal(name, f"{name}: Triton {self.triton} on {target} was not tested; tested are {known}")
        fitting = [bundle for bundle in self.bundles if bundle.manifest.target.refusal(target) is None]
        if not fitting:
            there = ", ".join(str(bundle.manifest.target) for bundle in self.bundles) or "none"
            return Refusal(name, f"{name}: no bundle for {target} (there are bundles for: {there})")
        targets = dict.fromkeys(bundle.manifest.target for bundle in fitting)
        found = [kernel for item in targets for kernel in self._kernels.get((item, source), ())]
        if not found:
            return Refusal(name, self._absent(name, source))
        usable = [kernel for kernel in found if self.mixed or kernel.built_by == self.triton]
        if not usable:
            where, built_by = found[0].bundle.where, found[0].built_by
            return Refusal(name, f"{name}: {where} was built by Triton {built_by}, this is Triton {self.triton}")
        return tuple(sorted(usable, key=lambda kernel: kernel.entry.name != name))

    def _absent(self, name: str, source: Digest) -> str:
        namesake = self._names.get(name)
        if namesake is None:
            return f"{name}: no bundle has this kernel"
        built = namesake.entry.source.short
        changed = "its source, or a value that it reads, is not what it was when it was built"
        return f"{name}: stale: {changed} (built {built}, installed {source.short})"

    def choose(
        self,
        kernels: Sequence[Prebuilt],
        arguments: Sequence[tuple[str, ArgumentSpec]],
        options: Mapping[str, Constant],
        settings: Mapping[str, Constant],
        values: Mapping[str, Any],
    ) -> Hit | Refusal:
        """The variant that serves every call of a specialisation.

        Args:
            kernels: Where to choose, in this order.
            arguments: The specialisation.
            options: All compile options in effect.
            settings: Knobs and variables that differ from those of a plain build.
            values: Values of the call at hand by parameter, as far as they are known; they explain, and decide nothing.
        """
        outcomes = []
        for kernel in kernels:
            outcomes.append(self._choose(kernel, arguments, options, settings, values))
            if isinstance(outcomes[-1], Hit):
                return outcomes[-1]
        return outcomes[0]

    def _choose(
        self,
        kernel: Prebuilt,
        arguments: Sequence[tuple[str, ArgumentSpec]],
        options: Mapping[str, Constant],
        settings: Mapping[str, Constant],
        values: Mapping[str, Any],
    ) -> Hit | Refusal:
        parameters, name = kernel.entry.parameters, kernel.entry.name
        specs = dict(arguments)
        if list(specs) != [parameter.name for parameter in parameters]:
            return Refusal(name, f"{name}: the parameters differ from those that were built")
        types = fixed_types(arguments)
        tables = kernel.typed.get(types)
        table = (tables or {}).get(tuple(sorted(settings.items())))
        denied = any(fixed_types(item.key.arguments) == types for item, _ in kernel.denied)
        if table is None and not denied and kernel.variants:
            return _other_settings(kernel, tables, settings) if tables else _other_types(kernel, arguments)
        if table is None:
            table = Table.make(name, parameters, ())
        skipped = OF_AN_INSTALLATION if kernel.built_by != self.triton else ()
        asked = {key: value for key, value in options.items() if key in table.options and key not in skipped}
        hardest = [_hardest(parameter, specs[parameter.name]) for parameter in parameters]
        outcome = choose(table, hardest, asked)
        if isinstance(outcome, Choice):
            return Hit(kernel, kernel.variant(table.variants[outcome.index].key))
        given = [values.get(parameter.name, value) for parameter, value in zip(parameters, hardest, strict=True)]
        told = choose(table, given, asked)
        miss = told if isinstance(told, Miss) else _of_the_class(outcome)
        return _refused(_with_denied(miss, kernel, arguments, hardest, asked))

    def choice(self, source: Digest, target: Target, key: tuple[str, ...], tuner: str) -> Chosen | None:
        """What this autotuner of a kernel chose for a tuning key, or None.

        Args:
            source: Digest of the kernel.
            target: The device's.
            key: The tuning key.
            tuner: What the autotuner is; a choice of an older trace does not say that, and fits each.
        """
        known = self._choices.get((str(target), source), {})
        return known.get((tuner, key)) or known.get(("", key))

    def usual(self, source: Digest, target: Target, tuner: str) -> Chosen | None:
        """What it chose most often, or None where nothing is known."""
        known = [choice for choice in self._known(source, target) if choice.tuner in ("", tuner)]
        counts = Counter(choice.config for choice in known)
        return min(known, key=lambda choice: (-counts[choice.config], choice.config)) if known else None

    def no_choice(self, source: Digest, target: Target, tuner: str) -> str:
        """Why an autotuner's choice is not known, in words."""
        known = [choice for choice in self._known(source, target) if choice.tuner not in ("", tuner)]
        if known:
            return "no configuration is known (what was recorded is the choice among other configurations)"
        return "no configuration is known"

    def _known(self, source: Digest, target: Target) -> list[Chosen]:
        return list(self._choices.get((str(target), source), {}).values())


def fixed_types(arguments: Sequence[tuple[str, ArgumentSpec]]) -> tuple[str, ...]:
    """Types of scalars, by parameter, that no wider type may stand in for: the kernel would compute something else.

    Triton itself picks among `_BY_VALUE` by an integer's value; the others come from annotations, or from a program
    that asks the compiler directly.
    """
    leaves = ((name, leaf) for name, spec in arguments for _, leaf in flatten(spec))
    return tuple(
        f"{name}: {leaf.type}"
        for name, leaf in leaves
        if isinstance(leaf, Runtime) and not leaf.is_pointer and leaf.type not in _BY_VALUE
    )


_BY_VALUE = ("u1", "i32", "i64", "u64")


def _other_types(kernel: Prebuilt, arguments: Sequence[tuple[str, ArgumentSpec]]) -> Refusal:
    asked, name = ", ".join(fixed_types(arguments)) or "none", kernel.entry.name
    built = " or ".join(sorted(", ".join(types) or "none" for types in kernel.typed))
    problem = Problem(f"{name}: scalar types", built, asked)
    reason = f"{name}: no prebuilt variant has the scalar types {asked} (built: {built})"
    return Refusal(name, reason, str(kernel.variants[0].key), (problem,))


def _of_the_class(miss: Miss) -> Miss:
    """A miss that no value of the call at hand explains: Triton asked for a class that is more general than the call.

    The values that stand for the class are made up, and no message may tell of them as if they were the caller's.
    """
    rows = tuple(
        (key, tuple(replace(item, given=_UNASKED.get(item.rule, item.given)) for item in refusals))
        for key, refusals in miss.refused
    )
    return Miss(miss.kernel, rows)


_UNASKED = {
    Rule.STORAGE: "storage of any size asked for (as under AMDGCN_USE_BUFFER_OPS=0)",
    Rule.ALIGNMENT: "any address asked for",
    Rule.DIVISIBLE: "any integer asked for",
}


def _with_denied(
    miss: Miss,
    kernel: Prebuilt,
    arguments: Sequence[tuple[str, ArgumentSpec]],
    values: Sequence[Value],
    options: Mapping[str, Constant],
) -> Miss:
    """The miss, which names the entry where a variant that is out of service would have served the request."""
    types, manifest = fixed_types(arguments), kernel.bundle.manifest
    rows = [(item, entry) for item, entry in kernel.denied if fixed_types(item.key.arguments) == types]
    variants = [Variant(item.key, manifest.options[item.options]) for item, _ in rows]
    return with_denied(miss, kernel.entry.parameters, variants, [entry for _, entry in rows], values, options)


def _other_settings(kernel: Prebuilt, tables: Mapping[Settings, Table], settings: Mapping[str, Constant]) -> Refusal:
    """Every prebuilt variant was built under another setting: the nearest, and what differs."""
    name = kernel.entry.name
    rows = [(tuple(influences.differences(name, dict(held), settings)), table) for held, table in tables.items()]
    problems, table = min(rows, key=lambda row: len(row[0]))
    words = "; ".join(
        f"{problem.where.partition(': ')[2]}: {problem.expected}; {problem.found}" for problem in problems
    )
    reason = (
        f"{name}: no variant was built with the settings of this process ({words}); "
        "set it as it was, or record and build with it"
    )
    return Refusal(name, reason, str(table.variants[0].key), problems)


def _refused(miss: Miss) -> Refusal:
    refusals = miss.refused[0][1] if miss.refused else ()
    problems = tuple(Problem(f"{miss.kernel}: {item.name}", item.built, item.given) for item in refusals)
    return Refusal(miss.kernel, str(miss), str(miss.nearest) if miss.nearest else None, problems)


def _hardest(parameter: Parameter, spec: ArgumentSpec) -> Value:
    """Of the values in a class, one that only variants which serve all of them accept."""
    if isinstance(spec, Group):
        return tuple(_hardest(parameter, item) for item in spec.items)
    if isinstance(spec, Fixed):
        value = spec.constant.value
        plain = isinstance(value, (bool, int, float)) or value is None
        return value if plain and not parameter.constexpr else spec.constant
    if spec.is_pointer:
        return Pointer(4096 if spec.divisible else 4100, spec.element, SMALL_STORAGE + (not spec.small))
    return _hardest_scalar(spec)


def _hardest_scalar(spec: Runtime) -> Value:
    if spec.type == "u1":
        return True
    if spec.type not in INTEGER_RANGES:
        return 0.5
    low, high = INTEGER_RANGES[spec.type]
    # The ends of a range fit no narrower type and, below zero, no unsigned one; both ends are even.
    end = low if low else high - 15
    return end if spec.divisible else end + 1
