"""cp-gather: copy the indexer keys of a chunk of sequences out of the paged cache into dense workspaces.

A prefill step computes its index logits over dense keys. This kernel makes them dense: one program for each output row
finds the page that holds the row's token and copies its 128 fp8 bytes and its fp32 scale. Nothing is converted, so the
fp8 dialect does not matter, and keys are handled as plain bytes.

A page of `block_size` tokens holds two regions, which arrive as two views with their own page strides:

    key bytes    [0, block_size * 128)                     in NORMAL or SHUFFLE order
    scales       [block_size * 128, block_size * 132)      one fp32 a token, never reordered

    NORMAL   element d of token p is byte p * 128 + d
    SHUFFLE  tokens and bytes are cut into tiles of 16 x 16; a tile is contiguous, and tiles of one token group follow
             each other: byte (p // 16) * 2048 + (d // 16) * 256 + (p % 16) * 16 + d % 16

The layout is an argument because the cache does not say which one it has: a writer and a reader that both guess it
from the block size can guess differently, and the keys are then silently permuted.

A row is left untouched when its token belongs to no sequence (padding). A row whose block is out of range gets scale 0
and keeps its key bytes: its logit becomes 0 and no foreign memory is read.

There are two forms of the same row copy:

* `cp_gather_indexer_quant_cache` has the token and batch count as compile-time constants. Every new pair of counts is
  another binary. gfx942 keeps this form.
* `cp_gather_indexer_quant_cache_dynamic` takes every count that changes from step to step or from server to server at
  run time, without specialisation, and the grid itself bounds the rows. One binary serves all of them. gfx950 and CUDA
  use this form; on gfx942 it is there for those who ask for it.

Not in here: checks of the arguments and the choice between the two forms (`gather_host`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Joint, Kernel, Pointer, Space

from .index_layout import index_key_offset


@triton.jit
def _gather_row(
    row,
    k_cache,
    scale_cache,
    k_out,
    scale_out,
    block_table,
    cu_seqlen,
    token_to_seq,
    block_size,
    block_table_stride,
    page_stride,
    scale_page_stride,
    num_batches,
    block_table_width,
    num_blocks,
    LAYOUT: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_TILE: tl.constexpr,
    HEAD_TILE: tl.constexpr,
):
    """Copy the token behind output row `row`; write nothing when there is none."""
    seq = tl.load(token_to_seq + row)
    if (seq >= 0) & (seq < num_batches):
        start = tl.load(cu_seqlen + seq)
        end = tl.load(cu_seqlen + seq + 1)
        if (row >= start) & (row < end):
            column = (row - start) // block_size
            token = (row - start) % block_size
            entry = block_table + seq.to(tl.int64) * block_table_stride + column
            block = tl.load(entry, mask=column < block_table_width, other=-1)
            scale = 0.0
            if (block >= 0) & (block < num_blocks):
                # A page offset passes 2^31 in a production cache, so the product is taken in 64 bits.
                page = block.to(tl.int64)
                dim = tl.arange(0, HEAD_DIM)
                source = page * page_stride + index_key_offset(token, dim, LAYOUT, HEAD_DIM, BLOCK_TILE, HEAD_TILE)
                tl.store(k_out + row.to(tl.int64) * HEAD_DIM + dim, tl.load(k_cache + source))
                scale = tl.load(scale_cache + page * scale_page_stride + token)
            tl.store(scale_out + row, scale)


@triton.jit
def cp_gather_indexer_quant_cache(
    k_cache,
    scale_cache,
    k_out,
    scale_out,
    block_table,
    cu_seqlen,
    token_to_seq,
    block_size,
    block_table_stride,
    page_stride,
    scale_page_stride,
    NUM_TOKENS: tl.constexpr,
    NUM_BATCHES: tl.constexpr,
    BLOCK_TABLE_WIDTH: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    LAYOUT: tl.constexpr,
    HEAD_DIM: tl.constexpr = 128,
    BLOCK_TILE: tl.constexpr = 16,
    HEAD_TILE: tl.constexpr = 16,
):
    """The form that is specialised on every count; grid (rows,), of which the first `NUM_TOKENS` are copied.

    Args:
        k_cache: uint8 [NUM_BLOCKS, block_size * 128], the key regions; page stride `page_stride` bytes.
        scale_cache: fp32 [NUM_BLOCKS, block_size], the scale regions; page stride `scale_page_stride` elements.
        k_out: uint8 [NUM_TOKENS, 128], contiguous.
        scale_out: fp32 [NUM_TOKENS].
        block_table: int32 [NUM_BATCHES, BLOCK_TABLE_WIDTH], row stride `block_table_stride`.
        cu_seqlen: int32 [NUM_BATCHES + 1], first output row of each sequence.
        token_to_seq: int32 [NUM_TOKENS], sequence of each output row; -1 is padding.
        block_size: Tokens in a page.
        block_table_stride: Elements from one row of the block table to the next.
        page_stride: Bytes from one page to the next.
        scale_page_stride: The same in fp32 elements.
        NUM_TOKENS: Output rows.
        NUM_BATCHES: Sequences.
        BLOCK_TABLE_WIDTH: Columns of the block table.
        NUM_BLOCKS: Pages of the cache.
        LAYOUT: Order of the key bytes, "normal" or "shuffle".
        HEAD_DIM: Bytes of a key.
        BLOCK_TILE: Tokens in a tile of the shuffled order.
        HEAD_TILE: Bytes of a key in a tile of the shuffled order.
    """
    row = tl.program_id(0)
    if row < NUM_TOKENS:
        _gather_row(
            row,
            k_cache,
            scale_cache,
            k_out,
            scale_out,
            block_table,
            cu_seqlen,
            token_to_seq,
            block_size,
            block_table_stride,
            page_stride,
            scale_page_stride,
            NUM_BATCHES,
            BLOCK_TABLE_WIDTH,
            NUM_BLOCKS,
            LAYOUT,
            HEAD_DIM,
            BLOCK_TILE,
            HEAD_TILE,
        )


@triton.jit(do_not_specialize=["block_table_stride", "num_batches", "block_table_width", "num_blocks"])
def cp_gather_indexer_quant_cache_dynamic(
    k_cache,
    scale_cache,
    k_out,
    scale_out,
    block_table,
    cu_seqlen,
    token_to_seq,
    block_size,
    block_table_stride,
    page_stride,
    scale_page_stride,
    num_batches,
    block_table_width,
    num_blocks,
    LAYOUT: tl.constexpr,
    HEAD_DIM: tl.constexpr = 128,
    BLOCK_TILE: tl.constexpr = 16,
    HEAD_TILE: tl.constexpr = 16,
):
    """The form with counts at run time; grid exactly (output rows,), hence no bound on the row.

    Arguments as in `cp_gather_indexer_quant_cache`. The number of pages depends on the memory that a server has left
    and the width of the block table on its longest sequence, so that as constants they would tie a binary to a server.
    """
    _gather_row(
        tl.program_id(0),
        k_cache,
        scale_cache,
        k_out,
        scale_out,
        block_table,
        cu_seqlen,
        token_to_seq,
        block_size,
        block_table_stride,
        page_stride,
        scale_page_stride,
        num_batches,
        block_table_width,
        num_blocks,
        LAYOUT,
        HEAD_DIM,
        BLOCK_TILE,
        HEAD_TILE,
    )


_POINTERS = {
    "k_cache": Pointer("u8"),
    "scale_cache": Pointer("fp32"),
    "k_out": Pointer("u8"),
    "scale_out": Pointer("fp32"),
    "block_table": Pointer("i32"),
    "cu_seqlen": Pointer("i32"),
    "token_to_seq": Pointer("i32"),
}
_STRIDES = {
    # Keys and scales are read one number at a time, so that no load becomes wider by knowing more: the class "16" gains
    # nothing. It is kept because gfx942's variants carry it in their keys; block sizes that 16 does not divide, which
    # no server has, are a miss.
    "block_size": Int(classes=("16",)),
    "page_stride": Int(classes=("16",)),
    "scale_page_stride": Int(classes=("any",)),
    "LAYOUT": Constexpr("normal", "shuffle"),
}

# What the specialised form costs: each server geometry and each pair of counts is a binary of its own. These are the
# pairs of a server that prefills chunks of 8,192 positions (2,048 compressed tokens) for up to eight sequences.
_SERVER = {"NUM_BLOCKS": 65_536, "BLOCK_TABLE_WIDTH": 4_096, "block_table_stride": Int(classes=("16",))}
_COUNTS = Joint(("NUM_TOKENS", "NUM_BATCHES"), ((512, 1), (1_024, 1), (2_048, 1), (2_048, 2), (2_048, 4), (2_048, 8)))
_SMALL_CACHE = {"NUM_BLOCKS": 3, "BLOCK_TABLE_WIDTH": 1, "block_table_stride": Int(classes=("1",))}

KERNELS = (
    Kernel(
        cp_gather_indexer_quant_cache,
        Space(("gfx942",), {**_POINTERS, **_STRIDES, **_SERVER}, joint=(_COUNTS,)),
        Space(("gfx942",), {**_POINTERS, **_STRIDES, **_SMALL_CACHE, "NUM_TOKENS": 13, "NUM_BATCHES": 3}),
    ),
    Kernel(
        cp_gather_indexer_quant_cache_dynamic,
        Space(
            ("gfx942", "gfx950", "cuda:90"),
            {
                **_POINTERS,
                **_STRIDES,
                **dict.fromkeys(
                    ("block_table_stride", "num_batches", "block_table_width", "num_blocks"), Int(classes=("any",))
                ),
            },
        ),
    ),
)
"""One binary for each layout and storage class; the specialised form multiplies them by its counts."""
