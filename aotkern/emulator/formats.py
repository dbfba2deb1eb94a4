"""Small float formats: bf16, the fp8 family, fp6 and fp4, as numpy arrays of their bits.

Encoding rounds to nearest, ties to even. What happens beyond the largest value is the caller's choice, since hardware
has a mode bit for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotkern.emulator.waves import Array

U32 = np.uint32


@dataclass(frozen=True, slots=True)
class Format:
    """A float format of at most 8 bits.

    Attributes:
        exponent: Exponent bits.
        mantissa: Mantissa bits.
        bias: Exponent bias.
        infinity: Whether it has infinities (IEEE); otherwise a value beyond the largest one becomes NaN.
        fnuz: No negative zero: 0x80 is the only NaN.
        nan: Whether it has NaN at all; fp6 and fp4 have none.
    """

    exponent: int
    mantissa: int
    bias: int
    infinity: bool = False
    fnuz: bool = False
    nan: bool = True

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 1 + self.exponent + self.mantissa

    def values(self) -> Array:
        """What every code means, `(2 ** bits,)` float64."""
        code = np.arange(1 << self.bits)
        field = (code >> self.mantissa) & ((1 << self.exponent) - 1)
        part = code & ((1 << self.mantissa) - 1)
        whole = np.where(field > 0, 1 << self.mantissa, 0) + part
        value = whole * np.exp2(np.maximum(field, 1) - self.bias - self.mantissa)
        value = np.where(code >> (self.bits - 1), -value, value)
        top = field == (1 << self.exponent) - 1
        if self.fnuz:
            return np.where(code == 1 << (self.bits - 1), np.nan, value)
        if self.infinity:
            return np.where(top, np.where(part == 0, np.copysign(np.inf, value), np.nan), value)
        return np.where(top & (part == (1 << self.mantissa) - 1), np.nan, value) if self.nan else value

    @property
    def largest(self) -> float:
        """The largest finite value."""
        values = self.values()
        return float(values[np.isfinite(values)].max())

    def encode(self, value: Array, *, clamp: bool) -> Array:
        """The codes of float64 values, as uint32.

        Args:
            value: Finite or not.
            clamp: Whether what lies beyond the largest value becomes the largest value; an infinite input does too.
        """
        size = np.abs(np.where(np.isnan(value), 0.0, value))
        finite = np.minimum(size, 2 * self.largest)  # so far beyond that it cannot round back into range
        rounded = np.rint(finite / self._step(finite)) * self._step(finite)  # exact: steps are powers of two
        over = rounded > self.largest
        rounded = np.minimum(rounded, self.largest)
        step = self._step(rounded)
        exponent = np.log2(step).astype(np.int64) + self.mantissa + self.bias - 1
        code = (rounded / step).astype(np.int64) + (exponent << self.mantissa)
        sign = np.signbit(value).astype(np.int64) << (self.bits - 1)
        nan = 1 << (self.bits - 1) if self.fnuz else (1 << (self.bits - 1)) - 1
        if not clamp:
            beyond = ((1 << self.exponent) - 1) << self.mantissa if self.infinity else nan
            code = np.where(over, beyond, code)
        unsigned = (code == 0) | (over & (not clamp))  # zero and NaN have one code each in the FNUZ formats
        code = code | (np.where(unsigned, 0, sign) if self.fnuz else sign)
        return np.where(np.isnan(value), nan, code).astype(U32)

    def _step(self, size: Array) -> Array:
        """The distance between neighbours at non-negative finite values."""
        exponent = np.where(size > 0, np.frexp(size)[1] - 1, 1 - self.bias)
        return np.asarray(np.exp2(np.maximum(exponent, 1 - self.bias) - self.mantissa))


OCP_FP8 = Format(4, 3, 7)
OCP_BF8 = Format(5, 2, 15, infinity=True)
FNUZ_FP8 = Format(4, 3, 8, fnuz=True)
FNUZ_BF8 = Format(5, 2, 16, fnuz=True)
FP6 = Format(2, 3, 1, nan=False)
BF6 = Format(3, 2, 3, nan=False)
FP4 = Format(2, 1, 1, nan=False)


def bf16_values(bits: Array) -> Array:
    """The float32 values of bf16 codes in the low halves of uint32."""
    return np.asarray(bits << U32(16)).view(np.float32)


def bf16_bits(value: Array) -> Array:
    """float32 as bf16 codes in uint32, rounded to nearest even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(value).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    return np.asarray(np.where(np.isnan(value), (bits >> U32(16)) | U32(0x40), rounded))
