"""gfx942 and gfx950: merging the slices of a row into its output (split-K, second of two kernels).

One program merges one head of one row. Every slice left its maximum m, denominator l and numerator acc in scratch; the
output is sum(w * acc) / sum(w * l) with w = exp(m - M), where M is the largest m. A sink counts in M and in the
denominator only. A row without any entry gets zeros.

In an adaptive launch the slices that had no work to share left m at -FLT_MAX and never wrote acc, which may hold
anything: they are recognised by m, weigh nothing, and their acc is not read.
"""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Joint, Kernel, Pointer, Space

from . import layout, selectors, serving
from .constants import NEG, TINY
from .launchers import LAUNCH_OPTIONS


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


_ARGUMENTS = {
    "part_m": Pointer("fp32", storage="small"),
    "part_l": Pointer("fp32", storage="small"),
    "part_acc": Pointer("fp32", storage="small"),
    "sink": Pointer("fp32", storage="small"),
    "out": Pointer("bf16", storage="small"),
    "out_stride_t": Int(classes=("16",)),
    "out_stride_h": Int(classes=("16",)),
    "heads": Int(classes=("any",)),
    "HAS_SINK": Constexpr(False, True),
    "HEAD_DIM": layout.HEAD_DIM,
}
_LEGACY_PLANS = tuple((splits, False) for splits in range(1, selectors.LEGACY_MAX_SPLITS + 1))


def _plans(plans: tuple[tuple[int, bool], ...]) -> Joint:
    """Splits, their power of two, and whether the launch is adaptive."""
    rows = tuple((splits, 1 << (splits - 1).bit_length(), adaptive) for splits, adaptive in plans)
    return Joint(("NUM_SPLITS", "SPLITS_PAD", "ADAPTIVE"), rows)


KERNELS = (
    Kernel(
        decode_reduce,
        *(
            Space((target,), _ARGUMENTS, joint=(_plans(plans),), options=LAUNCH_OPTIONS["decode_reduce"])
            for target, plans in (
                ("gfx942", _LEGACY_PLANS),
                ("gfx950", serving.reducer_plans()),
                ("cuda:90", tuple(sorted({*_LEGACY_PLANS, *serving.reducer_plans(serving.H200)}))),
            )
        ),
    ),
)
"""The split plans of each target, with and without a sink."""
