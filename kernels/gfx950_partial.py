"""gfx950: partial sparse-MLA attention of one slice of a row (split-K, first of two kernels).

One program attends 16 query heads of one row to one slice of the row's entries: main (sliding window) entries first,
then extra (compressed) ones. K and V are the same latent row of 512 numbers, so a tile of 32 entries is loaded once:

    four chunks of 128 dims   dequantised to bf16; the last one is 64 fp8 dims next to the 64 rotated bf16 dims
    scores                    ONE dot over all 512 dims: the chunks are laid side by side, in order
    values                    FOUR accumulators of 128 dims: one 512-wide accumulator would spill registers

The softmax is the usual running one (maximum m, denominator l, numerator acc), in powers of two. The slice's m, l and
acc go to scratch, unnormalised, and the reducer merges the slices: m is stored in the natural domain.

Entries come as lists of slots (`indices`, `indptr`); a slot outside the cache counts for nothing and reads nothing of
that address. Main tiles are guarded one by one. Extra entries go in full groups of 64 whose index load needs no mask,
each peeled into two tiles, and then in at most two guarded tiles.

A NaN in K would poison the row, so lanes that are NaN are read as 0. A compressed cache that only canonical writers
filled holds none: `TRUST_EXTRA` leaves the scrub out for it.

With `ADAPTIVE`, a row chooses from its live lengths how many of the `NUM_SPLITS` programs work on it: grid and scratch
were fixed when a graph was captured, lengths were not. The others only store "no value".

Strides, scale and head count are compile-time values: a server has one of each, and no integer forks variants. Nothing
here is shared with the gfx942 kernels, so that a change here leaves their machine code alone.
"""

import triton
import triton.language as tl

from . import layout, selectors
from .constants import LN2, LOG2E, NEG

