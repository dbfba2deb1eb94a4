"""Device helpers: rounding to bf16 and to fp8 E4M3, and power-of-two scales, from the bits of fp32 numbers.

Everything that ends up in a cache goes through here, in integer arithmetic wherever a rounding or a special value is
decided. That makes the bytes a property of this file alone:

* The scale exponent ceil(log2(a / FMAX)) involves no logarithm and no division. Both limits are 1.75 * 2^k (448 with
  k = 8, 224 with k = 7), so that for a = m * 2^p it is p - k, plus one if m > 1.75. This is the exact ceiling for every
  fp32 number; a floating log2 may be off by one at a = FMAX * 2^n, and a / FMAX or a * (1 / FMAX) would have to be
  rounded before one could look at it.
* The conversion to fp8 rounds to nearest even by adding to the bit pattern. Neither dialect is native on every chip,
  compilers emulate the other one each in their own way, Triton refuses FNUZ on CUDA, and its interpreter converts
  subnormal numbers wrongly (bf16 to fp32 included): a cast would mean different bytes in different places.
* A NaN has one spelling in each format (0x7FC0 in bf16, 0x7F in OCP, 0x80 in FNUZ), whatever sign or payload the
  arithmetic before gave it.

The dialects differ in three ways only: the exponent bias (7 for OCP, 8 for FNUZ), the limit of the quantiser, and that
FNUZ has no negative zero: 0x80 is its NaN, so that a negative number that rounds to zero must be stored as +0.
"""

import triton
import triton.language as tl

_INFINITY = tl.constexpr(0x7F800000)
_MANTISSA = tl.constexpr(0x007FFFFF)
_ONE_AND_THREE_QUARTERS = tl.constexpr(0x00600000)
"""Mantissa bits of 1.75."""
_FLOOR = tl.constexpr(0x38D1B717)
"""Bits of 1e-4: the largest magnitude of a block counts as at least this when its scale is chosen."""


@triton.jit
def magnitude_bits(x):
    """Bits of |x| of fp32 numbers, as int32, with NaN as 0; these order as the magnitudes do."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits > _INFINITY, 0, bits)


@triton.jit
def without_nan(x):
    """fp32 numbers with NaN as +0."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits > _INFINITY, 0.0, x)


@triton.jit
def scale_exponent(largest, FNUZ: tl.constexpr):
    """The e of the scale 2^e under which a block fits fp8: ceil(log2(max(largest, 1e-4) / FMAX)); 128 for infinity.

    Args:
        largest: Bits of the largest magnitude of a block (`magnitude_bits`).
        FNUZ: Dialect: FMAX is 224 with FNUZ and 448 without.
    """
    largest = tl.maximum(largest, _FLOOR)
    LIMIT_EXPONENT: tl.constexpr = 7 if FNUZ else 8
    above = ((largest & _MANTISSA) > _ONE_AND_THREE_QUARTERS).to(tl.int32)
    exponent = (largest >> 23) - 127 - LIMIT_EXPONENT + above
    return tl.where(largest >= _INFINITY, 128, exponent)


@triton.jit
def power_of_two(exponent):
    """2^exponent as fp32, for exponents from -149 to 128 (infinity); subnormal numbers included."""
    field = exponent + 127
    subnormal = 0x00800000 >> tl.maximum(1 - field, 0)
    return tl.where(field > 0, field << 23, subnormal).to(tl.float32, bitcast=True)


@triton.jit
def encode_e4m3(x, FNUZ: tl.constexpr):
    """fp8 bytes of fp32 numbers: clamped to the quantiser's limit, rounded to nearest even; NaN stays NaN.

    Normal results are rounded by adding just below half a unit (plus the unit's own bit, for ties) to the bit pattern.
    Subnormal results are rounded by adding a power of two whose unit in the last place is the smallest fp8 number.
    """
    BIAS: tl.constexpr = 8 if FNUZ else 7
    LIMIT: tl.constexpr = 0x43600000 if FNUZ else 0x43E00000
    SMALLEST_NORMAL: tl.constexpr = (128 - BIAS) << 23
    ALIGNER: tl.constexpr = (148 - BIAS) << 23
    bits = x.to(tl.int32, bitcast=True)
    size = tl.minimum(bits & 0x7FFFFFFF, LIMIT)
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - ((127 - BIAS) << 3)
    aligner = tl.full(size.shape, ALIGNER, tl.int32).to(tl.float32, bitcast=True)
    aligned = size.to(tl.float32, bitcast=True) + aligner
    subnormal = aligned.to(tl.int32, bitcast=True) - ALIGNER
    code = tl.where(size < SMALLEST_NORMAL, subnormal, normal)
    signed = code | ((bits >> 24) & 0x80)
    if FNUZ:
        signed = tl.where(code == 0, 0, signed)
    nan = (bits & 0x7FFFFFFF) > _INFINITY
    return tl.where(nan, 0x80 if FNUZ else 0x7F, signed).to(tl.uint8)


@triton.jit
def bf16_bits(x):
    """bf16 patterns of fp32 numbers, as uint16: rounded to nearest even, NaN as 0x7FC0."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits & 0x7FFFFFFF) > _INFINITY
    return tl.where(nan, 0x7FC0, rounded).to(tl.uint16)


@triton.jit
def bf16_values(patterns):
    """fp32 numbers of bf16 patterns (uint16)."""
    return (patterns.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def rounded_to_bf16(x):
    """The fp32 numbers that are nearest to `x` among those that bf16 can hold."""
    return bf16_values(bf16_bits(x))


@triton.jit
def as_patterns(pointer):
    """A pointer to bf16 numbers, or to bytes at an even address, as a pointer to their uint16 patterns."""
    return pointer.to(tl.pointer_type(tl.uint16))
