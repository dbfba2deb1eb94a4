"""Checks that the host functions make on tensors before a launch; every problem is reported at once.

A wrong shape or stride in a launch is not an error on the device but a read of somebody else's memory, so that each
host function states here what it needs. Tensors are used through `shape`, `stride`, `dtype` and `device` only.

Not in here: anything about the values inside a tensor, which only the device knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotkern.errors import InputError, Problem

if TYPE_CHECKING:
    import torch


class Checks:
    """Collects the problems of one call; `done` raises them together."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._problems: list[Problem] = []

    def require(self, holds: bool, argument: str, expected: str, found: object) -> None:
        """Record a problem with `argument` unless `holds`."""
        if not holds:
            self._problems.append(Problem(f"{self._call}: {argument}", expected, str(found)))

    def tensor(
        self,
        argument: str,
        tensor: torch.Tensor,
        dtype: str,
        shape: tuple[int | None, ...],
        *,
        like: torch.Tensor | None = None,
        packed: int = 0,
    ) -> None:
        """Check one tensor.

        Args:
            argument: Its name in the call.
            tensor: The tensor.
            dtype: What `torch.<dtype>` must be, e.g. "int32"; alternatives are separated by "|".
            shape: Extents; None accepts any.
            like: A tensor whose device it must share.
            packed: How many trailing dims must lie contiguously; -1 is all of them.
        """
        name = str(tensor.dtype).removeprefix("torch.")
        self.require(name in dtype.split("|"), argument, f"dtype {dtype}", name)
        found = tuple(tensor.shape)
        fits = len(found) == len(shape) and all(want in (None, have) for want, have in zip(shape, found, strict=True))
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        self.require(fits, argument, f"shape [{wanted}]", list(found))
        if like is not None:
            self.require(tensor.device == like.device, argument, f"a tensor on {like.device}", tensor.device)
        self.require(_is_packed(tensor, packed), argument, "contiguous trailing dims", f"strides {tensor.stride()}")

    def done(self) -> None:
        """Raise what was found.

        Raises:
            InputError: With one problem for each failed check.
        """
        if self._problems:
            raise InputError(self._problems)


def _is_packed(tensor: torch.Tensor, dims: int) -> bool:
    """Whether the last `dims` dims (all for -1) of `tensor` lie contiguously."""
    wanted = 1
    for axis in reversed(range(tensor.dim() - (tensor.dim() if dims < 0 else dims), tensor.dim())):
        if tensor.shape[axis] > 1 and tensor.stride(axis) != wanted:
            return False
        wanted *= tensor.shape[axis]
    return True
