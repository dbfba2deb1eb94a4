"""gfx950: one tile of 32 entries: loading it as four chunks of 128 dims, and what it does to a running softmax.

The last chunk is the 64 fp8 dims that remain next to the 64 bf16 dims. Scores are one dot over all 512 dims, for which
the chunks are laid side by side, in order; values go to four accumulators. The softmax is in powers of two.
"""

import triton
import triton.language as tl

from . import layout
from .constants import NEG

_NOPE = tl.constexpr(layout.NOPE)
_ROPE = tl.constexpr(layout.ROPE)
_QUANT_BLOCK = tl.constexpr(layout.QUANT_BLOCK)
_DATA_BYTES = tl.constexpr(layout.DATA_BYTES)
_SCALE_BYTES = tl.constexpr(layout.SCALE_BYTES)


@triton.jit
def beside(left, right):
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
def _scrubbed(values, SCRUB: tl.constexpr):
    """NaN lanes of fp32 numbers as +0, if asked."""
    if SCRUB:
        return tl.where(values == values, values, 0.0)
    return values


@triton.jit
def _nope_chunk(
    cache, data, codes, live, FIRST: tl.constexpr, BLOCKS: tl.constexpr, FNUZ: tl.constexpr, SCRUB: tl.constexpr
):
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
    values = _fp8_values(raw, FNUZ) * tl.reshape(scale, (ENTRIES, WIDTH))
    return _scrubbed(values, SCRUB).to(tl.bfloat16)


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
    chunk0 = _nope_chunk(cache, data, codes, live, 0, 2, FNUZ, SCRUB)
    chunk1 = _nope_chunk(cache, data, codes, live, 2, 2, FNUZ, SCRUB)
    chunk2 = _nope_chunk(cache, data, codes, live, 4, 2, FNUZ, SCRUB)
    nope = _nope_chunk(cache, data, codes, live, 6, 1, FNUZ, SCRUB)
    rope_at = (page // 2 + place * (_DATA_BYTES // 2) + _NOPE // 2)[:, None] + tl.arange(0, _ROPE)[None, :]
    rope = tl.load(cache.to(tl.pointer_type(tl.bfloat16)) + rope_at, mask=live[:, None], other=0.0)
    rope = _scrubbed(rope.to(tl.float32), SCRUB).to(tl.bfloat16)
    return chunk0, chunk1, chunk2, beside(nope, rope)


@triton.jit
def attend_tile(
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
    k = beside(beside(chunk0, chunk1), beside(chunk2, chunk3))
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
