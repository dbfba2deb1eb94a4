"""An emulator of AMD gfx942 and gfx950 machine code: it runs HSACOs as they ship, without a GPU.

It says whether the code computes the right numbers. It says nothing about time, hazards, or the last place of
transcendental functions and matrix products; what ran here was executed by an emulator, not by hardware.

The disassembler in here does without numpy, so that what runs code is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotkern.emulator.machine import Buffer, Statistics, Stores, WaveOrder, run

__all__ = ["Buffer", "Statistics", "Stores", "WaveOrder", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("aotkern.emulator.machine"), name)
