"""Compressed-cache writers: compress a group of tokens into one entry and insert it.

There is one program for each token of the step, and only the last token of a group (whose position + 1 is a multiple
of the ratio) does anything, provided that it has a state slot and a destination.

* `insert_compressed_cache` does all of it in one pass: gather the states, softmax over the tokens, RMS norm, rotation,
  quantisation, insertion. Decode steps use it, and every step of ratio 4.
* `compress_columns` and `insert_compressed_rows` are the same in two stages, for prefill with ratio 128: few tokens end
  a group there, and each gathers 128 states, so that the gathering is spread over several programs for each entry.

An entry is rotated at the first position of its group. Unlike the main writer, the rotation starts from the unrounded
fp32 row; the quantised dims are rounded to bf16 first, as there.

With `SANITIZE` the record is canonical: NaN becomes 0 in every lane, and no scale code exceeds 254 (255 would decode to
infinity, and 0 * infinity is NaN). A reader that knows that only canonical writers filled a cache need not look for
NaN; gfx950 does that. An infinite value stays infinite.

The fp8 bytes are OCP on every chip. What the tokens left in the state cache, and which slot an entry gets, stand in
`compressor_state`.
"""

from typing import Any

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Joint, Kernel, Pointer, Space

from .compressor import STEP, compressed_columns, group_end, rms_normalised, rotated_pairs
from .fp8 import as_patterns, bf16_bits, rounded_to_bf16, without_nan
from .record import NOPE, ROPE, record_pointers, store_nope
from .writer_options import WRITER_OPTIONS

_HEAD_DIM = tl.constexpr(512)


