"""Ragged index lists on the host: packing dense rows, and the persistent buffers that captured graphs read.

A ragged list is a pair (indices, indptr): row t is indices[indptr[t]:indptr[t + 1]]. `indices` may be longer than its
rows; `indptr` is the true bound.

Runs without Triton; the copying kernel is in `ragged_pack`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .checks import Checks
from .launchers import LAUNCH_OPTIONS, Design, Launcher
from .layout import distance

if TYPE_CHECKING:
    import torch

PACK_BLOCK: Final = 128
"""Entries that one program of the packing kernel copies."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Entries of all query rows.

    Attributes:
        indices: int32 [capacity], slots, one row after the other.
        indptr: int32 [rows + 1].
    """

    indices: torch.Tensor
    indptr: torch.Tensor


def pack_rows(
    launcher: Launcher, dense: torch.Tensor, lengths: torch.Tensor | None = None, *, num_rows: int = -1
) -> Ragged:
    """Pack the leading entries of dense rows; nothing waits for the device.

    Args:
        launcher: Launches `pack_ragged`.
        dense: int32 [rows, width]. Valid entries must stand first: row t keeps its first lengths[t] entries.
        lengths: Integers [rows], clamped to [0, width]; without them, the number of entries >= 0 of each row.
        num_rows: Slots of the cache that the entries point into; other entries become -1. Negative to keep them.

    Returns:
        The list, with a capacity of rows * width entries.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("pack_rows")
    checks.tensor("dense", dense, "int32", (None, None), packed=1)
    rows = dense.shape[0] if dense.dim() else 0
    if lengths is not None:
        checks.tensor("lengths", lengths, "int32|int64", (rows,), like=dense)
    checks.require(dense.numel() < 2**31, "dense", "fewer than 2^31 entries", dense.numel())
    checks.done()
    width = dense.shape[1]
    counts = (dense >= 0).sum(dim=1) if lengths is None else lengths.clamp(0, width)
    indptr = dense.new_zeros(rows + 1)
    indptr[1:] = counts.cumsum(0)
    indices = dense.new_empty(rows * width)
    blocks = -(-width // PACK_BLOCK)
    if rows and blocks:
        arguments = (dense, indptr, indices, distance(dense, 0), num_rows)
        launcher["pack_ragged"][(rows, blocks)](*arguments, BLOCK=PACK_BLOCK, **LAUNCH_OPTIONS["pack_ragged"])
    return Ragged(indices, indptr)


class RaggedBuffers:
    """Buffers of fixed address that a captured graph reads and every step refills.

    Attributes:
        indices: int32 [max_rows * entries_per_row].
        indptr: int32 [max_rows + 1].
    """

    def __init__(self, like: torch.Tensor, max_rows: int, entries_per_row: int) -> None:
        self.entries_per_row = entries_per_row
        self.indices = like.new_empty(max_rows * entries_per_row)
        self.indptr = like.new_zeros(max_rows + 1)

    def refill(self, source: Ragged, design: Design) -> Ragged:
        """Copy `source` in and return the views that the kernels get; their addresses never change.

        The number of elements of a view is what the split selectors read as its capacity. gfx942 sees the whole
        capacity of its rows, gfx950 a view narrowed to what the source could hold.

        Args:
            source: At most `max_rows` rows of at most `entries_per_row` entries each.
            design: Whose kernels will read the views.

        Raises:
            InputError: `source` is larger than the buffers or of another dtype.
        """
        checks = Checks("RaggedBuffers.refill")
        checks.tensor("source.indices", source.indices, "int32", (None,), like=self.indices)
        checks.tensor("source.indptr", source.indptr, "int32", (None,), like=self.indptr)
        rows, held = source.indptr.numel() - 1, source.indices.numel()
        checks.require(
            0 <= rows < self.indptr.numel(), "source.indptr", f"1 to {self.indptr.numel()} elements", rows + 1
        )
        capacity = max(rows, 0) * self.entries_per_row
        checks.require(held <= capacity, "source.indices", f"at most {capacity} elements", held)
        checks.done()
        self.indptr[: rows + 1].copy_(source.indptr)
        self.indices[:held].copy_(source.indices)
        seen = held if design == "gfx950" else capacity
        return Ragged(self.indices[: max(seen, 1)], self.indptr[: rows + 1])
