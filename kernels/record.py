"""Device helpers: where a KV record lies on its page, and how its three parts are stored.

The writers of the main and of the compressed cache share these, so that their records cannot drift apart. The format
stands in `layout`.
"""

import triton
import triton.language as tl

from .fp8 import as_patterns, bf16_bits, encode_e4m3, magnitude_bits, power_of_two, scale_exponent, without_nan

NOPE = tl.constexpr(448)
ROPE = tl.constexpr(64)
_DATA_BYTES = tl.constexpr(576)
_SCALE_BYTES = tl.constexpr(8)
_BLOCKS = tl.constexpr(7)


@triton.jit
def record_pointers(cache, slot, block_size, page_stride):
    """Addresses of the data part and of the scale codes of the record in a global slot (>= 0)."""
    # A slot fits 32 bits, and so does its quotient at a fraction of the cost; the byte offset of a page does not.
    page = slot.to(tl.int32) // block_size
    token = slot.to(tl.int32) % block_size
    start = cache + page.to(tl.int64) * page_stride
    return start + token * _DATA_BYTES, start + block_size * _DATA_BYTES + token * _SCALE_BYTES


@triton.jit
def store_nope(data, codes, x, FNUZ: tl.constexpr, SANITIZE: tl.constexpr):
    """Quantise and store the 448 NoPE dims of one record, in blocks of 64 that share a scale, and its scale bytes.

    Args:
        data: Address of the record's data part.
        codes: Address of its scale bytes; the eighth is padding and set to 0.
        x: fp32 [8, 64], already rounded to bf16; the eighth row is ignored.
        FNUZ: Dialect of the fp8 bytes.
        SANITIZE: Make the record canonical: NaN becomes 0, and no code exceeds 254, so that no lane can read as NaN.
    """
    if SANITIZE:
        x = without_nan(x)
    exponent = scale_exponent(tl.max(magnitude_bits(x), axis=1), FNUZ)
    quantised = encode_e4m3(x * power_of_two(-exponent)[:, None], FNUZ)
    block = tl.arange(0, 8)
    dim = block[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(data + dim, quantised, mask=block[:, None] < _BLOCKS)
    code = tl.minimum(exponent + 127, 254 if SANITIZE else 255)
    tl.store(codes + block, tl.where(block < _BLOCKS, code, 0).to(tl.uint8))


@triton.jit
def rotated(even, odd, cos, sin):
    """Interleaved pairs turned by an angle (fp32; compile without fused multiply-add to have both products rounded)."""
    return even * cos - odd * sin, even * sin + odd * cos


@triton.jit
def store_rope(data, even, odd):
    """Store the 64 RoPE dims of one record as bf16.

    Args:
        data: Address of the record's data part.
        even: fp32 [32], dims 448, 450, ...
        odd: fp32 [32], dims 449, 451, ...
    """
    tl.store(as_patterns(data + NOPE) + tl.arange(0, ROPE), tl.interleave(bf16_bits(even), bf16_bits(odd)))
