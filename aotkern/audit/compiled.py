"""Sides of a comparison that are compiled for it: today's sources, and those of a git revision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aotkern.audit.sides import Side
from aotkern.build import revision
from aotkern.build.builder import Compilation, Request, Step, compile_targets
from aotkern.errors import InputError, Problem
from aotkern.workfolder import work_folder

Tell = Callable[[Step], None]

TODAY = "today's sources"
"""The label of the work tree's side."""


def today(request: Request, tell: Tell) -> list[Side]:
    """A side for each target, of the sources as they are.

    Each has a doubt if a module of the sources' repository was imported from somewhere else.

    Raises:
        AotkernError: As `compile_targets`, and for a variant that does not compile.
    """
    compilation = _compiled(request, tell)
    return _sides(compilation, TODAY, revision.copies(request.sources, compilation.origins))


def at(request: Request, name: str, tell: Tell) -> list[Side]:
    """A side for each target, of the sources as they were at a git revision.

    Each has a doubt if anything of the repository came from outside of that revision.

    Raises:
        AotkernError: As `today`, and as `revision.export`.
    """
    with work_folder("baseline") as folder:
        export = revision.export(request.sources, name, folder)
        compilation = _compiled(replace(request, sources=export.sources, moved=export.moved), tell)
        doubt = revision.strangers(export.moved, compilation.origins)
    short = export.commit[:12]
    return _sides(compilation, f"{name} ({short})" if name != export.commit else short, doubt)


def _compiled(request: Request, tell: Tell) -> Compilation:
    compilation = compile_targets(request, tell)
    if compilation.failures:
        raise compilation.failures[0]
    if compilation.left_out:
        rows = compilation.left_out
        raise InputError([Problem(row.kernel, "a kernel that can be built", row.reason) for row in rows])
    return compilation


def _sides(compilation: Compilation, label: str, doubt: str) -> list[Side]:
    sides: list[Side] = []
    for target, one in compilation.targets.items():
        aside = tuple(key for key in compilation.aside if f"[{target}](" in key)
        sides.append(Side(label, one.manifest, one.objects.__getitem__, aside=aside, doubt=doubt))
    return sides
