"""The outcome of `aotkern build`, for people and for machines. A build pays for no import of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from aotkern.audit.findings import Verdict
from aotkern.build.builder import Compilation, Published
from aotkern.errors import MachineError
from aotkern.report.plain import JSON, amount, document, limited, table
from aotkern.target import Target


def verdict(compilation: Compilation) -> Verdict:
    """Clean when everything that was asked for was built; could not tell where only the machine stood in the way."""
    if compilation.failures and all(isinstance(error, MachineError) for error in compilation.failures):
        return Verdict.UNKNOWN
    return Verdict.FINDINGS if compilation.failures or compilation.left_out else Verdict.CLEAN


def text(compilation: Compilation, published: Mapping[Target, Published], *, slowest: bool = False) -> str:
    """What a build made: a row for each target, failures with their reasons, the time it took, and what is not there.

    Args:
        compilation: The build.
        published: Its bundles.
        slowest: Also list the variants that took longest.
    """
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
    parts += [slowest_variants(compilation)] if slowest else []
    parts += list(_missing(compilation))
    return "\n\n".join(parts)


def _missing(compilation: Compilation) -> Iterator[str]:
    """What is not in the bundles, and in the last line how much that is."""
    rows = compilation.left_out
    if rows:
        named = [f"left out: {row.kernel}{f' ({row.target})' if row.target else ''}: {row.reason}" for row in rows]
        yield limited(named, "that are left out")
        kinds = Counter(row.kind for row in rows)
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"incomplete: {len(rows)} kernels or variants are left out ({counted})"
    elif compilation.failures:
        missing = [str(target) for target in compilation.asked if target not in compilation.targets]
        yield f"incomplete: {len(compilation.failures)} variants failed; no bundle for {', '.join(missing)}"


def slowest_variants(compilation: Compilation) -> str:
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
        verdict(compilation),
        bundles=rows,
        failures=[{"key": error.key, "reason": error.reason} for error in compilation.failures],
        left_out=[
            {"what": row.kernel, "target": row.target, "kind": row.kind, "reason": row.reason}
            for row in compilation.left_out
        ],
        notes=list(compilation.notes),
        compiled=len(compilation.seconds),
        reused=compilation.reused,
        seconds=round(compilation.wall, 3),
        slowest=[{"key": key, "seconds": round(seconds, 3)} for key, seconds in compilation.slowest],
        store_problem=compilation.store_problem or None,
    )
