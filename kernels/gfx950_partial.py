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
filled holds none: `TRUST_EXTRA` leaves the scrub out for it. Infinities in K, and whatever is in q, are attended as
they are: a score of +inf or NaN makes the output of its head NaN, in adaptive launches and others (docs/kernels.md).

With `ADAPTIVE`, a row chooses from its live lengths how many of the `NUM_SPLITS` programs work on it: grid and scratch
were fixed when a graph was captured, lengths were not. The others only store "no value".

Strides, scale and head count are compile-time values: a server has one of each, and no integer forks variants. Nothing
here is shared with the gfx942 kernels, so that a change here leaves their machine code alone.

Triton 3.9.0 compiles it for gfx950 to about 235 VGPRs and 32,768 bytes of LDS, without spills and scratch, so that two
workgroups fit a compute unit. A tile is 40 v_mfma_f32_16x16x32_bf16 in each wave; its three whole NoPE chunks and its
rotated dims come in 16-byte loads. The release policy (`audits/policy.toml`) holds every variant to that.
"""

import triton
import triton.language as tl

from aotkern.spec import Int, Joint, Kernel, Pointer, Space

from . import layout, selectors, serving
from .constants import LN2, LOG2E, NEG
from .gfx950_tile import attend_tile, beside
from .launchers import LAUNCH_OPTIONS

_NOPE = tl.constexpr(layout.NOPE)
_ROPE = tl.constexpr(layout.ROPE)
_HEAD_DIM = tl.constexpr(layout.HEAD_DIM)
_CHUNK = tl.constexpr(layout.HEAD_DIM // 4)
_GROUP = tl.constexpr(2 * selectors.TILE)
_TILE = tl.constexpr(selectors.TILE)
_SHORT_SPLITS = tl.constexpr(selectors.SHORT_SPLITS)
_SHORT_TILES = tl.constexpr(selectors.SHORT_TILES)


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
def _slice(length, split, work):
    """First and past-the-last entry of slice `split` out of `work`; the first may exceed the last."""
    chunk = (length + work - 1) // work
    first = split * chunk
    return first, tl.minimum(first + chunk, length)


@triton.jit
def _attend_guarded(
    state, q, heads_live, cache, indices, place, end, rows,
    PAGE_STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, FNUZ: tl.constexpr, SCRUB: tl.constexpr,
    LOG2_SCALE: tl.constexpr,
):  # fmt: skip
    """The running softmax after the entries `place`, as far as they stand before `end`."""
    slots = tl.load(indices + place, mask=place < end, other=-1)
    return attend_tile(state, q, heads_live, cache, slots, rows, PAGE_STRIDE, BLOCK_SIZE, FNUZ, SCRUB, LOG2_SCALE)


@triton.jit
def _attend_extra(
    state, q, heads_live, cache, indices, first, end, rows,
    PAGE_STRIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr, FNUZ: tl.constexpr, SCRUB: tl.constexpr,
    LOG2_SCALE: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    """The running softmax after the entries first to end: full groups of 64, then at most two guarded tiles."""
    full_end = first + tl.maximum(end - first, 0) // _GROUP * _GROUP
    for start in tl.range(first, full_end, _GROUP, num_stages=NUM_STAGES):
        group = tl.load(indices + start + tl.arange(0, _GROUP))
        early, late = tl.split(tl.trans(tl.reshape(group, (2, _TILE))))
        state = attend_tile(state, q, heads_live, cache, early, rows, PAGE_STRIDE, BLOCK_SIZE, FNUZ, SCRUB, LOG2_SCALE)
        state = attend_tile(state, q, heads_live, cache, late, rows, PAGE_STRIDE, BLOCK_SIZE, FNUZ, SCRUB, LOG2_SCALE)
    for tail in tl.static_range(2):
        start = full_end + tail * _TILE
        if start < end:
            state = _attend_guarded(
                state, q, heads_live, cache, indices, start + tl.arange(0, _TILE), end, rows,
                PAGE_STRIDE, BLOCK_SIZE, FNUZ, SCRUB, LOG2_SCALE,
            )  # fmt: skip
    return state


@triton.jit
def _load_query(q, heads, heads_live, STRIDE_H: tl.constexpr):
    """The query of a block of heads, bf16 [heads, 512], in two halves laid side by side; other heads are 0."""
    at = heads[:, None] * STRIDE_H + tl.arange(0, _HEAD_DIM // 2)[None, :]
    low = tl.load(q + at, mask=heads_live[:, None], other=0.0)
    high = tl.load(q + at + _HEAD_DIM // 2, mask=heads_live[:, None], other=0.0)
    return beside(low, high)


@triton.jit
def _store_slice(state, part_m, part_l, part_acc, scratch, heads, heads_live):
    """Store a running softmax at `scratch` plus each head, so that the reducer loses nothing of it.

    The reducer takes m = -FLT_MAX for "no entry", and a sum of denominators that is NaN for "no entry in any slice".
    So -FLT_MAX stands only where nothing was gathered: an entry whose score is -inf weighs nothing, but its infinite
    lanes make NaN of acc, which is kept. And a NaN denominator, behind which all of acc is NaN, is stored as 1 with a
    maximum above every score: the output is NaN then.
    """
    m, l, acc0, acc1, acc2, acc3 = state
    gathered = (l != 0.0) | (tl.sum(acc0 + acc1 + acc2 + acc3, 1) != 0.0)
    broken = l != l
    natural_m = tl.where(gathered, m * LN2, NEG)
    tl.store(part_m + scratch + heads, tl.where(broken, -NEG, natural_m), mask=heads_live)
    tl.store(part_l + scratch + heads, tl.where(broken, 1.0, l), mask=heads_live)
    base = part_acc + scratch * _HEAD_DIM
    at = heads[:, None] * _HEAD_DIM + tl.arange(0, _CHUNK)[None, :]
    tl.store(base + at, acc0, mask=heads_live[:, None])
    tl.store(base + at + _CHUNK, acc1, mask=heads_live[:, None])
    tl.store(base + at + 2 * _CHUNK, acc2, mask=heads_live[:, None])
    tl.store(base + at + 3 * _CHUNK, acc3, mask=heads_live[:, None])


@triton.jit(do_not_specialize=["main_rows", "extra_rows"])
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
        part_m: fp32 [rows, NUM_SPLITS, HEADS], contiguous; -FLT_MAX where the slice holds no entry, FLT_MAX where
            it is NaN.
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

    q_tile = _load_query(q + row.to(tl.int64) * Q_STRIDE_T, heads, heads_live, Q_STRIDE_H)
    zero = tl.full((BLOCK_H, _CHUNK), 0.0, tl.float32)
    state = (tl.full((BLOCK_H,), NEG, tl.float32), tl.full((BLOCK_H,), 0.0, tl.float32), zero, zero, zero, zero)
    LOG2_SCALE: tl.constexpr = SCALE * LOG2E
    first, end = _slice(main_length, split, work)
    for start in tl.range(first, end, BLOCK_KV, num_stages=NUM_STAGES):
        state = _attend_guarded(
            state, q_tile, heads_live, main_cache, main_indices + main_first, start + tl.arange(0, BLOCK_KV), end,
            main_rows, MAIN_PAGE_STRIDE, MAIN_BLOCK_SIZE, FNUZ_MAIN, True, LOG2_SCALE,
        )  # fmt: skip
    if HAS_EXTRA:
        first, end = _slice(extra_length, split, work)
        state = _attend_extra(
            state, q_tile, heads_live, extra_cache, extra_indices + extra_first, first, end, extra_rows,
            EXTRA_PAGE_STRIDE, EXTRA_BLOCK_SIZE, FNUZ_EXTRA, not TRUST_EXTRA, LOG2_SCALE, NUM_STAGES,
        )  # fmt: skip

    _store_slice(state, part_m, part_l, part_acc, scratch, heads, heads_live)


_ARGUMENTS = {
    "q": Pointer("bf16", storage="small"),
    "main_cache": Pointer("u8", storage="any"),
    "main_indices": Pointer("i32", storage="small"),
    "main_indptr": Pointer("i32", storage="small"),
    "extra_cache": Pointer("u8", storage="any"),
    "extra_indices": Pointer("i32", storage="small"),
    "extra_indptr": Pointer("i32", storage="small"),
    "part_m": Pointer("fp32", storage="small"),
    "part_l": Pointer("fp32", storage="small"),
    "part_acc": Pointer("fp32", storage="small"),
    "main_rows": Int(classes=("any",)),
    "extra_rows": Int(classes=("any",)),
    "Q_STRIDE_H": layout.HEAD_DIM,
    "MAIN_PAGE_STRIDE": layout.page_stride(layout.MAIN_BLOCK_SIZE),
    "MAIN_BLOCK_SIZE": layout.MAIN_BLOCK_SIZE,
    "SCALE": layout.SOFTMAX_SCALE,
    "NOPE": layout.NOPE,
    "ROPE": layout.ROPE,
    "FNUZ_MAIN": False,
    "FNUZ_EXTRA": False,
    "BLOCK_H": 16,
    "BLOCK_KV": selectors.TILE,
    "NUM_STAGES": 1,
}
_LAYER = ("HAS_EXTRA", "EXTRA_BLOCK_SIZE", "EXTRA_PAGE_STRIDE", "TRUST_EXTRA")
_PLAN = ("NUM_SPLITS", "ADAPTIVE", "ONE_WAVE_SPLITS")


def _space(target: str, heads: tuple[int, ...], layer: serving.Layer, plans: tuple[selectors.SplitPlan, ...]) -> Space:
    """Launches of a layer, with trusted and untrusted reading where it has a compressed cache."""
    size = layer.block_size or layout.MAIN_BLOCK_SIZE
    reading = [
        (layer.block_size is not None, size, layout.page_stride(size), trust)
        for trust in ((False, True) if layer.block_size else (False,))
    ]
    values = [(plan.splits, plan.adaptive, plan.one_wave) for plan in plans]
    launches = Joint((*_LAYER, *_PLAN), tuple((*kind, *plan) for kind in reading for plan in values))
    strides = Joint(("HEADS", "Q_STRIDE_T"), tuple((number, number * layout.HEAD_DIM) for number in heads))
    return Space((target,), _ARGUMENTS, joint=(strides, launches), options=LAUNCH_OPTIONS["decode_partial_gfx950"])


KERNELS = (
    Kernel(
        decode_partial_gfx950,
        *(_space("gfx950", serving.HEADS, layer, serving.split_plans(layer)) for layer in serving.LAYERS),
        *(
            _space("cuda:90", serving.HEADS[:1], layer, serving.split_plans(layer, serving.H200))
            for layer in serving.LAYERS
        ),
    ),
)
"""For gfx950 what a server asks, for caches of any size; for CUDA, where the kernel is only compared, a part of it.

A pool of pages is larger than 2 GiB on any server. Variants for small pools would be other binaries, and would double
the bundle for launches that hardly happen; the ones for any size serve them too.
"""
