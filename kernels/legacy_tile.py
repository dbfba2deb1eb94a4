"""gfx942: one tile of entries, as the split kernel and the monolithic kernel of that chip both need it.

A record is taken as two blocks: the 448 fp8 dims, padded to 512 lanes that read as 0, and the 64 bf16 dims. Scores are
the sum of two dots, values go to two accumulators, and the running softmax is in the natural domain. NaN lanes are
always read as 0, in both caches.
"""

import triton
import triton.language as tl

from . import layout
from .constants import NEG

_QUANT_BLOCK = tl.constexpr(layout.QUANT_BLOCK)
_QUANT_BLOCKS = tl.constexpr(layout.QUANT_BLOCKS)
_DATA_BYTES = tl.constexpr(layout.DATA_BYTES)
_SCALE_BYTES = tl.constexpr(layout.SCALE_BYTES)
_SCALE_BIAS = tl.constexpr(layout.SCALE_BIAS)


@triton.jit
def _scrubbed(block, live):
    """NaN lanes of a bf16 block as +0; whether a number is one is asked in fp32, as chips without bf16 compares do."""
    values = block.to(tl.float32)
    return tl.where((values == values) & live[:, None], block, 0.0)


@triton.jit
def load_tile(
    cache,
    slots,
    live,
    page_stride,
    block_size,
    FNUZ: tl.constexpr,
    NOPE: tl.constexpr,
    NOPE_BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
):
    """The records at `slots` as bf16 blocks [entries, NOPE_BLOCK] and [entries, ROPE]; entries that are not live are 0.

    The scrub asks for live entries, though the masked loads have made the others 0 already: a result that depends on
    more than loads keeps Triton from moving the layout change for the dots above the dequantisation, which would then
    be done once for each dot, in so many registers that some spill.
    """
    ENTRIES: tl.constexpr = slots.shape[0]
    BLOCKS: tl.constexpr = NOPE_BLOCK // _QUANT_BLOCK
    slots = tl.where(live, slots, 0)
    page = (slots // block_size).to(tl.int64) * page_stride
    place = slots % block_size
    data = page + place * _DATA_BYTES
    codes = page + block_size * _DATA_BYTES + place * _SCALE_BYTES

    lanes = tl.arange(0, NOPE_BLOCK)
    raw = tl.load(cache + data[:, None] + lanes[None, :], mask=live[:, None] & (lanes < NOPE)[None, :], other=0)
    blocks = tl.arange(0, BLOCKS)
    code = tl.load(
        cache + codes[:, None] + blocks[None, :],
        mask=live[:, None] & (blocks < _QUANT_BLOCKS)[None, :],
        other=_SCALE_BIAS,
    )
    scale = tl.exp2(code.to(tl.float32) - _SCALE_BIAS).to(tl.bfloat16)
    scale = tl.broadcast_to(scale[:, :, None], (ENTRIES, BLOCKS, _QUANT_BLOCK))
    if FNUZ:
        values = raw.to(tl.float8e4b8, bitcast=True).to(tl.bfloat16)
    else:
        # gfx942 has no OCP conversion, and the one that Triton makes there takes NaN for 480: so it is scrubbed before.
        raw = tl.where(raw & 0x7F == 0x7F, 0, raw)
        values = raw.to(tl.float8e4nv, bitcast=True).to(tl.bfloat16)
    nope = (values.to(tl.float32) * tl.reshape(scale, (ENTRIES, NOPE_BLOCK)).to(tl.float32)).to(tl.bfloat16)

    rope_at = (page // 2 + place * (_DATA_BYTES // 2) + NOPE // 2)[:, None] + tl.arange(0, ROPE)[None, :]
    rope = tl.load(cache.to(tl.pointer_type(tl.bfloat16)) + rope_at, mask=live[:, None], other=0.0)
    return _scrubbed(nope, live), _scrubbed(rope, live)


@triton.jit
def attend_tile(state, q_nope, q_rope, heads_live, nope, rope, live, scale):
    """The running softmax `state` = (m, l, acc_nope, acc_rope) after one more tile of entries."""
    m, l, acc_nope, acc_rope = state
    scores = tl.dot(q_nope, tl.trans(nope))
    scores = tl.dot(q_rope, tl.trans(rope), scores) * scale
    counted = heads_live[:, None] & live[None, :]
    scores = tl.where(counted, scores, NEG)
    new_m = tl.maximum(m, tl.max(scores, 1))
    alpha = tl.exp(m - new_m)
    p = tl.where(counted, tl.exp(scores - new_m[:, None]), 0.0)
    l = l * alpha + tl.sum(p, 1)
    p = p.to(tl.bfloat16)
    acc_nope = tl.dot(p, nope, acc_nope * alpha[:, None])
    acc_rope = tl.dot(p, rope, acc_rope * alpha[:, None])
    return new_m, l, acc_nope, acc_rope


@triton.jit
def attend_entries(
    state,
    q_nope,
    q_rope,
    heads_live,
    cache,
    indices,
    first,
    end,
    rows,
    page_stride,
    block_size,
    scale,
    FNUZ: tl.constexpr,
    NOPE: tl.constexpr,
    NOPE_BLOCK: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """The running softmax `state` after the entries indices[first:end], in order."""
    for start in tl.range(first, end, BLOCK_KV, num_stages=NUM_STAGES):
        place = start + tl.arange(0, BLOCK_KV)
        slots = tl.load(indices + place, mask=place < end, other=-1)
        live = (slots >= 0) & (slots < rows)
        nope, rope = load_tile(cache, slots, live, page_stride, block_size, FNUZ, NOPE, NOPE_BLOCK, ROPE)
        state = attend_tile(state, q_nope, q_rope, heads_live, nope, rope, live, scale)
    return state


@triton.jit
def load_query(q, heads, heads_live, stride_h, NOPE: tl.constexpr, NOPE_BLOCK: tl.constexpr, ROPE: tl.constexpr):
    """The query of a block of heads as bf16 blocks [heads, NOPE_BLOCK] and [heads, ROPE]; padding reads as 0."""
    base = q + heads[:, None] * stride_h
    lanes = tl.arange(0, NOPE_BLOCK)
    nope = tl.load(base + lanes[None, :], mask=heads_live[:, None] & (lanes < NOPE)[None, :], other=0.0)
    rope = tl.load(base + NOPE + tl.arange(0, ROPE)[None, :], mask=heads_live[:, None], other=0.0)
    return nope, rope


@triton.jit
def empty_state(BLOCK_H: tl.constexpr, NOPE_BLOCK: tl.constexpr, ROPE: tl.constexpr):
    """The running softmax before any entry."""
    return (
        tl.full((BLOCK_H,), NEG, tl.float32),
        tl.full((BLOCK_H,), 0.0, tl.float32),
        tl.full((BLOCK_H, NOPE_BLOCK), 0.0, tl.float32),
        tl.full((BLOCK_H, ROPE), 0.0, tl.float32),
    )
