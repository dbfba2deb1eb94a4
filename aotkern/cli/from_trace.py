"""What `aotkern build` builds: declared kernels, or the rows of traces. A translation of options into a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotkern.build import sources, staleness, traceplan
from aotkern.build.builder import Compilation
from aotkern.build.registry import Source
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.manifest import Manifest
from aotkern.target import Target
from aotkern.trace import TUNING, Trace, Unbuildable, merge


@dataclass(frozen=True, slots=True)
class Part:
    """What is built under one device on paper, or under none.

    Attributes:
        sources: For the workers.
        targets: For what; none for all that is declared.
        device: The device.
    """

    sources: tuple[Source, ...]
    targets: tuple[Target, ...]
    device: Target | None = None


@dataclass(frozen=True)
class Task:
    """What to build, and what goes with it.

    Attributes:
        parts: Each to be built by itself, all into one bundle for each target.
        label: Name of the bundles, unless the user gives one.
        facts: Provenance that all bundles share.
        trace: What was recorded and is to be built; None for declared kernels.
        plan: The variants to build of it.
        left_out: What of the recording is not built.
        older: Bundles that show the code of stale kernels.
    """

    parts: tuple[Part, ...]
    label: str
    facts: Mapping[str, str]
    trace: Trace | None = None
    plan: Trace = field(default_factory=Trace)
    left_out: tuple[Unbuildable, ...] = ()
    older: Mapping[Target, Manifest] = field(default_factory=dict)

    def provenance(self, target: Target) -> dict[str, str]:
        """The provenance of one bundle, with the autotuners' choices for its target."""
        choices = traceplan.tuning(self.trace.chosen, target) if self.trace else ""
        return {**self.facts, **({TUNING: choices} if choices else {})}

    def finish(self, compilation: Compilation) -> None:
        """Hold what was built against what was recorded, and add what people should know of the trace."""
        if self.trace is None:
            return
        if self.older:
            staleness.refuse_unproved(compilation, self.plan, self.older)
        compilation.left_out = list(dict.fromkeys((*self.left_out, *compilation.left_out)))
        told = (*traceplan.notes(self.trace), *traceplan.carried(self.trace, compilation.asked))
        compilation.notes = tuple(dict.fromkeys((*compilation.notes, *told)))


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user says about a build of traces.

    Attributes:
        targets: For what to build; none for all that were recorded.
        widen: Add general variants.
        generated: Execute the text of kernels that were generated at run time, and build them.
        paper: Take choices of autotuners that were made on paper.
        exclude: Patterns of kernel names to leave out.
        older: Bundles that show the code of stale kernels.
        paths: Folders in which modules of the trace stand; none for the current one.
    """

    targets: tuple[Target, ...] = ()
    widen: bool = False
    generated: bool = False
    paper: bool = False
    exclude: Sequence[str] = ()
    older: Sequence[Path] = ()
    paths: Sequence[Path] = ()


def declared(kernels: tuple[str, ...], targets: tuple[Target, ...]) -> Task:
    """A build of declared kernels."""
    found = sources.parse(kernels)
    return Task((Part(found, targets),), sources.label(found), sources.compressor())


def traced(files: Sequence[Path], folder: Path, wishes: Wishes) -> Task:
    """A build of what was recorded.

    Args:
        files: The traces.
        folder: An empty folder for the plans that the workers read.
        wishes: What the user says.

    Raises:
        InputError: A trace cannot be read, or nothing is left to build.
        IntegrityError: A file is no trace.
    """
    _search(wishes.paths)
    recorded = merge(Trace.parse(_read(path), str(path)) for path in files)
    kept = traceplan.without_excluded(recorded, wishes.exclude)
    text = kept if wishes.generated else traceplan.without_generated(kept)
    trace = text if wishes.paper else traceplan.without_paper(text)
    targets = wishes.targets or traceplan.recorded_targets(kept)
    left_out = tuple(_on_paper(row, kept) for row in _left_out(trace, targets))
    passes = traceplan.passes(trace, targets, widen=wishes.widen)
    if not passes:
        reasons = "; ".join(f"{row.kernel}: {row.reason}" for row in left_out) or "no row of a variant"
        raise InputError.one(", ".join(map(str, files)), "something that can be built", reasons[:400])
    parts = []
    for number, one in enumerate(passes):
        path = folder / f"plan{number}.jsonl"
        path.write_bytes(one.trace.to_bytes())
        source = Source("trace", path, allow_stale=bool(wishes.older), generated=wishes.generated)
        mine = {row.key.target for row in one.trace.recorded}
        parts.append(Part((source,), tuple(target for target in targets if target in mine), one.device))
    manifests = {bundle.manifest.target: bundle.manifest for bundle in map(Bundle.open, wishes.older)}
    facts = {"trace": str(Digest.of(recorded.to_bytes())), **sources.compressor()}
    plan = merge(one.trace for one in passes)
    name = files[0].name.partition(".")[0]
    return Task(tuple(parts), name, facts, trace, plan, left_out, manifests)


def _left_out(trace: Trace, targets: Sequence[Target]) -> Iterator[Unbuildable]:
    """What was recorded and is not built for any of the targets, or not for the one that it was recorded on."""
    asked = set(map(str, targets))
    there = {row.key.kernel for row in trace.recorded}
    for row in (*trace.unbuildable, *traceplan.untuned(trace)):
        if row.target in asked or row.kernel not in there or row.kind == "untuned":
            yield row


def _on_paper(row: Unbuildable, trace: Trace) -> Unbuildable:
    """Say of an autotuner that chose on paper that its choice is there, and is not used."""
    if row.kind == "untuned" and any(choice.paper for choice in trace.chosen if choice.kernel == row.kernel):
        reason = "its autotuner chose on paper, where times are made up; --paper-choices takes such a choice"
        return replace(row, reason=reason)
    return row


def _search(paths: Sequence[Path]) -> None:
    """Where modules of a trace are looked for before anywhere else."""
    for path in reversed([os.path.abspath(path) for path in paths] or [os.getcwd()]):  # noqa: PTH100, PTH109
        if path not in map(os.path.abspath, sys.path):
            sys.path.insert(0, path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError.one(str(path), "a trace that can be read", error.strerror or str(error)) from error
