"""In which stream a launch goes: the one that the call names, else the current one of the tensors' library."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from aotkern.errors import InputError

_SPECIAL = range(3)
"""The default stream, and the two handles by which the drivers name the legacy and the per-thread default stream."""
_LOWEST_ADDRESS = 4096
"""Below this no stream object lies: a number that small is an id of somebody's own, not a handle."""


def handle(stream: object, where: str) -> int:
    """The driver's handle of a stream object (of torch, CuPy, or with `__cuda_stream__`), or of a handle.

    Raises:
        InputError: It is neither.
    """
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if type(stream) is int and (stream in _SPECIAL or stream >= _LOWEST_ADDRESS):
        return stream
    raise InputError.one(f"{where}: stream", "a stream object, or the driver's handle of one", repr(stream)[:60])


def current(arguments: Iterable[Any], device: int) -> int:
    """The current stream of the library that the tensors among `arguments` belong to.

    Torch's, when one of them is torch's and on a GPU; else the device's default stream. Torch is not imported for it:
    whoever has a torch tensor has torch.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    tensor = torch.Tensor
    if any(isinstance(argument, tensor) and argument.is_cuda for argument in arguments):
        return int(torch.cuda.current_stream(device).cuda_stream)
    return 0
