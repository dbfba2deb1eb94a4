"""Main-cache writer: insert fresh latent rows into the paged cache of the sliding window.

A row holds 512 bf16 numbers, already RMS-normalised. Its first 448 dims are quantised to fp8 in blocks of 64, its last
64 dims stay bf16. Two kernels, one program a row:

* `insert_main_cache_rope` first turns the last 64 dims by the token's position, in fp32: interleaved pairs (2i, 2i + 1)
  with a table of 32 cosines and 32 sines for each position.
* `insert_main_cache` takes rows that are turned already and copies those dims bit for bit.

Both write the same bytes for the same turned row. A negative slot skips the row: it is padding. NaN is not cleaned
here: readers scrub the main cache, because other writers fill it too.

The dialect of the fp8 bytes follows the chip: FNUZ on gfx942, OCP elsewhere; CUDA has no FNUZ at all.
"""

import triton
import triton.language as tl

from aotkern.spec import Int, Kernel, Pointer, Space

from .fp8 import as_patterns, bf16_values
from .record import NOPE, ROPE, record_pointers, rotated, store_nope, store_rope
from .writer_options import WRITER_OPTIONS


@triton.jit
def _insert_nope(row, data, codes, FNUZ: tl.constexpr):
    """Quantise the first 448 dims of the row of bf16 patterns at `row`."""
    block = tl.arange(0, 8)
    dim = block[:, None] * 64 + tl.arange(0, 64)[None, :]
    values = bf16_values(tl.load(row + dim, mask=dim < NOPE, other=0))
    store_nope(data, codes, values, FNUZ, SANITIZE=False)


@triton.jit(do_not_specialize=["block_size"])
def insert_main_cache_rope(
    kv,
    positions,
    cos_sin,
    slots,
    cache,
    kv_stride,
    block_size,
    page_stride,
    FNUZ: tl.constexpr,
):
    """Turn, quantise and insert; grid (rows to insert,).

    Args:
        kv: bf16 [N, 512], row stride `kv_stride`.
        positions: int64 [N].
        cos_sin: fp32 [positions, 64], 32 cosines then 32 sines, contiguous.
        slots: int64 [rows to insert], global slots; negative skips.
        cache: uint8 [blocks, block_size, 584], the cache that receives the rows.
        kv_stride: Elements from one row to the next.
        block_size: Tokens in a page.
        page_stride: Bytes from one page to the next.
        FNUZ: Dialect of the fp8 bytes.
    """
    index = tl.program_id(0)
    slot = tl.load(slots + index)
    if slot >= 0:
        data, codes = record_pointers(cache, slot, block_size, page_stride)
        row = as_patterns(kv) + index.to(tl.int64) * kv_stride
        _insert_nope(row, data, codes, FNUZ)
        pair = tl.arange(0, ROPE // 2)
        even = bf16_values(tl.load(row + NOPE + 2 * pair))
        odd = bf16_values(tl.load(row + NOPE + 2 * pair + 1))
        angles = cos_sin + tl.load(positions + index) * ROPE
        cos = tl.load(angles + pair)
        sin = tl.load(angles + ROPE // 2 + pair)
        even, odd = rotated(even, odd, cos, sin)
        store_rope(data, even, odd)


@triton.jit(do_not_specialize=["block_size"])
def insert_main_cache(kv, slots, cache, kv_stride, block_size, page_stride, FNUZ: tl.constexpr):
    """Quantise and insert rows that are turned already; grid (rows to insert,). Arguments as above."""
    index = tl.program_id(0)
    slot = tl.load(slots + index)
    if slot >= 0:
        data, codes = record_pointers(cache, slot, block_size, page_stride)
        row = as_patterns(kv) + index.to(tl.int64) * kv_stride
        _insert_nope(row, data, codes, FNUZ)
        dim = tl.arange(0, ROPE)
        tl.store(as_patterns(data + NOPE) + dim, tl.load(row + NOPE + dim))


_PLAIN = {
    "kv": Pointer("bf16"),
    "slots": Pointer("i64"),
    "cache": Pointer("u8"),
    "kv_stride": Int(classes=("16",)),
    "block_size": Int(classes=("any",)),
    "page_stride": Int(classes=("16",)),
}
_ROTATING = {**_PLAIN, "positions": Pointer("i64"), "cos_sin": Pointer("fp32")}

KERNELS = tuple(
    Kernel(
        kernel,
        Space(("gfx942",), {**arguments, "FNUZ": True}, options=WRITER_OPTIONS[kernel.__name__]),
        Space(("gfx950", "cuda:90"), {**arguments, "FNUZ": False}, options=WRITER_OPTIONS[kernel.__name__]),
    )
    for kernel, arguments in ((insert_main_cache, _PLAIN), (insert_main_cache_rope, _ROTATING))
)
"""One binary for each storage class; page strides are multiples of 576 bytes, hence of 16."""