_NOPE = tl.constexpr(layout.NOPE)
_ROPE = tl.constexpr(layout.ROPE)
_HEAD_DIM = tl.constexpr(layout.HEAD_DIM)
_QUANT_BLOCK = tl.constexpr(layout.QUANT_BLOCK)
_DATA_BYTES = tl.constexpr(layout.DATA_BYTES)
_SCALE_BYTES = tl.constexpr(layout.SCALE_BYTES)
_CHUNK = tl.constexpr(layout.HEAD_DIM // 4)
_GROUP = tl.constexpr(2 * selectors.TILE)
_TILE = tl.constexpr(selectors.TILE)
_SHORT_SPLITS = tl.constexpr(selectors.SHORT_SPLITS)
_SHORT_TILES = tl.constexpr(selectors.SHORT_TILES)


@triton.jit
def _beside(left, right):
    """Two equal blocks side by side: columns of `left`, then columns of `right`, in order."""
    pairs = tl.permute(tl.join(left, right), (0, 2, 1))
    return tl.reshape(pairs, (left.shape[0], 2 * left.shape[1]))


@triton.jit
def _scale_values(codes):
    """UE8M0 codes as fp32, built from bits: a code is the exponent; code 0 (2^-127) is a subnormal number."""
    bits = codes.to(tl.int32)
    bits = tl.where(bits == 0, 1 << 22, bits << 23)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _fp8_values(data, FNUZ: tl.constexpr):
    """fp8 bytes as fp32."""
    if FNUZ:
        return data.to(tl.float8e4b8, bitcast=True).to(tl.bfloat16).to(tl.float32)
    return data.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def _scrubbed(chunk, SCRUB: tl.constexpr):
    """NaN lanes of a bf16 chunk as +0, if asked; whether a number is one is asked in fp32."""
    if SCRUB:
        values = chunk.to(tl.float32)
        return tl.where(values == values, chunk, 0.0)
    return chunk


@triton.jit
def _nope_chunk(cache, data, codes, live, FIRST: tl.constexpr, BLOCKS: tl.constexpr, FNUZ: tl.constexpr):
    """BLOCKS quantisation blocks of a tile of entries, from block FIRST on, as bf16.

    The scale of an entry that is not live is 1 twice, by the masked load and by the select. The select also makes the
    result depend on more than loads; without it Triton moves the layout change for the dots above the dequantisation,
    dequantises once for each dot, and passes single bytes through LDS.
    """
    ENTRIES: tl.constexpr = data.shape[0]
    WIDTH: tl.constexpr = BLOCKS * _QUANT_BLOCK
    lanes = FIRST * _QUANT_BLOCK + tl.arange(0, WIDTH)
    blocks = FIRST + tl.arange(0, BLOCKS)
    raw = tl.load(cache + data[:, None] + lanes[None, :], mask=live[:, None], other=0)
    code = tl.load(cache + codes[:, None] + blocks[None, :], mask=live[:, None], other=127)
    scale = tl.where(live[:, None], _scale_values(code), 1.0)
    scale = tl.broadcast_to(scale[:, :, None], (ENTRIES, BLOCKS, _QUANT_BLOCK))
    return (_fp8_values(raw, FNUZ) * tl.reshape(scale, (ENTRIES, WIDTH))).to(tl.bfloat16)


@triton.jit
def _load_chunks(
    cache, slots, live, PAGE_STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, FNUZ: tl.constexpr, SCRUB: tl.constexpr
):
    """The four chunks of the entries at `slots`; entries that are not live touch no byte of slot 0 and read as 0."""
    slots = tl.where(live, slots, 0)
    page = (slots // BLOCK_SIZE).to(tl.int64) * PAGE_STRIDE
    place = slots % BLOCK_SIZE
    data = page + place * _DATA_BYTES
    codes = page + BLOCK_SIZE * _DATA_BYTES + place * _SCALE_BYTES
    chunk0 = _nope_chunk(cache, data, codes, live, 0, 2, FNUZ)
    chunk1 = _nope_chunk(cache, data, codes, live, 2, 2, FNUZ)
    chunk2 = _nope_chunk(cache, data, codes, live, 4, 2, FNUZ)
    nope = _nope_chunk(cache, data, codes, live, 6, 1, FNUZ)
    rope_at = (page // 2 + place * (_DATA_BYTES // 2) + _NOPE // 2)[:, None] + tl.arange(0, _ROPE)[None, :]
    rope = tl.load(cache.to(tl.pointer_type(tl.bfloat16)) + rope_at, mask=live[:, None], other=0.0)
    chunk3 = _beside(nope, rope)
    return _scrubbed(chunk0, SCRUB), _scrubbed(chunk1, SCRUB), _scrubbed(chunk2, SCRUB), _scrubbed(chunk3, SCRUB)


@triton.jit
def _attend_tile(
    state,
    q,
    heads_live,
    cache,
    slots,
    rows,
    PAGE_STRIDE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FNUZ: tl.constexpr,
    SCRUB: tl.constexpr,
    LOG2_SCALE: tl.constexpr,
):
    """The running softmax `state` after one more tile of entries."""
    m, l, acc0, acc1, acc2, acc3 = state
    live = (slots >= 0) & (slots < rows)
    chunk0, chunk1, chunk2, chunk3 = _load_chunks(cache, slots, live, PAGE_STRIDE, BLOCK_SIZE, FNUZ, SCRUB)
    k = _beside(_beside(chunk0, chunk1), _beside(chunk2, chunk3))
    scores = tl.dot(q, tl.trans(k)) * LOG2_SCALE
    counted = heads_live[:, None] & live[None, :]
    scores = tl.where(counted, scores, NEG)
    new_m = tl.maximum(m, tl.max(scores, 1))
    alpha = tl.exp2(m - new_m)
    p = tl.where(counted, tl.exp2(scores - new_m[:, None]), 0.0)
    l = l * alpha + tl.sum(p, 1)
    p = p.to(tl.bfloat16)
    decay = alpha[:, None]
    acc0 = tl.dot(p, chunk0, acc0 * decay)
    acc1 = tl.dot(p, chunk1, acc1 * decay)
    acc2 = tl.dot(p, chunk2, acc2 * decay)
    acc3 = tl.dot(p, chunk3, acc3 * decay)
    return new_m, l, acc0, acc1, acc2, acc3


@triton.jit
def _tiles(main_length, extra_length, SPLITS: tl.constexpr):
    """Tiles that a program walks when SPLITS programs share the row."""
    span = SPLITS * _TILE
    return (main_length + span - 1) // span + (extra_length + span - 1) // span


@triton.jit
def _working_splits(main_length, extra_length, NUM_SPLITS: tl.constexpr, ONE_WAVE_SPLITS: tl.constexpr):
    """How many programs work on the row; `selectors.live_splits` is the same rule for the host."""
    work = NUM_SPLITS
    if ONE_WAVE_SPLITS > _SHORT_SPLITS and ONE_WAVE_SPLITS < NUM_SPLITS:
        work = tl.where(_tiles(main_length, extra_length, ONE_WAVE_SPLITS) <= _SHORT_TILES, ONE_WAVE_SPLITS, work)
    return tl.where(_tiles(main_length, extra_length, _SHORT_SPLITS) <= _SHORT_TILES, _SHORT_SPLITS, work)


@triton.jit
def decode_partial_gfx950(
    q,
    main_cache,
    main_indices,
    main_indptr,
    extra_cache,
    extra_indices,
    extra_indptr,
    part_m,
    part_l,
    part_acc,
    main_rows,
    extra_rows,
    Q_STRIDE_T: tl.constexpr,
    Q_STRIDE_H: tl.constexpr,
    MAIN_PAGE_STRIDE: tl.constexpr,
    EXTRA_PAGE_STRIDE: tl.constexpr,
    MAIN_BLOCK_SIZE: tl.constexpr,
    EXTRA_BLOCK_SIZE: tl.constexpr,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    NOPE: tl.constexpr,
    ROPE: tl.constexpr,
    FNUZ_MAIN: tl.constexpr,
    FNUZ_EXTRA: tl.constexpr,
    TRUST_EXTRA: tl.constexpr,
    ADAPTIVE: tl.constexpr,
    ONE_WAVE_SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Write m, l and acc of (row, split, block of heads) = program ids to scratch; the module docstring explains how.

    Args:
        q: bf16 [rows, HEADS, 512], last dim contiguous.
        main_cache: uint8 pages of main records, `MAIN_PAGE_STRIDE` bytes apart.
        main_indices: int32 slots of all rows, one row after the other.
        main_indptr: int32 [rows + 1]; row t has entries main_indptr[t] to main_indptr[t + 1].
        extra_cache: uint8 pages of compressed records.
        extra_indices: int32, as for main; not read unless HAS_EXTRA.
        extra_indptr: int32 [rows + 1].
        part_m: fp32 [rows, NUM_SPLITS, HEADS], contiguous; -FLT_MAX where the slice holds no entry.
        part_l: fp32 [rows, NUM_SPLITS, HEADS].
        part_acc: fp32 [rows, NUM_SPLITS, HEADS, 512]; not written by programs that have no work to share.
        main_rows: Slots of the main cache; others are invalid.
        extra_rows: Slots of the extra cache.
        Q_STRIDE_T: Elements between two rows of q.
        Q_STRIDE_H: Elements between two heads of q.
        MAIN_PAGE_STRIDE: Bytes between two pages of the main cache; even.
        EXTRA_PAGE_STRIDE: Bytes between two pages of the extra cache; even.
        MAIN_BLOCK_SIZE: Records of a main page.
        EXTRA_BLOCK_SIZE: Records of an extra page.
        SCALE: Softmax scale, natural domain.
        HEADS: Query heads.
        HAS_EXTRA: Whether there is an extra segment.
        NOPE: 448, the only width that the chunks fit.
        ROPE: 64, likewise.
        FNUZ_MAIN: Whether main bytes are E4M3 FNUZ; OCP otherwise.
        FNUZ_EXTRA: The same for extra bytes.
        TRUST_EXTRA: Leave the NaN scrub out for extra entries.
        ADAPTIVE: Let the row choose how many programs work on it.
        ONE_WAVE_SPLITS: The middle choice of an adaptive row; NUM_SPLITS for none.
        BLOCK_H: 16, heads of a program.
        BLOCK_KV: 32, entries of a tile.
        NUM_SPLITS: Splits of the grid and of the scratch.
        NUM_STAGES: Pipeline stages of the loops.
    """
    tl.static_assert(NOPE == _NOPE and ROPE == _ROPE, "the chunks fit records of 448 and 64 dims")
    tl.static_assert(BLOCK_KV == _TILE, "a full group is peeled into two tiles of 32")
    row, split, head_block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    heads_live = tl.full((BLOCK_H,), True, tl.int1) if HEADS % BLOCK_H == 0 else heads < HEADS
    scratch = (row.to(tl.int64) * NUM_SPLITS + split) * HEADS

    main_first = tl.load(main_indptr + row)
    main_length = tl.load(main_indptr + row + 1) - main_first
    extra_first = 0
    extra_length = 0
    if HAS_EXTRA:
        extra_first = tl.load(extra_indptr + row)
        extra_length = tl.load(extra_indptr + row + 1) - extra_first

    work = NUM_SPLITS
    if ADAPTIVE:
        work = _working_splits(main_length, extra_length, NUM_SPLITS, ONE_WAVE_SPLITS)
        if split >= work:
            tl.store(part_m + scratch + heads, tl.full((BLOCK_H,), NEG, tl.float32), mask=heads_live)
            tl.store(part_l + scratch + heads, tl.full((BLOCK_H,), 0.0, tl.float32), mask=heads_live)
            return

    lanes = tl.arange(0, _HEAD_DIM // 2)
    q_base = q + row.to(tl.int64) * Q_STRIDE_T
    q_at = heads[:, None] * Q_STRIDE_H + lanes[None, :]
    q_low = tl.load(q_base + q_at, mask=heads_live[:, None], other=0.0)
    q_high = tl.load(q_base + q_at + _HEAD_DIM // 2, mask=heads_live[:, None], other=0.0)
    q_tile = _beside(q_low, q_high)

    zero = tl.full((BLOCK_H, _CHUNK), 0.0, tl.float32)
    state = (
        tl.full((BLOCK_H,), NEG, tl.float32),
        tl.full((BLOCK_H,), 0.0, tl.float32),
        zero,
        zero,
        zero,
        zero,
    )
    LOG2_SCALE: tl.constexpr = SCALE * LOG2E
    tile = tl.arange(0, BLOCK_KV)

    chunk = (main_length + work - 1) // work
    first = split * chunk
    end = tl.minimum(first + chunk, main_length)
    for start in tl.range(first, end, BLOCK_KV, num_stages=NUM_STAGES):
        place = start + tile
        slots = tl.load(main_indices + main_first + place, mask=place < end, other=-1)
        state = _attend_tile(
            state, q_tile, heads_live, main_cache, slots, main_rows,
            MAIN_PAGE_STRIDE, MAIN_BLOCK_SIZE, FNUZ_MAIN, True, LOG2_SCALE,
        )  # fmt: skip

    if HAS_EXTRA:
        chunk = (extra_length + work - 1) // work
        first = split * chunk
        end = tl.minimum(first + chunk, extra_length)
        full_end = first + tl.maximum(end - first, 0) // _GROUP * _GROUP
        for start in tl.range(first, full_end, _GROUP, num_stages=NUM_STAGES):
            group = tl.load(extra_indices + extra_first + start + tl.arange(0, _GROUP))
            early, late = tl.split(tl.trans(tl.reshape(group, (2, BLOCK_KV))))
            state = _attend_tile(
                state, q_tile, heads_live, extra_cache, early, extra_rows,
                EXTRA_PAGE_STRIDE, EXTRA_BLOCK_SIZE, FNUZ_EXTRA, not TRUST_EXTRA, LOG2_SCALE,
            )  # fmt: skip
            state = _attend_tile(
                state, q_tile, heads_live, extra_cache, late, extra_rows,
                EXTRA_PAGE_STRIDE, EXTRA_BLOCK_SIZE, FNUZ_EXTRA, not TRUST_EXTRA, LOG2_SCALE,
            )  # fmt: skip
        for tail in tl.static_range(2):
            start = full_end + tail * BLOCK_KV
            if start < end:
                place = start + tile
                slots = tl.load(extra_indices + extra_first + place, mask=place < end, other=-1)
                state = _attend_tile(
                    state, q_tile, heads_live, extra_cache, slots, extra_rows,
                    EXTRA_PAGE_STRIDE, EXTRA_BLOCK_SIZE, FNUZ_EXTRA, not TRUST_EXTRA, LOG2_SCALE,
                )  # fmt: skip

    m, l, acc0, acc1, acc2, acc3 = state
    tl.store(part_m + scratch + heads, tl.where(l > 0.0, m * LN2, NEG), mask=heads_live)
    tl.store(part_l + scratch + heads, l, mask=heads_live)
    acc_base = part_acc + scratch * _HEAD_DIM
    acc_at = heads[:, None] * _HEAD_DIM + tl.arange(0, _CHUNK)[None, :]
    tl.store(acc_base + acc_at, acc0, mask=heads_live[:, None])
    tl.store(acc_base + acc_at + _CHUNK, acc1, mask=heads_live[:, None])
    tl.store(acc_base + acc_at + 2 * _CHUNK, acc2, mask=heads_live[:, None])
    tl.store(acc_base + acc_at + 3 * _CHUNK, acc3, mask=heads_live[:, None])
