"""gfx942 and gfx950: merging the slices of a row into its output (split-K, second of two kernels).

One program merges one head of one row. Every slice left its maximum m, denominator l and numerator acc in scratch; the
output is sum(w * acc) / sum(w * l) with w = exp(m - M), where M is the largest m. A sink counts in M and in the
denominator only. A row without any entry gets zeros.

In an adaptive launch the slices that had no work to share left m at -FLT_MAX and never wrote acc, which may hold
anything: they are recognised by m, weigh nothing, and their acc is not read.
"""

import triton
import triton.language as tl

from .constants import NEG, TINY


@triton.jit(do_not_specialize=["heads"])
def decode_reduce(
    part_m,
    part_l,
    part_acc,
    sink,
    out,
    out_stride_t,
    out_stride_h,
    heads,
    HAS_SINK: tl.constexpr,
    ADAPTIVE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
):
    """Write the output of (row, head) = program ids.

    Args:
        part_m: fp32 [rows, NUM_SPLITS, heads], contiguous; -FLT_MAX where a slice held no entry.
        part_l: fp32 [rows, NUM_SPLITS, heads].
        part_acc: fp32 [rows, NUM_SPLITS, heads, HEAD_DIM].
        sink: fp32 [heads]; not read unless HAS_SINK.
        out: [rows, heads, HEAD_DIM], last dim contiguous; its dtype is what is stored.
        out_stride_t: Elements between two rows of out.
        out_stride_h: Elements between two heads of out.
        heads: Query heads.
        HAS_SINK: Whether there is a sink.
        ADAPTIVE: Whether slices may have left acc unwritten.
        HEAD_DIM: 512.
        NUM_SPLITS: Splits of the scratch.
        SPLITS_PAD: The power of two that holds NUM_SPLITS.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = row * NUM_SPLITS * heads + head
    splits = tl.arange(0, SPLITS_PAD)
    present = splits < NUM_SPLITS
    m = tl.load(part_m + first + splits * heads, mask=present, other=NEG)
    l = tl.load(part_l + first + splits * heads, mask=present, other=0.0)
    if ADAPTIVE:
        present = m > NEG
        m = tl.where(present, m, NEG)
        l = tl.where(present, l, 0.0)
    final_m = tl.max(m, 0)
    if HAS_SINK:
        logit = tl.load(sink + head)
        final_m = tl.maximum(final_m, logit)
    total = tl.sum(tl.where(present, tl.exp(m - final_m), 0.0) * l, 0)
    if HAS_SINK:
        total += tl.exp(logit - final_m)

    # Each weight is derived again from its own m, so that no load waits for the sum above.
    lanes = tl.arange(0, HEAD_DIM)
    acc = tl.full((HEAD_DIM,), 0.0, tl.float32)
    for split in tl.static_range(NUM_SPLITS):
        at = first + split * heads
        split_m = tl.load(part_m + at)
        numerator = part_acc + at * HEAD_DIM + lanes
        if ADAPTIVE:
            live = split_m > NEG
            weight = tl.where(live, tl.exp(split_m - final_m), 0.0)
            acc += weight * tl.load(numerator, mask=lanes < tl.where(live, HEAD_DIM, 0), other=0.0)
        else:
            acc += tl.exp(split_m - final_m) * tl.load(numerator)
    result = tl.where(total > 0.0, acc / tl.maximum(total, TINY), 0.0)
    tl.store(out + row * out_stride_t + head * out_stride_h + lanes, result.to(out.dtype.element_ty))
