"""What a run may compile: a budget for each phase. The auditing process writes it down, watched processes obey it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Mode = Literal["observe", "warn", "error"]
MODES: tuple[Mode, ...] = get_args(Mode)

STARTUP = "startup"
"""The phase before any mark."""
SERVING = "serving"
"""The phase after a mark without a name of its own."""


@dataclass(frozen=True, slots=True)
class PhaseBudget:
    """The budget of one phase.

    Attributes:
        phase: Its name.
        compiles: Most compiles of all kernels that no pattern names; None for no limit.
        retunes: Most tunings; None for no limit.
        kernels: Patterns with budgets of their own; the first that fits counts.
    """

    phase: str
    compiles: int | None = None
    retunes: int | None = None
    kernels: tuple[tuple[str, int], ...] = ()

    def of(self, kernel: str) -> tuple[str, int] | None:
        """The budget that a kernel falls under: its pattern (empty for the common one) and the number."""
        for pattern, number in self.kernels:
            if fnmatch.fnmatchcase(kernel, pattern):
                return pattern, number
        return None if self.compiles is None else ("", self.compiles)


@dataclass(frozen=True, slots=True)
class Budget:
    """The budgets of a run, and what the program is to do when it exceeds them.

    Attributes:
        mode: `observe`, `warn` (say it on standard error) or `error` (raise before compiling).
        phases: One budget for each phase that has one.
    """

    mode: Mode = "observe"
    phases: tuple[PhaseBudget, ...] = ()

    def of(self, phase: str) -> PhaseBudget | None:
        """The budget of a phase, or None."""
        return next((row for row in self.phases if row.phase == phase), None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the file that watched processes read."""
        rows = [
            {
                "phase": row.phase,
                "compiles": row.compiles,
                "retunes": row.retunes,
                "kernels": list(map(list, row.kernels)),
            }
            for row in self.phases
        ]
        return {"mode": self.mode, "phases": rows}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Budget:
        """The inverse of `to_json`."""
        rows = tuple(
            PhaseBudget(row["phase"], row["compiles"], row["retunes"], tuple((p, n) for p, n in row["kernels"]))
            for row in value["phases"]
        )
        return cls(value["mode"], rows)
