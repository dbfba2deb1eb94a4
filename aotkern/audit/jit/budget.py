"""What each phase allows: budgets of compiles and retunes, read from TOML.

    version = 1
    mode = "error"                # observe, warn, or error: raise in the program before it compiles

    [phases.serving]
    compiles = 0                  # every first meeting with a specialisation, compiled or read from Triton's disk cache
    retunes = 0

    [phases.serving.kernels]
    "cp_gather*" = 1              # a kernel that a pattern names has this budget instead

The schema is shipped as `jit-budget.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotkern import tomlfile
from aotkern.errors import InputError, Problem
from aotkern.fields import Fields
from aotkern.triton_bridge.budget import MODES, Budget, PhaseBudget

VERSION = 1


def read(path: Path) -> Budget:
    """Read a budget file.

    Raises:
        InputError: The file cannot be read, or anything in it is wrong; all problems at once.
    """
    return from_values(tomlfile.read(path, "a budget"), str(path))


def from_values(value: Mapping[str, Any], where: str) -> Budget:
    """As `read`, from parsed TOML."""
    problems = list(tomlfile.version_problems(value, where, VERSION))
    names = ("version", *(name for name in ("mode", "phases") if name in value))
    top = Fields(dict(value), where, names, problems)
    mode: Any = top.get("mode") if top.has("mode") else "observe"
    if mode not in MODES:
        problems.append(Problem(f"{where}: mode", f"one of {', '.join(MODES)}", repr(mode)[:60]))
    phases = _mapping(top.get("phases") if top.has("phases") else {}, f"{where}: phases", problems)
    budgets = tuple(_phase(name, row, f"{where}: phases.{name}", problems) for name, row in phases.items())
    if problems:
        raise InputError(problems)
    return Budget(mode, budgets)


def _mapping(value: object, where: str, problems: list[Problem]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    problems.append(Problem(where, "a table", type(value).__name__))
    return {}


def _phase(name: str, value: object, where: str, problems: list[Problem]) -> PhaseBudget:
    present = tuple(_mapping(value, where, problems))
    known = tuple(key for key in ("compiles", "retunes", "kernels") if key in present)
    form = Fields(value, where, known, problems)
    kernels = _mapping(form.get("kernels") if form.has("kernels") else {}, f"{where}.kernels", problems)
    counts = Fields(kernels, f"{where}.kernels", tuple(kernels), problems)
    return PhaseBudget(
        phase=name,
        compiles=form.count("compiles") if form.has("compiles") else None,
        retunes=form.count("retunes") if form.has("retunes") else None,
        kernels=tuple((pattern, counts.count(pattern)) for pattern in kernels),
    )
