"""Does a rebuild give the same bytes? The same sources, compiled again under circumstances that must not matter.

Two builds, both without the local store and with private, empty Triton caches: one plain, one with every axis changed
at once. When their bundles are equal byte for byte, no axis matters. When they are not, each axis is changed alone, and
those that break the bytes are named.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotkern.audit.findings import Finding, Verdict
from aotkern.build import shipping
from aotkern.build.builder import Compilation, Request, Step, compile_targets
from aotkern.build.revision import located
from aotkern.bundle import encode
from aotkern.digest import Digest
from aotkern.workfolder import work_folder

AUDIT = "reproducible"

Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class ReproducibleReport:
    """The outcome.

    Attributes:
        digests: Of the bundle of each target, from the first build.
        broken: For each target that differs, the axes that break it when changed alone.
        axes: All axes that were changed.
        obstacle: Why nothing was proved, or nothing.
        variants: How many variants were compiled in each build.
        seconds: How long each variant took to compile in the first build.
    """

    digests: Mapping[str, Digest]
    broken: Mapping[str, tuple[str, ...]]
    axes: tuple[str, ...]
    obstacle: str
    variants: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Clean when at least one bundle was rebuilt and all came out equal."""
        if self.obstacle or not self.digests:
            return Verdict.UNKNOWN
        return Verdict.FINDINGS if self.broken else Verdict.CLEAN

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The targets whose bytes depend on circumstances."""
        return tuple(
            Finding(AUDIT, target, "differs", f"the bytes depend on: {', '.join(axes)}", {"axes": list(axes)})
            for target, axes in self.broken.items()
        )

    @property
    def summary(self) -> str:
        """The obstacle, or what was built twice."""
        return self.obstacle or f"{self.variants} variants built twice, {len(self.axes)} circumstances changed"


def _moved(request: Request, scratch: Path, change: Callable[[Path], None]) -> Request:
    """The same request over a changed copy of its sources."""
    sources = []
    for number, source in enumerate(request.sources):
        path = located(source)
        root = shipping.root_of(path)
        copy = scratch / f"copy {number} of the sources" / root.name
        if not copy.exists():
            _copy(root, copy)
        change(copy)
        sources.append(replace(source, path=copy / path.relative_to(root)))
    return replace(request, sources=tuple(sources))


def _copy(root: Path, copy: Path) -> None:
    """Copy a package whole, or the files and packages of a loose folder: a kernel file may import those beside it."""
    for path in shipping.files_of(root):
        there = copy / path.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)


def _older(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def _shifted(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        path.write_text("\n\n\n# moved down\n" + path.read_text("utf-8"), "utf-8")


def _with(request: Request, name: str, value: str) -> Request:
    return replace(request, overrides={**request.overrides, name: value})


AXES: Mapping[str, Callable[[Request, Path], Request]] = {
    "folder": lambda request, scratch: _moved(request, scratch, lambda _: None),
    "mtimes": lambda request, scratch: _moved(request, scratch, _older),
    "line positions": lambda request, scratch: _moved(request, scratch, _shifted),
    "hash seed": lambda request, _: _with(request, "PYTHONHASHSEED", "12345"),
    "locale": lambda request, _: _with(request, "LC_ALL", "C"),
    "home": lambda request, scratch: _with(request, "HOME", str(scratch)),
    "time zone": lambda request, _: _with(request, "TZ", "Pacific/Auckland"),
    "job count": lambda request, _: replace(request, jobs=request.jobs + 1),
    "order": lambda request, _: replace(request, reverse=not request.reverse),
}
"""Circumstances that must not reach the bytes, each as a change of the request."""


def audit(request: Request, progress: Progress = lambda _: None) -> ReproducibleReport:
    """Build twice and compare; see the module.

    Args:
        request: What to build; its store is not used.
        progress: Told of every variant of every build.

    Raises:
        AotkernError: As `compile_targets`, and `InputError` for a source without a path.
    """
    plain = replace(request, store=None)
    first = compile_targets(plain, progress)
    if first.failures:
        reason = f"{len(first.failures)} variants do not compile, the first: {first.failures[0]}"
        return ReproducibleReport({}, {}, tuple(AXES), reason, 0)
    if first.left_out:
        row = first.left_out[0]
        reason = f"{len(first.left_out)} kernels or variants are left out, the first: {row.kernel}: {row.reason}"
        return ReproducibleReport({}, {}, tuple(AXES), reason, 0)
    expected = _bundles(first)
    broken: dict[str, tuple[str, ...]] = {}
    if differing := _differing(expected, plain, tuple(AXES), progress):
        alone = {axis: _differing(expected, plain, (axis,), progress) for axis in AXES}
        for target in differing:
            named = tuple(axis for axis, targets in alone.items() if target in targets)
            broken[target] = named or ("several axes together",)
    variants = sum(len(build.manifest.variants) for build in first.targets.values())
    digests = {target: Digest.of(data) for target, data in expected.items()}
    obstacle = "" if variants else "nothing was compared: no variant is declared for these targets"
    return ReproducibleReport(digests, broken, tuple(AXES), obstacle, variants, dict(first.seconds))


def _differing(expected: Mapping[str, bytes], plain: Request, axes: tuple[str, ...], progress: Progress) -> list[str]:
    with work_folder("rebuild") as folder:
        changed = plain
        for axis in axes:
            changed = AXES[axis](changed, folder)
        found = _bundles(compile_targets(changed, progress))
    return [target for target in expected if found.get(target) != expected[target]]


def _bundles(compilation: Compilation) -> dict[str, bytes]:
    return {str(target): encode(build.manifest, build.objects, {}) for target, build in compilation.targets.items()}
