"""aotkern: Triton GPU kernels as machine code, built ahead of time, loaded without a compiler, audited.

    bundle = aotkern.load("decode.gfx950.aotk")
    bundle["decode_reduce"][(rows, heads)](part_m, part_l, ..., NUM_SPLITS=8)

This package imports nothing heavy: `aotkern.errors`, `aotkern.spec` and the other rooms are imported by whoever needs
them, so that a command that only reads a bundle pays neither for Triton nor for torch. The loader is imported when
`aotkern.load` is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotkern.arguments import Pointer
    from aotkern.loader import LoadedBundle, MissedCall, load

__all__ = ["LoadedBundle", "MissedCall", "Pointer", "__version__", "load"]

__version__ = "0.1.0"

_HOMES = {
    "LoadedBundle": "aotkern.loader",
    "MissedCall": "aotkern.loader",
    "Pointer": "aotkern.arguments",
    "load": "aotkern.loader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'aotkern' has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see the module's docstring

    return getattr(importlib.import_module(_HOMES[name]), name)
