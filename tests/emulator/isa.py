"""An independent statement of number formats and rounding, in Python integers and fractions. No numpy in here."""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000,
         0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]  # fmt: skip
F32_EDGES = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001,
             0x40490FDB, 0x4B000000, 0x4B800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
             0x33800000, 0x3F000000, 0x3FC00000, 0xC0200000]  # fmt: skip


def integers(seed: int, bits: int = 32, count: int = 64) -> list[int]:
    """Edges first, then random ones, shuffled: several columns of edges meet in many combinations."""
    rng = random.Random(seed)
    edges = [edge & ((1 << bits) - 1) | (edge << 32 & ((1 << bits) - 1) if rng.random() < 0.5 else 0) for edge in EDGES]
    made = edges + [rng.getrandbits(bits) >> rng.randrange(bits) for _ in range(count - len(edges))]
    rng.shuffle(made)
    return made


def floats(seed: int, count: int = 64, *, special: bool = True) -> list[int]:
    """Bits of float32: edges, and random ones of moderate size."""
    rng = random.Random(seed)
    made = list(F32_EDGES) if special else []
    while len(made) < count:
        made.append(struct.unpack("<I", struct.pack("<f", rng.choice((1, -1)) * 2 ** rng.uniform(-20, 20)))[0])
    rng.shuffle(made)
    return made


def signed(value: int, bits: int = 32) -> int:
    """Two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


@dataclass(frozen=True)
class Real:
    """A decoded float: a kind, a sign, and a value when it is finite."""

    kind: Literal["finite", "inf", "nan"]
    negative: bool
    value: Fraction = Fraction(0)

    def __float__(self) -> float:
        if self.kind == "nan":
            return math.nan
        size = math.inf if self.kind == "inf" else float(abs(self.value))
        return -size if self.negative else size


@dataclass(frozen=True)
class Ieee:
    """A binary float format with infinities."""

    exponent: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    def decode(self, bits: int) -> Real:
        negative = bool(bits >> (self.exponent + self.mantissa) & 1)
        field, part = bits >> self.mantissa & ((1 << self.exponent) - 1), bits & ((1 << self.mantissa) - 1)
        if field == (1 << self.exponent) - 1:
            return Real("nan" if part else "inf", negative)
        whole = part + ((1 << self.mantissa) if field else 0)
        value = Fraction(whole) * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa)
        return Real("finite", negative, -value if negative else value)

    def encode(self, value: Fraction, *, negative_zero: bool = False) -> int:
        """Round to nearest, ties to even."""
        sign = int(value < 0 or (value == 0 and negative_zero)) << (self.exponent + self.mantissa)
        size = abs(value)
        if size == 0:
            return sign
        exponent = max(_log2(size), 1 - self.bias)
        scaled = size / Fraction(2) ** (exponent - self.mantissa)
        whole = round(scaled)  # Fraction rounds half to even
        code = whole + ((exponent + self.bias - 1) << self.mantissa)
        return sign | min(code, self.infinity)


def _log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


F16, BF16, F32, F64 = Ieee(5, 10), Ieee(8, 7), Ieee(8, 23), Ieee(11, 52)
NAN = -1
"""Stands for any NaN in an expected result."""


def is_nan(bits: int, form: Ieee = F32) -> bool:
    return form.decode(bits).kind == "nan"


def fma(a: int, b: int, c: int, form: Ieee = F32) -> int:
    """`a * b + c`, rounded once."""
    x, y, z = (form.decode(bits) for bits in (a, b, c))
    sign = x.negative ^ y.negative
    if "nan" in (x.kind, y.kind, z.kind):
        return NAN
    if "inf" in (x.kind, y.kind):
        if 0 in (x.value if x.kind == "finite" else 1, y.value if y.kind == "finite" else 1):
            return NAN
        if z.kind == "inf" and z.negative != sign:
            return NAN
        return form.infinity | int(sign) << (form.exponent + form.mantissa)
    if z.kind == "inf":
        return c
    product = x.value * y.value
    total = product + z.value
    zero_sign = sign and z.negative if product == 0 and z.value == 0 else False
    return form.encode(total, negative_zero=zero_sign)


def add(a: int, b: int, form: Ieee = F32) -> int:
    one = form.encode(Fraction(1))
    return fma(one, a, b, form)


def multiply(a: int, b: int, form: Ieee = F32) -> int:
    x, y = form.decode(a), form.decode(b)
    minus_zero = 1 << (form.exponent + form.mantissa)
    return fma(a, b, minus_zero if x.negative ^ y.negative else 0, form)


def negate(bits: int, form: Ieee = F32) -> int:
    return bits ^ 1 << (form.exponent + form.mantissa)


def agree(found: list[int], expected: list[int], form: Ieee = F32) -> bool:
    """Equal bit by bit, any NaN for `NAN`."""
    return all(is_nan(f, form) if e == NAN else f == e for f, e in zip(found, expected, strict=True))


def ulps(found: int, exact: float, form: Ieee = F32) -> float:
    """How many units in the last place a result is from an exact value."""
    if math.isnan(exact):
        return 0.0 if is_nan(found, form) else math.inf
    got = form.decode(found)
    if got.kind == "nan":
        return math.inf
    if math.isinf(exact) or got.kind == "inf":
        return 0.0 if float(got) == exact or abs(exact) >= float(form.decode(form.infinity - 1)) else math.inf
    size = max(abs(Fraction(exact)), Fraction(2) ** (1 - form.bias))
    return float(abs(got.value - Fraction(exact)) / Fraction(2) ** (_log2(size) - form.mantissa))
