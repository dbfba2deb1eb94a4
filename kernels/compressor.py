"""Device helpers of the compressor: one normalised row out of the states of a group of tokens.

The compressor turns `RATIO` consecutive tokens into one cache entry. Every token left a state: a vector kv and a score
for each of its dims, fp32, in the paged state cache. An entry is, dim by dim, the softmax-weighted sum of the kv of its
tokens, then an RMS norm over the dims, then the rotation of the trailing 64 dims.

With `OVERLAP` (ratio 4) a state holds two kv vectors and two score vectors, for the two groups that a token belongs
to: an entry reads the older `RATIO` tokens in their first half and the newer `RATIO` tokens in their second half.

    state of a token    [kv half 0 | kv half 1 | score half 0 | score half 1]   with overlap
                        [kv | score]                                            without

The KV compressor uses this with 512 dims and the indexer with 128.
"""

import triton
import triton.language as tl

from aotkern.spec import Float, Int, Pointer

from .record import rotated

STEP = {
    "state": Pointer("fp32"),
    "positions": Pointer("i64"),
    "state_slots": Pointer("i64"),
    "token_to_req": Pointer("i32"),
    "state_table": Pointer("i32"),
    "cos_sin": Pointer("fp32"),
    "slots": Pointer("i64"),
    "eps": Float(),
    "state_block_size": Int(classes=("any",)),
    "state_page_stride": Int(classes=("16",)),
    "state_table_stride": Int(classes=("any",)),
}
"""Declaration of the arguments that every kernel shares which compresses in one pass.

Pages are multiples of 576 bytes, so that a stride in fp32 elements is a multiple of 16.
"""


@triton.jit
def is_group_end(position, RATIO: tl.constexpr):
    """Whether the token at `position` is the last one of its group, the one that produces an entry."""
    return (position + 1) % RATIO == 0


@triton.jit
def group_end(token, positions, state_slots, slots, RATIO: tl.constexpr):
    """The position of `token` and the slot of its entry: -1 for padding and for tokens that end no group."""
    position = tl.load(positions + token).to(tl.int32)
    live = (tl.load(state_slots + token) >= 0) & is_group_end(position, RATIO)
    return position, tl.where(live, tl.load(slots + token), -1)


@triton.jit
def compressed_columns(
    state,
    pages,
    position,
    first_column,
    block_size,
    page_stride,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Softmax-weighted sum over the tokens of a group, for `WIDTH` dims from `first_column` on: fp32 [WIDTH].

    Tokens are taken a few at a time with a running maximum, so that a group of 128 tokens needs no more registers than
    one of 8. Tokens before the start of the sequence do not count.

    Args:
        state: State cache, fp32 pages of `block_size` states.
        pages: The request's row of the state block table.
        position: Position of the group's last token, int32.
        first_column: First dim of this program.
        block_size: States in a page.
        page_stride: Elements from one page to the next.
        RATIO: Tokens that become one entry.
        OVERLAP: Whether the entry reads the group before as well.
        HEAD_DIM: Dims of an entry.
        WIDTH: Dims that this program makes.
    """
    TOKENS: tl.constexpr = 2 * RATIO if OVERLAP else RATIO
    HALVES: tl.constexpr = 2 if OVERLAP else 1
    STEP: tl.constexpr = min(TOKENS, 4096 // WIDTH)
    column = first_column + tl.arange(0, WIDTH)
    # Finite, because the difference of two infinities is NaN.
    largest = tl.full((WIDTH,), -3.4028234663852886e38, tl.float32)
    total = tl.zeros((WIDTH,), tl.float32)
    weighted = tl.zeros((WIDTH,), tl.float32)
    for first in range(0, TOKENS, STEP):
        token = first + tl.arange(0, STEP)
        source = position - (TOKENS - 1) + token
        live = source >= 0
        page = tl.load(pages + source // block_size, mask=live, other=0).to(tl.int64)
        entry = page * page_stride + (source % block_size) * (2 * HALVES * HEAD_DIM)
        if OVERLAP:
            entry += tl.where(token >= RATIO, HEAD_DIM, 0)
        address = state + entry[:, None] + column[None, :]
        kv = tl.load(address, mask=live[:, None], other=0.0)
        score = tl.load(address + HALVES * HEAD_DIM, mask=live[:, None], other=float("-inf"))
        higher = tl.maximum(largest, tl.max(score, axis=0))
        keep = tl.exp(largest - higher)
        weight = tl.exp(score - higher[None, :])
        total = total * keep + tl.sum(weight, axis=0)
        weighted = weighted * keep + tl.sum(weight * kv, axis=0)
        largest = higher
    return weighted / total


@triton.jit
def rms_normalised(x, weight, eps, HEAD_DIM: tl.constexpr):
    """RMS norm of fp32 [HEAD_DIM] with a weight vector in memory, in fp32."""
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / HEAD_DIM + eps)
    return x * scale * tl.load(weight + tl.arange(0, HEAD_DIM)).to(tl.float32)


@triton.jit
def rotated_pairs(x, angles, HEAD_DIM: tl.constexpr, ROPE: tl.constexpr):
    """The even and the odd dims of `x`, with the pairs of the last `ROPE` dims rotated: two of fp32 [HEAD_DIM / 2].

    Args:
        x: fp32 [HEAD_DIM].
        angles: Address of ROPE / 2 cosines followed by ROPE / 2 sines, fp32.
        HEAD_DIM: Dims of `x`.
        ROPE: Trailing dims to rotate.
    """
    even, odd = tl.split(tl.reshape(x, (HEAD_DIM // 2, 2)))
    pair = tl.arange(0, HEAD_DIM // 2) - (HEAD_DIM - ROPE) // 2
    cos = tl.load(angles + pair, mask=pair >= 0, other=1.0)
    sin = tl.load(angles + ROPE // 2 + pair, mask=pair >= 0, other=0.0)
    turned_even, turned_odd = rotated(even, odd, cos, sin)
    return tl.where(pair >= 0, turned_even, even), tl.where(pair >= 0, turned_odd, odd)
