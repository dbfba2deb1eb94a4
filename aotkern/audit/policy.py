"""The policy of a release gate: which audits must pass, on what, within which bounds. Read from TOML.

Nothing is implied: a step that is not in the file is not run, and each step that is there says what it works on.
Unknown names are errors, because a misspelt bound would bind nothing. The JSON schema of the file is shipped as
`policy.schema.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aotkern import tomlfile
from aotkern.audit.replay.drive import PHASES
from aotkern.audit.resources import BOUNDS, Rule
from aotkern.errors import InputError, Problem, ProblemsError
from aotkern.fields import Fields
from aotkern.target import Target

VERSION = 1

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class IdentityStep:
    """A bundle that must be what its golden manifest says; `only` some variants of it, if patterns are given."""

    bundle: Path
    baseline: Path
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReproducibleStep:
    """Kernels that are built twice; `kernels` as on the command line, empty for the shipped ones."""

    kernels: tuple[str, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class ResourcesStep:
    """A bundle that is held against rules, and whose changes against a baseline are listed."""

    bundle: Path
    baseline: Path | None
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class CoverageStep:
    """A bundle that must have a variant for every call of a domain, a TOML file."""

    bundle: Path
    domain: Path


@dataclass(frozen=True, slots=True)
class NumericsStep:
    """An AMD bundle whose code is executed by the emulator, against references.

    Attributes:
        bundle: The bundle.
        cases: A module, or a file by path, with the inputs and references of each kernel.
        seed: Inputs and the choice of variants are drawn from it.
        most: Most code objects of one kernel; None for all.
        orders: Orders in which waves run, one after another; empty for the usual ones.
        coverage: Least share of its instructions that the cases of each code object must execute; None for no bound.
        limit: Most wave instructions of a launch; None for the emulator's own limit.
        timeout: Most seconds of a launch; None for as long as it takes.
    """

    bundle: Path
    cases: str
    seed: int
    most: int | None = None
    orders: tuple[str, ...] = ()
    coverage: float | None = None
    limit: int | None = None
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """A workload that is served on paper, of which each phase may compile only so much.

    Attributes:
        workload: The workload, a TOML file.
        arm: Which of its arms.
        bundle: The prebuilt variants of a `bundle` arm; None for Triton's JIT.
        compiles: Most compiles by phase; phases that are not named are counted and not judged.
    """

    workload: Path
    arm: str
    bundle: Path | None
    compiles: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JitStep:
    """A program that is run and may compile only what a budget allows.

    Attributes:
        command: The program and its arguments, run without a shell.
        budget: What each phase allows, a TOML file.
        seconds: When the program is ended, and nothing could be told.
        ready_pattern: The phase `serving` begins when a line of the output matches this regular expression.
        ready_file: Likewise, when this file exists. Without either, the program marks its phases itself.
        bundles: Prebuilt variants, to say of each compile whether one would have served it.
    """

    command: tuple[str, ...]
    budget: Path
    seconds: int
    ready_pattern: str | None = None
    ready_file: Path | None = None
    bundles: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The steps of a gate, in the order in which they run.

    Attributes:
        sources: Kernel files and folders, for reports that point at lines; nothing is judged by them.
        verify: Bundles of which every byte is checked.
        identity: Comparisons with golden manifests.
        resources: Bounds on registers, LDS, scratch and instructions.
        reproducible: Rebuilds.
        coverage: Domains of calls that must find a variant.
        numerics: Bundles whose code must compute the right numbers.
        replay: Workloads that must be served without compiling.
        jit: Programs that must not compile beyond a budget.
    """

    sources: tuple[str, ...] = field(default=(), kw_only=True)
    verify: tuple[Path, ...] = ()
    identity: tuple[IdentityStep, ...] = ()
    resources: tuple[ResourcesStep, ...] = ()
    reproducible: tuple[ReproducibleStep, ...] = ()
    coverage: tuple[CoverageStep, ...] = ()
    numerics: tuple[NumericsStep, ...] = ()
    replay: tuple[ReplayStep, ...] = ()
    jit: tuple[JitStep, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Read a policy; paths in it are relative to the folder from which the gate is run.

        Raises:
            InputError: The file cannot be read, or anything in it is wrong; all problems at once.
        """
        value = tomlfile.read(path, "a policy", advice="`aotkern audit --init` writes one")
        return cls.from_values(value, str(path))

    @classmethod
    def from_values(cls, value: Mapping[str, Any], where: str) -> Policy:
        """As `read`, from parsed TOML."""
        if wrong := tomlfile.version_problems(value, where, VERSION):
            raise InputError(wrong)
        return _Reader(where).policy(value)


_STEPS = ("verify", "identity", "resources", "reproducible", "coverage", "numerics", "replay", "jit")
_READY = ("ready_pattern", "ready_file")
_NUMERICS = ("most", "orders", "coverage", "limit", "timeout")
ORDERS = ("lockstep", "forward", "reverse", "random", "races", "latest")
"""Orders in which a numerics step may run waves."""


class _Reader:
    """Gathers every problem of one policy file."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.problems: list[Problem] = []

    def policy(self, value: Mapping[str, Any]) -> Policy:
        top = self._table(value, "", ("version",), ("sources", *_STEPS))
        policy = Policy(
            sources=self._texts(top, "sources") if top.has("sources") else (),
            verify=self._verify(top) if top.has("verify") else (),
            identity=tuple(map(self._identity, self._tables(top, "identity", ("bundle", "baseline"), ("only",)))),
            resources=tuple(map(self._resources, self._tables(top, "resources", ("bundle",), ("baseline", "rule")))),
            reproducible=tuple(map(self._reproducible, self._tables(top, "reproducible", ("kernels", "targets")))),
            coverage=tuple(map(self._coverage, self._tables(top, "coverage", ("bundle", "domain")))),
            numerics=tuple(map(self._numerics, self._tables(top, "numerics", ("bundle", "cases", "seed"), _NUMERICS))),
            replay=tuple(map(self._replay, self._tables(top, "replay", ("workload", "arm", "compiles"), ("bundle",)))),
            jit=tuple(map(self._jit, self._tables(top, "jit", ("command", "budget", "seconds"), (*_READY, "bundles")))),
        )
        if not self.problems and not any(getattr(policy, step) for step in _STEPS):
            self.problems.append(Problem(self.where, f"at least one step ({', '.join(_STEPS)})", "none"))
        if self.problems:
            raise InputError(self.problems)
        return policy

    def _verify(self, top: Fields) -> tuple[Path, ...]:
        form = self._table(top.get("verify"), "verify", ("bundles",))
        bundles = self._texts(form, "bundles")
        if form.get("bundles") == []:
            self.problems.append(Problem(f"{form.where}.bundles", "at least one bundle", "none"))
        return tuple(map(Path, bundles))

    def _identity(self, form: Fields) -> IdentityStep:
        only = self._texts(form, "only") if form.has("only") else ()
        return IdentityStep(Path(form.text("bundle")), Path(form.text("baseline")), only)

    def _reproducible(self, form: Fields) -> ReproducibleStep:
        targets = tuple(self._parsed(form, "targets", text) for text in self._texts(form, "targets"))
        if form.get("targets") == []:
            self.problems.append(Problem(f"{form.where}.targets", "at least one target", "none"))
        return ReproducibleStep(self._texts(form, "kernels"), tuple(t for t in targets if t))

    def _coverage(self, form: Fields) -> CoverageStep:
        return CoverageStep(Path(form.text("bundle")), Path(form.text("domain")))

    def _numerics(self, form: Fields) -> NumericsStep:
        counts = {name: form.count(name) for name in ("most", "limit", "timeout") if form.has(name)}
        for name in counts:
            if form.get(name) == 0:
                self.problems.append(Problem(f"{form.where}.{name}", "at least one", "0"))
        return NumericsStep(
            Path(form.text("bundle")),
            form.text("cases"),
            form.count("seed"),
            orders=self._orders(form) if form.has("orders") else (),
            coverage=self._share(form, "coverage") if form.has("coverage") else None,
            **counts,
        )

    def _orders(self, form: Fields) -> tuple[str, ...]:
        orders, where = self._texts(form, "orders"), f"{form.where}.orders"
        if form.get("orders") == []:
            self.problems.append(Problem(where, "at least one order", "none"))
        unknown = [order for order in orders if order not in ORDERS]
        self.problems += [Problem(where, f"one of {', '.join(ORDERS)}", repr(order)[:100]) for order in unknown]
        if len(set(orders)) < len(orders):
            self.problems.append(Problem(where, "each order once", ", ".join(orders)[:200]))
        return orders

    def _share(self, form: Fields, name: str) -> float | None:
        value = form.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
        self.problems.append(Problem(f"{form.where}.{name}", "a number above 0 and up to 1", repr(value)[:100]))
        return None

    def _replay(self, form: Fields) -> ReplayStep:
        value = form.get("compiles") if form.has("compiles") else {PHASES[0]: 0}  # what is missing was noted already
        counts = self._table(value, f"{self._inside(form)}.compiles", (), PHASES)
        if form.get("compiles") == {}:
            self.problems.append(Problem(counts.where, f"a bound for one of {', '.join(PHASES)}", "none"))
        compiles = {phase: counts.count(phase) for phase in PHASES if counts.has(phase)}
        bundle = Path(form.text("bundle")) if form.has("bundle") else None
        return ReplayStep(Path(form.text("workload")), form.text("arm"), bundle, compiles)

    def _jit(self, form: Fields) -> JitStep:
        if form.get("command") == []:
            self.problems.append(Problem(f"{form.where}.command", "a program and its arguments", "none"))
        if form.get("seconds") == 0:
            self.problems.append(Problem(f"{form.where}.seconds", "at least one second", "0"))
        pattern = form.text("ready_pattern") if form.has("ready_pattern") else None
        file = Path(form.text("ready_file")) if form.has("ready_file") else None
        return JitStep(
            self._texts(form, "command"),
            Path(form.text("budget")),
            form.count("seconds"),
            self._expression(form, "ready_pattern", pattern),
            file,
            tuple(map(Path, self._texts(form, "bundles") if form.has("bundles") else ())),
        )

    def _expression(self, form: Fields, name: str, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            self.problems.append(Problem(f"{form.where}.{name}", "a regular expression", f"{text!r}: {error}"[:200]))
        return text

    def _resources(self, form: Fields) -> ResourcesStep:
        baseline = Path(form.text("baseline")) if form.has("baseline") else None
        rows = self._tables(form, "rule", ("kernel", "target"), ("variants", "instructions", *BOUNDS))
        rules = tuple(rule for row in rows for rule in self._rule(row))
        if not rows and baseline is None:
            self.problems.append(Problem(form.where, "a rule to hold or a baseline to compare with", "neither"))
        return ResourcesStep(Path(form.text("bundle")), baseline, rules)

    def _rule(self, form: Fields) -> Iterator[Rule]:
        target = self._parsed(form, "target", form.text("target")) if form.has("target") else None
        bounds = {name: form.count(name) for name in BOUNDS if form.has(name)}
        instructions = self._texts(form, "instructions") if form.has("instructions") else ()
        variants = form.text("variants") if form.has("variants") else "*"
        if not bounds and not instructions:
            self.problems.append(Problem(form.where, f"a bound ({', '.join(BOUNDS)}) or instructions", "neither"))
        if target:
            yield Rule(form.text("kernel"), target, bounds, variants, instructions)

    def _table(self, value: object, name: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> Fields:
        where = f"{self.where}: {name}" if name else self.where
        known = (*required, *optional)
        if not isinstance(value, dict):
            self.problems.append(Problem(where, f"a table with {', '.join(known)}", type(value).__name__))
            return Fields({}, where, (), self.problems)
        inside = f"{where}." if name else f"{where}: "
        for key in value:
            if key not in known:
                self.problems.append(Problem(f"{inside}{key}"[:200], f"one of {', '.join(known)}", "an unknown name"))
        missing = [key for key in required if key not in value]
        self.problems.extend(Problem(f"{inside}{key}", "a value", "nothing") for key in missing)
        present = {key: item for key, item in value.items() if key in known}
        return Fields(present, where, tuple(present), self.problems)

    def _tables(
        self, form: Fields, name: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> tuple[Fields, ...]:
        if not form.has(name):
            return ()
        value = form.get(name)
        prefix = self._inside(form)
        label = f"{prefix}.{name}" if prefix else name
        if not isinstance(value, list):
            self.problems.append(Problem(f"{self.where}: {label}", f"tables [[{label}]]", type(value).__name__))
            return ()
        return tuple(self._table(item, f"{label}[{n}]", required, optional) for n, item in enumerate(value))

    def _inside(self, form: Fields) -> str:
        """Where a table stands in the file."""
        return form.where.removeprefix(self.where).removeprefix(": ")

    def _texts(self, form: Fields, name: str) -> tuple[str, ...]:
        value = form.get(name)
        if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
            return tuple(value)
        if form.has(name):
            found = repr(value)[:100]
            self.problems.append(Problem(f"{form.where}.{name}", "a list of texts that are not empty", found))
        return ()

    def _parsed(self, form: Fields, name: str, text: str) -> Target | None:
        try:
            return Target.parse(text, f"{form.where}.{name}")
        except ProblemsError as error:
            self.problems.extend(error.problems)
            return None
