"""gfx942: sparse-MLA attention of one row in one program, without splits and without a reducer.

One program attends 16 query heads of one row to all main entries and then to all extra entries, in tiles of 16, adds
the sink to the denominator and stores the output. Few rows leave most of the device idle, which is why the split kernel
is what a decode call gets; this one runs on request only, as the plainest way to the same result.

How a tile is attended is in `legacy_tile`.
"""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Float, Int, Kernel, Pointer, Space

from . import layout
from .constants import TINY
from .launchers import LAUNCH_OPTIONS
from .legacy_tile import attend_entries, empty_state, load_query


@triton.jit
def decode_monolithic(
    q,
    main_cache,
    main_indices,
    main_indptr,
    extra_cache,
    extra_indices,
    extra_indptr,
    sink,
    out,
    q_stride_t,
    q_stride_h,
    out_stride_t,
    out_stride_h,
    main_page_stride,
    extra_page_stride,
    main_rows,
    extra_rows,
    main_block_size,
    extra_block_size,
    scale,
    heads,
    HAS_SINK: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    NOPE: tl.constexpr,
    NOPE_BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
    FNUZ_MAIN: tl.constexpr,
    FNUZ_EXTRA: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_KV: tl.constexpr,
):
    """Write the output of (row, block of heads) = program ids; the module docstring explains how.

    Args:
        q: bf16 [rows, heads, 512], last dim contiguous.
        main_cache: uint8 pages of main records, `main_page_stride` bytes apart.
        main_indices: int32 slots of all rows, one row after the other.
        main_indptr: int32 [rows + 1]; row t has entries main_indptr[t] to main_indptr[t + 1].
        extra_cache: uint8 pages of compressed records.
        extra_indices: int32, as for main; not read unless HAS_EXTRA.
        extra_indptr: int32 [rows + 1].
        sink: fp32 [heads], the logit that only the denominator gets; not read unless HAS_SINK.
        out: [rows, heads, 512], last dim contiguous.
        q_stride_t: Elements between two rows of q.
        q_stride_h: Elements between two heads of q.
        out_stride_t: Elements between two rows of out.
        out_stride_h: Elements between two heads of out.
        main_page_stride: Bytes between two pages of the main cache.
        extra_page_stride: Bytes between two pages of the extra cache.
        main_rows: Slots of the main cache; others are invalid.
        extra_rows: Slots of the extra cache.
        main_block_size: Records of a main page.
        extra_block_size: Records of an extra page.
        scale: Softmax scale, natural domain.
        heads: Query heads.
        HAS_SINK: Whether there is a sink.
        HAS_EXTRA: Whether there is an extra segment.
        NOPE: 448 fp8 dims of a record.
        NOPE_BLOCK: 512, the power of two that holds them.
        ROPE: 64 bf16 dims of a record.
        FNUZ_MAIN: Whether main bytes are E4M3 FNUZ; OCP otherwise.
        FNUZ_EXTRA: The same for extra bytes.
        BLOCK_H: 16, heads of a program.
        BLOCK_KV: 16, entries of a tile.
    """
    row, head_block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    heads_live = head < heads
    q_nope, q_rope = load_query(q + row * q_stride_t, head, heads_live, q_stride_h, NOPE, NOPE_BLOCK, ROPE)
    state = empty_state(BLOCK_H, NOPE_BLOCK, ROPE)
    state = attend_entries(
        state, q_nope, q_rope, heads_live, main_cache, main_indices,
        tl.load(main_indptr + row), tl.load(main_indptr + row + 1), main_rows,
        main_page_stride, main_block_size, scale, FNUZ_MAIN, NOPE, NOPE_BLOCK, ROPE, BLOCK_KV, 1,
    )  # fmt: skip
    if HAS_EXTRA:
        state = attend_entries(
            state, q_nope, q_rope, heads_live, extra_cache, extra_indices,
            tl.load(extra_indptr + row), tl.load(extra_indptr + row + 1), extra_rows,
            extra_page_stride, extra_block_size, scale, FNUZ_EXTRA, NOPE, NOPE_BLOCK, ROPE, BLOCK_KV, 1,
        )  # fmt: skip

    m, l, acc_nope, acc_rope = state
    weight = tl.full((BLOCK_H,), 1.0, tl.float32)
    if HAS_SINK:
        logit = tl.load(sink + head, mask=heads_live, other=float("-inf"))
        final_m = tl.maximum(m, logit)
        weight = tl.exp(m - final_m)
        l = l * weight + tl.exp(logit - final_m)
    weight = tl.where(l > 0.0, weight / tl.maximum(l, TINY), 0.0)
    base = out + row * out_stride_t + head[:, None] * out_stride_h
    lanes = tl.arange(0, NOPE_BLOCK)
    nope = (acc_nope * weight[:, None]).to(out.dtype.element_ty)
    rope = (acc_rope * weight[:, None]).to(out.dtype.element_ty)
    tl.store(base + lanes[None, :], nope, mask=heads_live[:, None] & (lanes < NOPE)[None, :])
    tl.store(base + NOPE + tl.arange(0, ROPE)[None, :], rope, mask=heads_live[:, None])


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
    "sink": Pointer("fp32", storage="small"),
    "out": Pointer("bf16", storage="small"),
    "q_stride_t": _STRIDE,
    "q_stride_h": _STRIDE,
    "out_stride_t": _STRIDE,
    "out_stride_h": _STRIDE,
    "main_page_stride": _STRIDE,
    "extra_page_stride": _STRIDE,
    "main_rows": _SIZE,
    "extra_rows": _SIZE,
    "main_block_size": _SIZE,
    "extra_block_size": _SIZE,
    "scale": Float(),
    "heads": _SIZE,
    "HAS_SINK": Constexpr(False, True),
    "HAS_EXTRA": Constexpr(False, True),
    "NOPE": layout.NOPE,
    "NOPE_BLOCK": 512,
    "ROPE": layout.ROPE,
    "FNUZ_EXTRA": False,
    "BLOCK_H": 16,
    "BLOCK_KV": 16,
}

KERNELS = (
    Kernel(
        decode_monolithic,
        *(
            Space((target,), {**_ARGUMENTS, "FNUZ_MAIN": fnuz}, options=LAUNCH_OPTIONS["decode_monolithic"])
            for target, fnuz in (("gfx942", True), ("cuda:90", False))
        ),
    ),
)
"""With and without sink and extra segment, for caches of up to 2 GiB and of any size."""
