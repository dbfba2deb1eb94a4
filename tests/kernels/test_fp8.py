"""Rounding on the device against the definition of the formats, over whole domains at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernels import fp8
from kernels.fp8 import bf16_bits, bf16_values, encode_e4m3, magnitude_bits, power_of_two, scale_exponent, without_nan
from kernels.writer_reference import FNUZ, OCP, fp8_values, to_bf16, to_fp8
from kernels.writer_reference import scale_exponent as reference_exponent

DIALECTS = pytest.mark.parametrize("dialect", [OCP, FNUZ], ids=lambda dialect: dialect.name)


@triton.jit
def encode(x, out, COUNT: tl.constexpr, IS_FNUZ: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out + lane, encode_e4m3(tl.load(x + lane), IS_FNUZ))


@triton.jit
def exponents(x, out, COUNT: tl.constexpr, IS_FNUZ: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out + lane, scale_exponent(magnitude_bits(tl.load(x + lane)), IS_FNUZ))


@triton.jit
def round_bf16(x, out, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out + lane, bf16_bits(tl.load(x + lane)))


@triton.jit
def widen_and_clean(x, out, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out + lane, without_nan(bf16_values(tl.load(x + lane))))


@triton.jit
def powers(x, out, COUNT: tl.constexpr):
    lane = tl.arange(0, COUNT)
    tl.store(out + lane, power_of_two(tl.load(x + lane)))


@pytest.fixture
def apply(interpreted: Callable) -> Callable[..., np.ndarray]:
    """Run one of the kernels above over an array, padded to a power of two."""
    launcher = interpreted(fp8, sys.modules[__name__])

    def run(kernel: str, x: np.ndarray, dtype: Any, **constants: object) -> np.ndarray:
        count = 1 << (len(x) - 1).bit_length()
        padded = torch.from_numpy(np.concatenate([x, np.zeros(count - len(x), x.dtype)]))
        out = torch.from_numpy(np.zeros(count, dtype))
        launcher[kernel][(1,)](padded, out, COUNT=count, **constants)
        return out.numpy()[: len(x)]

    return run


def all_bf16() -> np.ndarray:
    return (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)


def neighbours(x: np.ndarray) -> np.ndarray:
    """Positive numbers with the fp32 numbers just below and above them, in both signs."""
    bits = x.astype(np.float32).view(np.int32)
    near = np.concatenate([bits - 1, bits, bits + 1])
    return np.concatenate([near, near | np.int32(-(2**31))]).view(np.float32)


@DIALECTS
def test_the_reference_table_is_the_dialect_of_torch(dialect):
    dtype = torch.float8_e4m3fn if dialect is OCP else torch.float8_e4m3fnuz
    np.testing.assert_array_equal(
        fp8_values(dialect), torch.arange(256).to(torch.uint8).view(dtype).to(torch.float64).numpy()
    )


@DIALECTS
def test_encoding_rounds_to_nearest_even_at_every_value_and_every_halfway_point(apply, dialect):
    values = fp8_values(dialect)[1:0x7F]
    halfway = np.concatenate([[0], values[:-1]]) / 2 + values / 2
    x = np.concatenate([neighbours(values), neighbours(halfway), neighbours(np.array([240.0, 449.0, 1e30, 1e-40]))])
    np.testing.assert_array_equal(apply("encode", x, np.uint8, IS_FNUZ=dialect is FNUZ), to_fp8(x, dialect))


@DIALECTS
def test_encoding_every_bf16_number(apply, dialect):
    x = all_bf16()
    codes = apply("encode", x, np.uint8, IS_FNUZ=dialect is FNUZ)
    np.testing.assert_array_equal(codes, to_fp8(x, dialect))
    assert set(codes[np.isnan(x)]) == {dialect.nan}
    assert dialect is OCP or not (codes[~np.isnan(x)] == 0x80).any()


@DIALECTS
def test_encoding_agrees_with_torch_where_torch_defines_it(apply, dialect):
    x = all_bf16()
    x = x[np.abs(x) <= dialect.limit]
    dtype = torch.float8_e4m3fn if dialect is OCP else torch.float8_e4m3fnuz
    expected = torch.from_numpy(x).to(dtype).view(torch.uint8).numpy()
    np.testing.assert_array_equal(apply("encode", x, np.uint8, IS_FNUZ=dialect is FNUZ), expected)


@DIALECTS
def test_the_exponent_is_exact_at_limit_times_powers_of_two_and_their_neighbours(apply, dialect):
    powers_of_two = 2.0 ** np.arange(-22, 119)
    at = np.float32(dialect.limit) * powers_of_two.astype(np.float32)
    below, above = np.nextafter(at, np.float32(0)), np.nextafter(at, np.float32(np.inf))
    found = apply("exponents", np.concatenate([below, at, above]), np.int32, IS_FNUZ=dialect is FNUZ)
    wanted = np.arange(-22, 119)
    floor = -22 if dialect is OCP else -21
    np.testing.assert_array_equal(found, np.maximum(np.concatenate([wanted, wanted, wanted + 1]), floor))


@DIALECTS
def test_the_exponent_of_every_bf16_magnitude(apply, dialect):
    x = all_bf16()
    found = apply("exponents", x, np.int32, IS_FNUZ=dialect is FNUZ)
    magnitudes = np.where(np.isnan(x), np.float32(0), np.abs(x))
    np.testing.assert_array_equal(found, [reference_exponent(size, dialect) for size in magnitudes])
    finite = np.isfinite(x)
    assert (found[finite].min() + 127, found[finite].max() + 127) == ((105, 247) if dialect is OCP else (106, 248))
    assert set(found[np.isinf(x)]) == {128}


def test_bf16_rounding_at_every_number_halfway_point_and_neighbour(apply):
    upper = np.arange(65536, dtype=np.uint32) << 16
    x = np.concatenate([upper, upper | 0x7FFF, upper | 0x8000, upper | 0x8001, upper | 0xFFFF]).view(np.float32)
    np.testing.assert_array_equal(apply("round_bf16", x, np.uint16), to_bf16(x))
    numbers = x[~np.isnan(x)]
    torch_rounds = torch.from_numpy(numbers).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(to_bf16(numbers), torch_rounds)


def test_widening_keeps_every_number_and_cleaning_removes_only_nan(apply):
    x = all_bf16()
    found = apply("widen_and_clean", np.arange(65536, dtype=np.uint16).view(np.int16), np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), np.where(np.isnan(x), np.float32(0), x).view(np.uint32))


def test_powers_of_two_down_to_the_smallest_subnormal_number(apply):
    exponent = np.arange(-149, 129, dtype=np.int32)
    with np.errstate(over="ignore"):
        wanted = np.ldexp(np.float32(1), exponent)
    np.testing.assert_array_equal(apply("powers", exponent, np.float32), wanted)
