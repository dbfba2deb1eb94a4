"""From a request to bundles: plan, compile what the store does not have, assemble, publish.

`compile_targets` does the work and keeps the result in memory, which is what audits need; `publish` writes bundles. A
target with a declared variant that failed gets no bundle: a bundle holds everything that was declared for it or does
not exist. A build of what was recorded, or one that is asked to go on, leaves out what cannot be built, and names it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotkern.build import environment, revision
from aotkern.build.executor import EXECUTORS
from aotkern.build.origins import Moved, Origins
from aotkern.build.pool import STARTUP_SECONDS, Setting
from aotkern.build.registry import Source
from aotkern.build.store import Entry, Store
from aotkern.bundle import SUFFIX, Bundle, write
from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import BuildError, InputError, ProblemsError
from aotkern.manifest import KernelEntry, Launch, Manifest, ObjectEntry, Options, VariantEntry
from aotkern.spec import Constant, Parameter
from aotkern.spec.expand import DEFAULT_LIMIT
from aotkern.target import Target
from aotkern.trace import Unbuildable

SECONDS_PER_VARIANT = 300.0

REUSED = "reused"
"""The row of the provenance that says how many of a bundle's variants came from the local store: "3 of 24"."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to build.

    Attributes:
        sources: Kernel sources.
        targets: Targets, each once; none for all that are declared or recorded.
        inherited: The caller's environment; see `environment.INHERITED`.
        only: Patterns for the variants to build (see `spec.select`); empty for all that are declared.
        jobs: Worker processes.
        seconds: Longest time for one variant.
        limit: Most variants of one kernel for one target.
        line_info: Keep line information; see `environment.pinned`.
        store: The cache folder, in which the local store has one of its own; None to compile everything anew.
        reverse: Compile in reverse order; the result must not depend on it, and an audit asks for it.
        overrides: Variables of the workers that an audit changes, to show that the result does not depend on them.
        before: Bundles that this build would replace, if they are there: a hint that little may have changed. What they
            hold is read from the store while a first worker starts, and further workers wait for something to compile.
            A wrong hint costs time and changes nothing else.
        executor: Where to compile; a name of `executor.EXECUTORS`.
        scheduler: Address of the executor's scheduler, if it has one.
        partial: Leave out variants that fail, and build the others.
        device: The device on paper under which sources are imported, or None for no device.
        variables: Variables that kernel sources look at when they are imported; they are recorded in the manifest.
        moved: Work trees whose modules are to come from an export of a revision.
    """

    sources: tuple[Source, ...]
    targets: tuple[Target, ...]
    inherited: Mapping[str, str]
    jobs: int = 1
    only: tuple[str, ...] = ()
    seconds: float = SECONDS_PER_VARIANT
    limit: int = DEFAULT_LIMIT
    line_info: bool = False
    store: Path | None = None
    reverse: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Path, ...] = ()
    executor: str = "local"
    scheduler: str = ""
    partial: bool = False
    device: Target | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One variant done: what a progress display shows.

    Attributes:
        done: Variants done so far, those from the store included.
        total: Variants of the whole build.
        key: The variant.
        seconds: How long it took to compile; 0 from the store.
        error: Why it has no code object, or nothing.
    """

    done: int
    total: int
    key: str
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class TargetBuild:
    """All variants of one target, in memory.

    Attributes:
        manifest: What there is.
        objects: The code objects, by digest.
        facts: Provenance that every bundle of it states: the revision of its sources, and how many variants came from
            the store.
    """

    manifest: Manifest
    objects: Mapping[Digest, bytes]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Compilation:
    """The outcome of `compile_targets`.

    Attributes:
        targets: What was built, for each target without failures.
        failures: Variants that have no code object, with the reason; their targets are not built.
        left_out: What is not built beside what is, with the reason.
        asked: The targets that were asked for.
        seconds: Compile time of each variant that was compiled now.
        reused: How many came from the store.
        notes: What the declarations pay for without using it; see `lint`.
        wall: Seconds for everything.
        store_problem: Why the store could not be used, or nothing.
        origins: What the workers on this machine read.
        aside: Keys of variants that are declared and that the request's patterns do not fit.
    """

    targets: dict[Target, TargetBuild] = field(default_factory=dict)
    failures: list[BuildError] = field(default_factory=list)
    left_out: list[Unbuildable] = field(default_factory=list)
    asked: tuple[Target, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    reused: int = 0
    notes: tuple[str, ...] = ()
    wall: float = 0.0
    store_problem: str = ""
    origins: Origins = field(default_factory=Origins)
    aside: tuple[str, ...] = ()

    @property
    def slowest(self) -> tuple[tuple[str, float], ...]:
        """The ten variants that took longest."""
        return tuple(sorted(self.seconds.items(), key=lambda pair: -pair[1])[:10])


@dataclass(frozen=True, slots=True)
class Published:
    """One bundle in place.

    Attributes:
        path: The file.
        digest: Of the file.
        size: Bytes.
        changed: False when the same bundle was there already.
    """

    path: Path
    digest: Digest
    size: int
    changed: bool


def compile_targets(request: Request, progress: Callable[[Step], None] = lambda _: None) -> Compilation:
    """Compile everything that a request asks for.

    Raises:
        InputError: The sources cannot be imported, or their declarations are wrong.
        MissingToolError: Triton is not installed.
        BuildError: A kernel source failed in a way of its own.
        RemoteError: The scheduler cannot be reached, or was lost, or has no worker that can compile this.
    """
    return compile_all((request,), progress)


def compile_all(requests: Sequence[Request], progress: Callable[[Step], None] = lambda _: None) -> Compilation:
    """Compile what several requests ask for, into one bundle for each target.

    Args:
        requests: No two of them have a kernel for a target in common.
        progress: Told of every variant.

    Raises:
        AotkernError: As `compile_targets`.
    """
    started = time.perf_counter()
    result = Compilation()
    works = [_compiled(request, result, progress) for request in requests]
    asked = [target for work, request in zip(works, requests, strict=True) for target in work.targets(request)]
    result.asked = tuple(dict.fromkeys(asked))
    if any(request.partial for request in requests):
        failed = [Unbuildable(error.key, _target_of(error.key), error.reason, "compile") for error in result.failures]
        result.left_out, result.failures = [*result.left_out, *failed], []
    result.targets = _assembled(works, result, revision.describe(requests[0].sources[0], result.origins))
    result.wall = time.perf_counter() - started
    return result


def _compiled(request: Request, result: Compilation, progress: Callable[[Step], None]) -> _Work:
    """Compile one request."""
    settings = {**environment.pinned(line_info=request.line_info), **request.variables}
    setting = Setting(
        request.sources,
        settings,
        request.inherited,
        request.overrides,
        device=str(request.device) if request.device else "",
        patience=max(STARTUP_SECONDS, request.seconds),
        moved=request.moved,
    )
    store = Store(request.store.absolute()) if request.store else None
    memo = _memo(store) if store else None
    before = [path for path in request.before if store and path.exists()]
    with EXECUTORS[request.executor](setting, request.jobs, 1 if before else None, request.scheduler) as executor:
        ahead = _ahead(store, before) if store else {}
        targets = [str(target) for target in request.targets]
        plan, toolchain = executor.plan(targets, request.only, request.limit, memo)
        result.notes = (*result.notes, *plan["notes"])
        result.left_out += [Unbuildable(*row) for row in plan["left_out"]]
        result.aside = (*result.aside, *plan["aside"])
        work = _Work(plan, setting.settings, store, result, progress)
        if store:
            work.identify(toolchain())
        missing = work.reuse(ahead)
        executor.compile(missing[::-1] if request.reverse else missing, request.seconds, work.done, work.failed)
        if not store:
            work.identify(toolchain())
        result.origins.merge(executor.origins)
    if store:
        store.trim()
        result.store_problem = store.problem
    return work


def _target_of(key: str) -> str:
    return key.partition("[")[2].partition("]")[0]


def _assembled(works: Sequence[_Work], result: Compilation, facts: Mapping[str, str]) -> dict[Target, TargetBuild]:
    """The manifest of each target whose variants all have code objects; `facts` are of the sources."""
    broken = {_target_of(error.key) for error in result.failures}
    built: dict[Target, TargetBuild] = {}
    for target in result.asked:
        parts = [part for work in works if (part := work.part(target))]
        if str(target) in broken or not parts:
            continue
        kernels = [entry for part in parts for entry in part.kernels]
        objects = {digest: entry for part in parts for digest, entry in part.objects.items()}
        variants = [row for part in parts for row in part.variants]
        data = {digest: part.data[digest] for part in parts for digest in part.objects}
        first = works[0]
        manifest = Manifest.make(target, first.toolchain, first.settings, kernels, objects, variants)
        reused = sum(part.reused for part in parts)
        stated = {**facts, REUSED: f"{reused} of {len(variants)}"}
        built[target] = TargetBuild(manifest, data, stated)
    return built


def _memo(store: Store) -> Path | None:
    """Where the toolchain's digest is remembered: in the store, if it is one to be believed and written."""
    if store.problem:
        return None
    with contextlib.suppress(OSError):  # which the first entry reports
        store.prepare()
    return store.memo


def _ahead(store: Store, before: Sequence[Path]) -> dict[Digest, Entry]:
    """Entries of the store that earlier bundles were made of."""
    found: dict[Digest, Entry] = {}
    for path in before:
        with contextlib.suppress(ProblemsError):  # damaged or older: nothing is read ahead
            for variant in Bundle.open(path).manifest.variants:
                if variant.content not in found and (entry := store.get(variant.content)):
                    found[variant.content] = entry
    return found


@dataclass(frozen=True)
class _Part:
    """What one request gives to the bundle of a target."""

    kernels: list[KernelEntry]
    objects: dict[Digest, ObjectEntry]
    variants: list[tuple[VariantEntry, Options]]
    data: Mapping[Digest, bytes]
    reused: int


class _Work:
    """The variants of a plan on their way from "planned" to "has a code object"."""

    def __init__(
        self,
        plan: dict[str, Any],
        settings: Mapping[str, str],
        store: Store | None,
        result: Compilation,
        progress: Callable[[Step], None],
    ) -> None:
        self._plan, self.settings, self._store, self._result, self._progress = plan, settings, store, result, progress
        self.toolchain: dict[str, str] = {}
        self._content: dict[str, Digest] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._data: dict[Digest, bytes] = {}
        self._reused: set[str] = set()
        for key, reason in plan["failures"]:
            self.failed(BuildError(key, reason))

    def identify(self, toolchain: dict[str, str]) -> None:
        """Say what compiles; with that each variant has its content digest."""
        self.toolchain = toolchain
        sources = {name: dumps(source) for name, _, source in self._plan["kernels"]}
        options = [dumps(known) for known in self._plan["options"]]
        fixed = f"{dumps(dict(self.settings))},{dumps(toolchain)}"
        for key, place in self._plan["variants"]:
            # The canonical text of [source, key, options, settings, toolchain], of which most parts recur.
            text = f"[{sources[key.partition('[')[0]]},{dumps(key)},{options[place]},{fixed}]"
            self._content[key] = Digest.of(text.encode())

    def reuse(self, ahead: Mapping[Digest, Entry]) -> list[str]:
        """Take what was read ahead or the store has; return the keys that are left to compile."""
        missing: list[str] = []
        for key, _ in self._plan["variants"]:
            content = self._content.get(key)
            entry = (ahead.get(content) or self._store.get(content)) if self._store and content else None
            if entry is None:
                missing.append(key)
                continue
            self._reused.add(key)
            self._keep(key, entry.facts, entry.data, 0.0)
        self._result.reused += len(self._reused)
        return missing

    def done(self, key: str, answer: dict[str, Any], data: bytes) -> None:
        if Digest.of(data) != Digest.parse(answer["digest"]):
            self.failed(BuildError(key, "the code object changed between the worker and here"))
            return
        if not answer.pop("stages", ()):
            self.failed(BuildError(key, "the compiler did not run for it: its worker counted no stage"))
            return
        seconds = answer["microseconds"] / 1e6
        self._result.seconds[key] = seconds
        if self._store:
            self._store.put(self._content[key], answer, data)
        self._keep(key, answer, data, seconds)

    def failed(self, error: BuildError) -> None:
        self._result.failures.append(error)
        self._tell(error.key, 0.0, error.reason)

    def _keep(self, key: str, facts: dict[str, Any], data: bytes, seconds: float) -> None:
        self._facts[key] = facts
        self._data[Digest.parse(facts["digest"])] = data
        self._tell(key, seconds)

    def _tell(self, key: str, seconds: float, error: str = "") -> None:
        total = len(self._plan["variants"]) + len(self._plan["failures"])
        self._progress(Step(len(self._facts) + len(self._result.failures), total, key, seconds, error))

    def targets(self, request: Request) -> tuple[Target, ...]:
        """The targets that the request asks for; of one that names none, those of its plan."""
        return request.targets or tuple(map(Target.parse, self._plan["targets"]))

    def part(self, target: Target) -> _Part | None:
        """What there is for a target, or None."""
        mine = [key for key in self._facts if f"[{target}](" in key]
        if not mine:
            return None
        names = {key.partition("[")[0] for key in mine}
        kernels = [
            KernelEntry(name, tuple(Parameter(**row) for row in parameters), Digest.parse(source))
            for name, parameters, source in self._plan["kernels"]
            if name in names
        ]
        objects, variants = self._entries(mine)
        reused = len(self._reused.intersection(mine))
        return _Part(kernels, objects, variants, self._data, reused)

    def _entries(self, keys: list[str]) -> tuple[dict[Digest, ObjectEntry], list[tuple[VariantEntry, Options]]]:
        objects: dict[Digest, ObjectEntry] = {}
        variants: list[tuple[VariantEntry, Options]] = []
        known = [{name: Constant(text) for name, text in row.items()} for row in self._plan["options"]]
        options = {key: known[place] for key, place in self._plan["variants"]}
        for key in keys:
            facts = self._facts[key]
            digest = Digest.parse(facts["digest"])
            objects.setdefault(digest, ObjectEntry(digest, facts["size"], facts["code"]))
            entry = VariantEntry(key, self._content[key], digest, Launch(**facts["launch"]), "")
            variants.append((entry, options[key]))
        return objects, variants


def place(out: Path, name: str, target: Target) -> Path:
    """Where the bundle of a target goes."""
    return out / f"{name}.{target.slug}{SUFFIX}"


def publish(build: TargetBuild, out: Path, name: str, provenance: Mapping[str, str]) -> Published:
    """Write the bundle of one target as `NAME.TARGET.aotk`; an equal one that is there already stays untouched.

    Raises:
        InputError: `out` cannot be written.
        IntegrityError: What would be written does not verify.
    """
    path = place(out, name, build.manifest.target)
    facts = {**build.facts, **provenance}
    try:
        there = Bundle.open(path)
        if Digest.of(there.manifest_bytes()) == build.manifest.digest and _says(there.provenance, facts):
            return Published(path, there.digest, len(there.data), changed=False)
    except ProblemsError:
        pass  # absent, older or damaged: it is replaced
    try:
        digest = write(path, build.manifest, build.objects, facts)
    except OSError as error:
        raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error
    return Published(path, digest, path.stat().st_size, changed=True)


def _says(there: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    """Whether a bundle's provenance is what would be written, or states fewer variants from the store."""
    compiled, now = (_reused(found) for found in (there, facts))
    others = [{**found, REUSED: ""} for found in (there, facts)]
    return others[0] == others[1] and compiled <= now


def _reused(provenance: Mapping[str, str]) -> float:
    """How many variants came from the store; more than any number where nothing is said."""
    number = provenance.get(REUSED, "").partition(" ")[0]
    return int(number) if number.isdecimal() else float("inf")
