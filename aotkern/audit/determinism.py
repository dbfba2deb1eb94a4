"""Whether machine code adds floats by atomic instructions, whose order, and so whose rounding, no launch repeats."""

from __future__ import annotations

import re

from aotkern.audit.sides import Side, instructions
from aotkern.digest import Digest
from aotkern.errors import EmulatorError, InputError, MissingToolError

_FLOAT_ADD = re.compile(r"(?:global|flat|buffer|ds)_(?:atomic_)?(?:pk_)?add_(?:rtn_)?(?:f16|f32|f64|bf16)")
"""The atomic additions of floats of AMD GPUs. Minimum and maximum give the same in any order."""
_SWAP = re.compile(r"(?:global|flat|buffer)_atomic_cmpswap\w*|ds_cmpst\w*")
"""What a loop is made of that stands for an operation for which there is no instruction."""


def float_atomics(side: Side, digest: Digest) -> tuple[str, ...] | None:
    """The instructions of a code object that make its results depend on the order of its waves.

    Returns:
        Their names: atomic additions of floats, and compare-and-swaps, in a loop of which they may be hidden. Nothing
        where there are none; None where it cannot be known (CUDA, no disassembler, or bytes that are no instructions).
    """
    try:
        names = {item.name for item in instructions(side, digest)}
    except (InputError, MissingToolError, EmulatorError):
        return None
    return tuple(sorted(name for name in names if _FLOAT_ADD.fullmatch(name) or _SWAP.fullmatch(name)))
