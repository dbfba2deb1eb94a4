"""Copying the prefixes of dense index rows into one ragged list (the device half of `ragged`)."""

import triton
import triton.language as tl

from aotkern.spec import Int, Kernel, Pointer, Space

from .launchers import LAUNCH_OPTIONS


@triton.jit(do_not_specialize=["num_rows"])
def pack_ragged(dense, indptr, out, dense_stride, num_rows, BLOCK: tl.constexpr):
    """Copy BLOCK entries of one row; program ids are (row, block of the row).

    Args:
        dense: int32 [rows, width], last dim contiguous.
        indptr: int32 [rows + 1]; row t goes to out[indptr[t]:indptr[t + 1]].
        out: int32.
        dense_stride: Elements between two dense rows.
        num_rows: Slots of the cache that the entries point into: others become -1. Negative to copy as is.
        BLOCK: Entries of a program.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = tl.load(indptr + row)
    length = tl.load(indptr + row + 1) - first
    if block * BLOCK < length:
        place = block * BLOCK + tl.arange(0, BLOCK)
        present = place < length
        slots = tl.load(dense + row * dense_stride + place, mask=present, other=-1)
        known = (slots >= 0) & (slots < num_rows) | (num_rows < 0)
        tl.store(out + first + place, tl.where(known, slots, -1), mask=present)


KERNELS = (
    Kernel(
        pack_ragged,
        Space(
            ("gfx942", "gfx950", "cuda:90"),
            {
                "dense": Pointer("i32", storage="small"),
                "indptr": Pointer("i32", storage="small"),
                "out": Pointer("i32", storage="small"),
                "dense_stride": Int(),
                "num_rows": Int(classes=("any",)),
                "BLOCK": 128,
            },
            options=LAUNCH_OPTIONS["pack_ragged"],
        ),
    ),
)
"""Index rows of any width; in serving it is a multiple of 128."""
