"""What `aotkern build` builds: declared kernels, or the rows of traces. A translation of options into a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotkern.build import sources, staleness, traceplan
from aotkern.build.builder import Compilation
from aotkern.build.registry import Source
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.manifest import Manifest
from aotkern.target import Target
from aotkern.trace import TUNING, Trace, merge


@dataclass(frozen=True)
class Task:
    """What to build, and what goes with it.

    Attributes:
        sources: For the workers.
        label: Name of the bundles, unless the user gives one.
        facts: Provenance that all bundles share.
        trace: What was recorded; None for declared kernels.
        plan: The variants to build of it.
        older: Bundles that show the code of stale kernels.
    """

    sources: tuple[Source, ...]
    label: str
    facts: Mapping[str, str]
    trace: Trace | None = None
    plan: Trace = field(default_factory=Trace)
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
        compilation.notes = (*compilation.notes, *traceplan.notes(self.trace))


def declared(kernels: tuple[str, ...]) -> Task:
    """A build of declared kernels."""
    found = sources.parse(kernels)
    return Task(found, sources.label(found), sources.compressor())


def traced(
    files: Sequence[Path],
    targets: Sequence[Target],
    folder: Path,
    *,
    widen: bool,
    generated: bool,
    exclude: Sequence[str],
    older: Sequence[Path],
) -> Task:
    """A build of what was recorded.

    Args:
        files: The traces.
        targets: For what to build.
        folder: An empty folder for the plan that the workers read.
        widen: Add general variants.
        generated: Execute the text of kernels that were generated at run time, and build them.
        exclude: Patterns of kernel names.
        older: Bundles that show the code of stale kernels.

    Raises:
        InputError: A trace cannot be read, or nothing is left to build.
        IntegrityError: A file is no trace.
    """
    if os.getcwd() not in map(os.path.abspath, sys.path):  # noqa: PTH109 - modules of a trace may stand right here
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    trace = merge(Trace.parse(_read(path), str(path)) for path in files)
    trace = trace if generated else traceplan.without_generated(trace)
    plan = traceplan.planned(trace, targets, widen=widen, exclude=exclude)
    if not plan.recorded:
        reasons = "; ".join(traceplan.notes(trace)) or "no row of a variant"
        raise InputError.one(", ".join(map(str, files)), "something that can be built", reasons[:400])
    path = folder / "plan.jsonl"
    path.write_bytes(plan.to_bytes())
    manifests = {bundle.manifest.target: bundle.manifest for bundle in map(Bundle.open, older)}
    facts = {"trace": str(Digest.of(trace.to_bytes())), **sources.compressor()}
    source = Source("trace", path, allow_stale=bool(older))
    return Task((source,), files[0].name.partition(".")[0], facts, trace, plan, manifests)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError.one(str(path), "a trace that can be read", error.strerror or str(error)) from error
