"""Kernel configurations of many kinds, compiled for each AMD target, run in the emulator and held against NumPy.

`CONFIGURATIONS` lists all of them; `harness.prepare` compiles one and makes its case.
"""

from __future__ import annotations

from importlib import import_module

from .harness import Configuration

_KINDS = ("matmuls", "rows", "elementwise", "structures", "effects")

CONFIGURATIONS: tuple[Configuration, ...] = tuple(
    one for name in _KINDS for one in import_module(f"{__name__}.{name}").CONFIGURATIONS
)
"""Every configuration, by kind."""
_NAMES = [one.name for one in CONFIGURATIONS]
assert len(_NAMES) == len(set(_NAMES)), sorted(name for name in set(_NAMES) if _NAMES.count(name) > 1)
