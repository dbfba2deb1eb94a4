"""The outcome of `aotkern build`, for people and for machines. A build pays for no import of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotkern.audit.findings import Verdict
from aotkern.build.builder import Compilation, Published
from aotkern.report.plain import JSON, amount, document, limited, table
from aotkern.target import Target


def text(compilation: Compilation, published: Mapping[Target, Published]) -> str:
    """What a build made: a row for each target, failures with their reasons, and the time it took."""
    rows: list[Sequence[object]] = [("target", "variants", "objects", "code", "bundle", "file")]
    for target, result in compilation.targets.items():
        place = published[target]
        code = sum(entry.size for entry in result.manifest.objects)
        name = str(place.path) + ("" if place.changed else " (unchanged)")
        rows.append(
            (target, len(result.manifest.variants), len(result.objects), amount(code), amount(place.size), name)
        )
    parts = [table(rows, " rrrr")] if len(rows) > 1 else []
    if compilation.failures:
        parts.append(limited([f"failed: {error}" for error in compilation.failures], "failures"))
    spent = sum(compilation.seconds.values())
    parts.append(
        f"{len(compilation.seconds)} compiled, {compilation.reused} from the store, "
        f"{len(compilation.failures)} failed; {compilation.wall:.1f} s, of which {spent:.1f} s compiling"
    )
    notes = list(compilation.notes)
    if compilation.store_problem:
        notes.append(f"the local store could not be used ({compilation.store_problem})")
    parts += [limited([f"note: {note}" for note in notes], "notes")] if notes else []
    return "\n\n".join(parts)


def slowest(compilation: Compilation) -> str:
    """The variants that took longest to compile."""
    rows = [(f"{seconds:.2f} s", key) for key, seconds in compilation.slowest]
    return "slowest variants:\n" + table(rows, "r") if rows else "nothing was compiled"


def machine(compilation: Compilation, published: Mapping[Target, Published]) -> JSON:
    """The outcome of `aotkern build`."""
    rows = [
        {
            "target": str(target),
            "file": str(published[target].path),
            "digest": str(published[target].digest),
            "bytes": published[target].size,
            "changed": published[target].changed,
            "manifest": str(result.manifest.digest),
            "variants": len(result.manifest.variants),
            "objects": len(result.objects),
        }
        for target, result in compilation.targets.items()
    ]
    return document(
        "build",
        Verdict.FINDINGS if compilation.failures else Verdict.CLEAN,
        bundles=rows,
        failures=[{"key": error.key, "reason": error.reason} for error in compilation.failures],
        notes=list(compilation.notes),
        compiled=len(compilation.seconds),
        reused=compilation.reused,
        seconds=round(compilation.wall, 3),
        slowest=[{"key": key, "seconds": round(seconds, 3)} for key, seconds in compilation.slowest],
        store_problem=compilation.store_problem or None,
    )
