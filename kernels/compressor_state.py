"""Bookkeeping of the compressor: the state that each token leaves, and the slot that each entry gets.

* `store_compressor_state` stores kv and score of every token of a step in the paged state cache, before anything is
  compressed. The score is stored with the positional bias of the token's place in its group already added.
* `compressed_slots` finds the global slot of each token's entry: the token that ends a group gets the next entry of its
  sequence, every other token gets -1.

The layout of a state stands in `compressor`.
"""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Joint, Kernel, Pointer, Space

from .compressor import is_group_end
from .writer_options import WRITER_OPTIONS


@triton.jit(do_not_specialize=["state_block_size"])
def store_compressor_state(
    kv,
    score,
    ape,
    positions,
    state,
    state_slots,
    kv_stride,
    score_stride,
    state_block_size,
    state_page_stride,
    RATIO: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Store the states of a step; grid (tokens,).

    Args:
        kv: fp32 or bf16 [tokens, WIDTH], row stride `kv_stride`.
        score: Likewise, row stride `score_stride`.
        ape: fp32 [RATIO, WIDTH], added to the score by place in the group; contiguous.
        positions: int64 [tokens].
        state: fp32 [blocks, state_block_size, 2 * WIDTH], states packed within a page.
        state_slots: int64 [tokens], global slots; negative skips.
        kv_stride: Elements from one row of `kv` to the next.
        score_stride: The same for `score`.
        state_block_size: States in a page.
        state_page_stride: Elements from one page to the next.
        RATIO: Tokens that become one entry.
        WIDTH: Dims of kv, and of score: 512 or 128, twice that with overlap.
    """
    token = tl.program_id(0)
    slot = tl.load(state_slots + token).to(tl.int32)
    if slot >= 0:
        column = tl.arange(0, WIDTH)
        place = (tl.load(positions + token) % RATIO).to(tl.int32)
        page = (slot // state_block_size).to(tl.int64)
        target = state + page * state_page_stride + (slot % state_block_size) * (2 * WIDTH) + column
        tl.store(target, tl.load(kv + token.to(tl.int64) * kv_stride + column).to(tl.float32))
        scores = tl.load(score + token.to(tl.int64) * score_stride + column).to(tl.float32)
        tl.store(target + WIDTH, scores + tl.load(ape + place * WIDTH + column))


@triton.jit(do_not_specialize=["num_tokens", "table_stride", "table_width", "block_size"])
def compressed_slots(
    positions,
    token_to_req,
    block_table,
    slots,
    num_tokens,
    table_stride,
    table_width,
    block_size,
    RATIO: tl.constexpr,
    BLOCK: tl.constexpr = 256,
):
    """Destination slot of each token's entry, or -1; grid (ceil(num_tokens / BLOCK),).

    Args:
        positions: int64 [num_tokens].
        token_to_req: int32 [num_tokens]; negative is padding.
        block_table: int32 [requests, table_width], pages of the compressed cache; negative is no page.
        slots: int64 [num_tokens], the result.
        num_tokens: Tokens of the step.
        table_stride: Elements from one row of the block table to the next.
        table_width: Columns of the block table.
        block_size: Entries in a page.
        RATIO: Tokens that become one entry.
        BLOCK: Tokens of one program.
    """
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = token < num_tokens
    position = tl.load(positions + token, mask=inside, other=0).to(tl.int32)
    request = tl.load(token_to_req + token, mask=inside, other=-1).to(tl.int64)
    entry = position // RATIO
    column = entry // block_size
    ends = inside & (request >= 0) & is_group_end(position, RATIO) & (column < table_width)
    page = tl.load(block_table + request * table_stride + column, mask=ends, other=-1).to(tl.int64)
    slot = tl.where(page >= 0, page * block_size + entry % block_size, -1)
    tl.store(slots + token, slot, mask=inside)


_STATES = {
    "ape": Pointer("fp32"),
    "positions": Pointer("i64"),
    "state": Pointer("fp32"),
    "state_slots": Pointer("i64"),
    "kv_stride": Int(classes=("16",)),
    "score_stride": Int(classes=("16",)),
    "state_block_size": Int(classes=("any",)),
    "state_page_stride": Int(classes=("16",)),
}
_SLOTS = {
    # Metadata of a step: never large, and one binary that serves every storage is enough.
    "positions": Pointer("i64", storage="any"),
    "token_to_req": Pointer("i32", storage="any"),
    "block_table": Pointer("i32", storage="any"),
    "slots": Pointer("i64", storage="any"),
    **dict.fromkeys(("num_tokens", "table_stride", "table_width", "block_size"), Int(classes=("any",))),
    "RATIO": Constexpr(4, 128),
}

KERNELS = (
    Kernel(
        store_compressor_state,
        Space(
            ("gfx942", "gfx950", "cuda:90"),
            _STATES,
            joint=(
                Joint(("kv", "score"), tuple((Pointer(element), Pointer(element)) for element in ("fp32", "bf16"))),
                Joint(("RATIO", "WIDTH"), ((4, 1024), (128, 512), (4, 256))),
            ),
            options=WRITER_OPTIONS["store_compressor_state"],
        ),
    ),
    Kernel(
        compressed_slots,
        Space(("gfx942", "gfx950", "cuda:90"), _SLOTS, options=WRITER_OPTIONS["compressed_slots"]),
    ),
)
"""Widths: the KV compressor with and without overlap, and the indexer's."""
