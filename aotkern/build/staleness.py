"""Whether kernels whose source changed since they were recorded still have the code of then: proved by their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aotkern.build.builder import Compilation
from aotkern.errors import BuildError
from aotkern.manifest import Manifest
from aotkern.target import Target
from aotkern.trace import Trace


def refuse_unproved(compilation: Compilation, plan: Trace, older: Mapping[Target, Manifest]) -> None:
    """Turn every variant of a stale kernel whose code is not proved equal into a failure of its target.

    Args:
        compilation: What was built; failures are added to it, and targets with failures taken out.
        plan: What was asked for, with the digests of the sources that were recorded.
        older: For each target a manifest that was built from the recorded sources.
    """
    sources: dict[str, set[str]] = {}
    for row in plan.recorded:
        sources.setdefault(row.key.kernel, set()).add(str(row.source))
    for target, build in list(compilation.targets.items()):
        failures = list(_unproved(build.manifest, sources, older.get(target)))
        compilation.failures += failures
        if failures:
            del compilation.targets[target]


def _unproved(manifest: Manifest, sources: Mapping[str, set[str]], older: Manifest | None) -> Iterator[BuildError]:
    stale = {kernel.name for kernel in manifest.kernels if {str(kernel.source)} != sources[kernel.name]}
    for variant in manifest.variants:
        if variant.kernel not in stale:
            continue
        before = older.by_text.get(variant.text) if older else None
        if older is None or before is None:
            yield BuildError(variant.text, f"stale, and no bundle for {manifest.target} shows its recorded code")
        elif {str(older.kernel(variant.kernel).source)} != sources[variant.kernel]:
            yield BuildError(variant.text, "stale, and the older bundle was built from another source, too")
        elif before.object != variant.object:
            yield BuildError(variant.text, "stale: its code differs from the code that was recorded")
