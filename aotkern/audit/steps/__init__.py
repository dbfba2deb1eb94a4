"""The steps of a policy: how each is carried out. One small file each, and one line in the table.

A file offers `planned(step, circumstances) -> Planned`. Here files are opened; the proofs themselves, in the rooms
beside this one, compare values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aotkern.audit.steps import coverage, identity, jit, numerics, replay, reproducible, resources, verify
from aotkern.audit.steps.planned import Circumstances, Planned

STEPS: Mapping[str, Callable[[Any, Circumstances], Planned]] = {
    "verify": verify.planned,
    "identity": identity.planned,
    "resources": resources.planned,
    "reproducible": reproducible.planned,
    "coverage": coverage.planned,
    "numerics": numerics.planned,
    "replay": replay.planned,
    "jit": jit.planned,
}
"""By the fields of a `Policy`, in the order in which they are carried out."""

__all__ = ["STEPS", "Circumstances", "Planned"]