@triton.jit
def _insert_row(
    row,
    position,
    slot,
    norm_weight,
    cos_sin,
    cache,
    eps,
    block_size,
    page_stride,
    RATIO: tl.constexpr,
    SANITIZE: tl.constexpr,
):
    """Normalise, quantise, rotate and store one compressed row, fp32 [512]."""
    row = rms_normalised(row, norm_weight, eps, _HEAD_DIM)
    data, codes = record_pointers(cache, slot, block_size, page_stride)
    store_nope(data, codes, tl.reshape(rounded_to_bf16(row), (8, 64)), FNUZ=False, SANITIZE=SANITIZE)
    angles = cos_sin + (position // RATIO).to(tl.int64) * RATIO * ROPE
    even, odd = rotated_pairs(row, angles, _HEAD_DIM, ROPE)
    if SANITIZE:
        even, odd = without_nan(even), without_nan(odd)
    dim = tl.arange(0, _HEAD_DIM)
    target = as_patterns(data + NOPE) + (dim - NOPE)
    tl.store(target, tl.interleave(bf16_bits(even), bf16_bits(odd)), mask=dim >= NOPE)


@triton.jit(do_not_specialize=["state_block_size", "state_table_stride", "block_size"])
def insert_compressed_cache(
    state,
    positions,
    state_slots,
    token_to_req,
    state_table,
    norm_weight,
    cos_sin,
    cache,
    slots,
    eps,
    state_block_size,
    state_page_stride,
    state_table_stride,
    block_size,
    page_stride,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
    SANITIZE: tl.constexpr,
):
    """Compress and insert in one pass; grid (tokens,).

    Args:
        state: fp32 [blocks, state_block_size, 2 * (1 + OVERLAP) * 512], states packed within a page.
        positions: int64 [tokens].
        state_slots: int64 [tokens]; negative is padding.
        token_to_req: int32 [tokens], row of the state block table.
        state_table: int32 [requests, width].
        norm_weight: fp32 or bf16 [512].
        cos_sin: fp32 [positions, 64], 32 cosines then 32 sines.
        cache: uint8 [blocks, block_size, 584], the cache that receives the entries.
        slots: int64 [tokens], destination of each token's entry; negative has none.
        eps: Added to the mean square.
        state_block_size: States in a page.
        state_page_stride: Elements from one page of states to the next.
        state_table_stride: Elements from one row of the state block table to the next.
        block_size: Entries in a page of the cache.
        page_stride: Bytes from one page of the cache to the next.
        RATIO: Tokens that become one entry.
        OVERLAP: Whether an entry reads the group before as well.
        SANITIZE: Store canonical records.
    """
    token = tl.program_id(0)
    position, slot = group_end(token, positions, state_slots, slots, RATIO)
    if slot >= 0:
        pages = state_table + tl.load(token_to_req + token).to(tl.int64) * state_table_stride
        row = compressed_columns(
            state,
            pages,
            position,
            0,
            state_block_size,
            state_page_stride,
            RATIO,
            OVERLAP,
            _HEAD_DIM,
            _HEAD_DIM,
        )
        _insert_row(
            row,
            position,
            slot,
            norm_weight,
            cos_sin,
            cache,
            eps,
            block_size,
            page_stride,
            RATIO,
            SANITIZE,
        )


@triton.jit(do_not_specialize=["state_block_size", "state_table_stride"])
def compress_columns(
    state,
    positions,
    state_slots,
    token_to_req,
    state_table,
    slots,
    rows,
    state_block_size,
    state_page_stride,
    state_table_stride,
    RATIO: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    """First stage: the weighted sums, no overlap; grid (tokens * NUM_SPLITS,).

    Args:
        state: As in `insert_compressed_cache`, like every argument that is not named here.
        positions: Likewise.
        state_slots: Likewise.
        token_to_req: Likewise.
        state_table: Likewise.
        slots: Likewise.
        rows: fp32 [tokens, 512], contiguous; written for tokens that end a group and have a destination.
        state_block_size: As above.
        state_page_stride: As above.
        state_table_stride: As above.
        RATIO: Tokens that become one entry.
        NUM_SPLITS: Programs that share the 512 dims of an entry; a power of two.
    """
    WIDTH: tl.constexpr = 512 // NUM_SPLITS
    token = tl.program_id(0) // NUM_SPLITS
    first = (tl.program_id(0) % NUM_SPLITS) * WIDTH
    position, slot = group_end(token, positions, state_slots, slots, RATIO)
    if slot >= 0:
        pages = state_table + tl.load(token_to_req + token).to(tl.int64) * state_table_stride
        columns = compressed_columns(
            state,
            pages,
            position,
            first,
            state_block_size,
            state_page_stride,
            RATIO,
            False,
            _HEAD_DIM,
            WIDTH,
        )
        tl.store(rows + token.to(tl.int64) * _HEAD_DIM + first + tl.arange(0, WIDTH), columns)


@triton.jit(do_not_specialize=["block_size"])
def insert_compressed_rows(
    rows,
    positions,
    state_slots,
    norm_weight,
    cos_sin,
    cache,
    slots,
    eps,
    block_size,
    page_stride,
    RATIO: tl.constexpr,
    SANITIZE: tl.constexpr,
):
    """Second stage: norm, rotation, quantisation and insertion; grid (tokens,).

    `rows` is what the first stage wrote; the other arguments are those of `insert_compressed_cache`.
    """
    token = tl.program_id(0)
    position, slot = group_end(token, positions, state_slots, slots, RATIO)
    if slot >= 0:
        row = tl.load(rows + token.to(tl.int64) * _HEAD_DIM + tl.arange(0, _HEAD_DIM))
        _insert_row(
            row,
            position,
            slot,
            norm_weight,
            cos_sin,
            cache,
            eps,
            block_size,
            page_stride,
            RATIO,
            SANITIZE,
        )


_PAGES = {"cache": Pointer("u8"), "block_size": Int(classes=("any",)), "page_stride": Int(classes=("16",))}
_RATIOS = Joint(("RATIO", "OVERLAP"), ((4, True), (128, False)))
_WEIGHT = Joint(("norm_weight",), ((Pointer("bf16"),), (Pointer("fp32"),)))
_GATHERING = ("state", "token_to_req", "state_table", "state_block_size", "state_page_stride", "state_table_stride")
_FIRST_STAGE = {name: STEP[name] for name in (*_GATHERING, "positions", "state_slots", "slots")}
_SECOND_STAGE = {name: choice for name, choice in STEP.items() if name not in _GATHERING}


def _inserting(kernel: Any, arguments: dict[str, Any], *joint: Joint) -> Kernel:
    """Declare canonical records for every chip but gfx942, whose readers always scrub."""
    options = WRITER_OPTIONS[kernel.__name__]
    return Kernel(
        kernel,
        Space(("gfx942",), {**arguments, **_PAGES, "SANITIZE": False}, joint=joint, options=options),
        Space(("gfx950", "cuda:90"), {**arguments, **_PAGES, "SANITIZE": True}, joint=joint, options=options),
    )


KERNELS = (
    _inserting(insert_compressed_cache, STEP, _RATIOS, _WEIGHT),
    Kernel(
        compress_columns,
        Space(
            ("gfx942", "gfx950", "cuda:90"),
            {**_FIRST_STAGE, "rows": Pointer("fp32"), "RATIO": 128, "NUM_SPLITS": Constexpr(1, 2, 4, 8, 16)},
            options=WRITER_OPTIONS["compress_columns"],
        ),
    ),
    _inserting(insert_compressed_rows, {**_SECOND_STAGE, "rows": Pointer("fp32"), "RATIO": 128}, _WEIGHT),
)
"""Both ratios in one pass; two stages for ratio 128 only, with every split count that `compress_splits` gives."""
