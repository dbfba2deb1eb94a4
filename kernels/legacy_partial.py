"""gfx942: partial sparse-MLA attention of one slice of a row (split-K, first of two kernels).

One program attends 16 query heads of one row to one slice of the row's main entries and then to one slice of its extra
(compressed) entries, in tiles of 32. Its maximum m, denominator l and numerator acc go to scratch, unnormalised and
without the sink; the reducer merges the slices. Slices without an entry store "no value" and zeros.

Strides, sizes and the scale are run-time values here. How a tile is attended is in `legacy_tile`.
"""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Float, Int, Kernel, Pointer, Space

from . import layout, selectors
from .launchers import LAUNCH_OPTIONS
from .legacy_tile import attend_entries, empty_state, load_query


@triton.jit
def decode_partial_legacy(
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
    q_stride_t,
    q_stride_h,
    main_page_stride,
    extra_page_stride,
    part_m_stride_t,
    part_m_stride_s,
    part_acc_stride_t,
    part_acc_stride_s,
    part_acc_stride_h,
    main_rows,
    extra_rows,
    main_block_size,
    extra_block_size,
    scale,
    heads,
    HAS_EXTRA: tl.constexpr,
    NOPE: tl.constexpr,
    NOPE_BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
    FNUZ_MAIN: tl.constexpr,
    FNUZ_EXTRA: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Write m, l and acc of (row, split, block of heads) = program ids to scratch; the module docstring explains how.

    Args:
        q: bf16 [rows, heads, 512], last dim contiguous.
        main_cache: uint8 pages of main records, `main_page_stride` bytes apart.
        main_indices: int32 slots of all rows, one row after the other.
        main_indptr: int32 [rows + 1]; row t has entries main_indptr[t] to main_indptr[t + 1].
        extra_cache: uint8 pages of compressed records.
        extra_indices: int32, as for main; not read unless HAS_EXTRA.
        extra_indptr: int32 [rows + 1].
        part_m: fp32 [rows, NUM_SPLITS, heads]; -FLT_MAX where the slice holds no entry.
        part_l: fp32 [rows, NUM_SPLITS, heads], strides as part_m.
        part_acc: fp32 [rows, NUM_SPLITS, heads, 512], last dim contiguous.
        q_stride_t: Elements between two rows of q.
        q_stride_h: Elements between two heads of q.
        main_page_stride: Bytes between two pages of the main cache.
        extra_page_stride: Bytes between two pages of the extra cache.
        part_m_stride_t: Elements between two rows of part_m.
        part_m_stride_s: Elements between two splits of part_m.
        part_acc_stride_t: Elements between two rows of part_acc.
        part_acc_stride_s: Elements between two splits of part_acc.
        part_acc_stride_h: Elements between two heads of part_acc.
        main_rows: Slots of the main cache; others are invalid.
        extra_rows: Slots of the extra cache.
        main_block_size: Records of a main page.
        extra_block_size: Records of an extra page.
        scale: Softmax scale, natural domain.
        heads: Query heads.
        HAS_EXTRA: Whether there is an extra segment.
        NOPE: 448 fp8 dims of a record.
        NOPE_BLOCK: 512, the power of two that holds them.
        ROPE: 64 bf16 dims of a record.
        FNUZ_MAIN: Whether main bytes are E4M3 FNUZ; OCP otherwise.
        FNUZ_EXTRA: The same for extra bytes.
        BLOCK_H: 16, heads of a program.
        BLOCK_KV: 32, entries of a tile.
        NUM_SPLITS: Splits of the grid and of the scratch.
        NUM_STAGES: Pipeline stages of the loops.
    """
    row, split, head_block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    head = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    heads_live = head < heads
    q_nope, q_rope = load_query(q + row * q_stride_t, head, heads_live, q_stride_h, NOPE, NOPE_BLOCK, ROPE)
    state = empty_state(BLOCK_H, NOPE_BLOCK, ROPE)

    start = tl.load(main_indptr + row)
    length = tl.load(main_indptr + row + 1) - start
    chunk = (length + NUM_SPLITS - 1) // NUM_SPLITS
    first = split * chunk
    end = tl.minimum(first + chunk, length)
    state = attend_entries(
        state, q_nope, q_rope, heads_live, main_cache, main_indices, start + first, start + end, main_rows,
        main_page_stride, main_block_size, scale, FNUZ_MAIN, NOPE, NOPE_BLOCK, ROPE, BLOCK_KV, NUM_STAGES,
    )  # fmt: skip
    if HAS_EXTRA:
        start = tl.load(extra_indptr + row)
        length = tl.load(extra_indptr + row + 1) - start
        chunk = (length + NUM_SPLITS - 1) // NUM_SPLITS
        first = split * chunk
        end = tl.minimum(first + chunk, length)
        state = attend_entries(
            state, q_nope, q_rope, heads_live, extra_cache, extra_indices, start + first, start + end, extra_rows,
            extra_page_stride, extra_block_size, scale, FNUZ_EXTRA, NOPE, NOPE_BLOCK, ROPE, BLOCK_KV, NUM_STAGES,
        )  # fmt: skip

    m, l, acc_nope, acc_rope = state
    at = row * part_m_stride_t + split * part_m_stride_s + head
    tl.store(part_m + at, m, mask=heads_live)
    tl.store(part_l + at, l, mask=heads_live)
    base = part_acc + row * part_acc_stride_t + split * part_acc_stride_s + head[:, None] * part_acc_stride_h
    lanes = tl.arange(0, NOPE_BLOCK)
    tl.store(base + lanes[None, :], acc_nope, mask=heads_live[:, None] & (lanes < NOPE)[None, :])
    tl.store(base + NOPE + tl.arange(0, ROPE)[None, :], acc_rope, mask=heads_live[:, None])


_STRIDE = Int(classes=("16",))
_SIZE = Int(classes=("any",))
_ARGUMENTS = {
    "q": Pointer("bf16", storage="small"),
    "main_cache": Pointer("u8"),
    "main_indices": Pointer("i32", storage="small"),
    "main_indptr": Pointer("i32", storage="small"),
    "extra_cache": Pointer("u8"),
    "extra_indices": Pointer("i32", storage="small"),
    "extra_indptr": Pointer("i32", storage="small"),
    "part_m": Pointer("fp32", storage="small"),
    "part_l": Pointer("fp32", storage="small"),
    "part_acc": Pointer("fp32", storage="small"),
    "q_stride_t": _STRIDE,
    "q_stride_h": _STRIDE,
    "main_page_stride": _STRIDE,
    "extra_page_stride": _STRIDE,
    "part_m_stride_t": _SIZE,
    "part_m_stride_s": _SIZE,
    "part_acc_stride_t": _STRIDE,
    "part_acc_stride_s": _STRIDE,
    "part_acc_stride_h": _STRIDE,
    "main_rows": _SIZE,
    "extra_rows": _SIZE,
    "main_block_size": _SIZE,
    "extra_block_size": _SIZE,
    "scale": Float(),
    "heads": _SIZE,
    "HAS_EXTRA": Constexpr(False, True),
    "NOPE": layout.NOPE,
    "NOPE_BLOCK": 512,
    "ROPE": layout.ROPE,
    "FNUZ_EXTRA": False,
    "BLOCK_H": 16,
    "BLOCK_KV": selectors.TILE,
    "NUM_SPLITS": Constexpr(*range(1, selectors.LEGACY_MAX_SPLITS + 1)),
    "NUM_STAGES": 1,
}

KERNELS = (
    Kernel(
        decode_partial_legacy,
        *(
            Space((target,), {**_ARGUMENTS, "FNUZ_MAIN": fnuz}, options=LAUNCH_OPTIONS["decode_partial_legacy"])
            for target, fnuz in (("gfx942", True), ("cuda:90", False))
        ),
    ),
)
"""Every split count, for caches of up to 2 GiB and of any size.

Strides that address bytes of a cache or whole vectors are multiples of 16; what only counts gets the class that assumes
nothing, because no load or store becomes wider by knowing more.
"""
