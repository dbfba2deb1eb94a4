"""What the writers must store, byte for byte: a numpy reference written for reading.

It shares no trick with the kernels. An fp8 value is looked up in the table of all values that the format can express, a
scale exponent comes from the bits of a rounded quotient, and rows are handled one at a time.

Where the kernels use functions that no two machines round alike (exp and the reciprocal square root of the compressor),
the reference computes in float64 up to the normalised row and says so; from there on the bytes are exact.

Not in here: paging of whole batches. Functions give one record; `layout` says where it goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .layout import (
    FP8_MAX_FNUZ,
    FP8_MAX_OCP,
    INDEX_HEAD_DIM,
    NOPE,
    QUANT_BLOCK,
    QUANT_FLOOR,
    ROPE,
    SCALE_BIAS,
    SCALE_CODE_CAP,
    SCALE_CODE_MAX,
)

Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two E4M3 formats.

    Attributes:
        name: How it is called.
        bias: Exponent bias.
        limit: Largest magnitude that a quantiser makes.
        nan: The byte that writers store for NaN.
        negative_zero: Whether 0x80 is -0; otherwise it is NaN.
    """

    name: str
    bias: int
    limit: float
    nan: int
    negative_zero: bool


OCP = Dialect("OCP", 7, FP8_MAX_OCP, 0x7F, True)
FNUZ = Dialect("FNUZ", 8, FP8_MAX_FNUZ, 0x80, False)


def fp8_values(dialect: Dialect) -> Doubles:
    """The value of each of the 256 bytes, from the definition: sign, four exponent bits, three mantissa bits."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(
        exponent == 0,
        mantissa * 2.0 ** (1 - dialect.bias - 3),
        (1 + mantissa / 8) * 2.0 ** (exponent - dialect.bias),
    )
    values = np.where(code & 0x80, -size, size)
    if dialect.negative_zero:
        values[[0x7F, 0xFF]] = np.nan
    else:
        values[0x80] = np.nan
    return values


def to_fp8(x: Floats, dialect: Dialect) -> Bytes:
    """Bytes of the nearest values, ties to the even code, clamped to the quantiser's limit."""
    table = fp8_values(dialect)[:0x7F]  # ends with the limit, in both dialects
    size = np.minimum(np.abs(np.where(np.isnan(x), 0, x)).astype(np.float64), dialect.limit)
    above = np.searchsorted(table, size)
    below = np.maximum(above - 1, 0)
    to_above, to_below = table[above] - size, size - table[below]
    nearest = np.where(to_above < to_below, above, below)
    nearest = np.where(to_above == to_below, np.where(above % 2 == 0, above, below), nearest)
    keeps_sign = np.signbit(x) & (dialect.negative_zero | (nearest > 0))
    codes = nearest + np.where(keeps_sign, 0x80, 0)
    return np.where(np.isnan(x), dialect.nan, codes).astype(np.uint8)


def to_bf16(x: Floats) -> Halves:
    """bf16 patterns of the nearest values, ties to even, NaN as 0x7FC0."""
    bits = x.view(np.uint32)
    lower = bits >> 16
    remainder = bits & 0xFFFF
    up = (remainder > 0x8000) | ((remainder == 0x8000) & (lower % 2 == 1))
    return np.where(np.isnan(x), 0x7FC0, lower + up).astype(np.uint16)


def from_bf16(patterns: Halves) -> Floats:
    """fp32 values of bf16 patterns."""
    return (patterns.astype(np.uint32) << 16).view(np.float32)


def scale_exponent(largest: np.float32, dialect: Dialect) -> int:
    """Find ceil(log2(largest / limit)), with the floor applied; 128 for infinity.

    That is the exponent of the quotient, plus 1 unless its mantissa is 0.
    """
    quotient = np.maximum(largest, np.float32(QUANT_FLOOR)) / np.float32(dialect.limit)
    bits = int(quotient.view(np.uint32))
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0)


def _scaled(x: Floats, exponent: int) -> Floats:
    """Divide by 2^exponent, rounding once to fp32."""
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        return np.ldexp(x.astype(np.float64), -exponent).astype(np.float32)


def _largest(x: Floats) -> np.float32:
    """The largest magnitude that is a number; 0 when there is none."""
    largest: np.float32 = np.abs(np.where(np.isnan(x), np.float32(0), x)).max()
    return largest


def nope_bytes(x: Floats, dialect: Dialect, *, sanitize: bool = False) -> tuple[Bytes, Bytes]:
    """The 448 fp8 bytes and the 8 scale bytes of fp32 [448] that bf16 can hold.

    Args:
        x: The NoPE dims of a row.
        dialect: Format of the bytes.
        sanitize: NaN becomes 0, and scale codes end at 254.
    """
    if sanitize:
        x = np.where(np.isnan(x), np.float32(0), x)
    data, codes = np.zeros(NOPE, np.uint8), np.zeros(NOPE // QUANT_BLOCK + 1, np.uint8)
    for block in range(NOPE // QUANT_BLOCK):
        dims = slice(block * QUANT_BLOCK, (block + 1) * QUANT_BLOCK)
        exponent = scale_exponent(_largest(x[dims]), dialect)
        data[dims] = to_fp8(_scaled(x[dims], exponent), dialect)
        codes[block] = min(exponent + SCALE_BIAS, SCALE_CODE_CAP if sanitize else SCALE_CODE_MAX)
    return data, codes


def rotate(x: Floats, angles: Floats) -> Floats:
    """Turn interleaved pairs of fp32 [64]; `angles` is 32 cosines and 32 sines. Each product and sum is rounded."""
    even, odd, cos, sin = x[0::2], x[1::2], angles[: ROPE // 2], angles[ROPE // 2 :]
    turned = np.empty_like(x)
    with np.errstate(invalid="ignore", over="ignore"):
        turned[0::2] = even * cos - odd * sin
        turned[1::2] = even * sin + odd * cos
    return turned


def main_record(row: Halves, dialect: Dialect, angles: Floats | None = None) -> tuple[Bytes, Bytes]:
    """The data part (576 bytes) and the scale part (8 bytes) of a main-cache record.

    Args:
        row: bf16 patterns [512].
        dialect: Format of the fp8 bytes.
        angles: Cosines and sines of the token's position; None when the row is turned already.
    """
    data, codes = nope_bytes(from_bf16(row[:NOPE]), dialect)
    rope = row[NOPE:] if angles is None else to_bf16(rotate(from_bf16(row[NOPE:]), angles))
    return np.concatenate([data, rope.astype("<u2").view(np.uint8)]), codes


def compressed_record(row: Floats, angles: Floats, *, sanitize: bool) -> tuple[Bytes, Bytes]:
    """The data part and the scale part of a compressed-cache record.

    Args:
        row: fp32 [512], normalised, not rounded.
        angles: Cosines and sines of the first position of the entry's group.
        sanitize: Whether the writer makes canonical records.
    """
    data, codes = nope_bytes(from_bf16(to_bf16(row[:NOPE])), OCP, sanitize=sanitize)
    rope = rotate(row[NOPE:], angles)
    if sanitize:
        rope = np.where(np.isnan(rope), np.float32(0), rope)
    return np.concatenate([data, to_bf16(rope).astype("<u2").view(np.uint8)]), codes


def compressed_index_record(row: Floats, angles: Floats) -> tuple[Bytes, np.float32]:
    """The 128 bytes and the scale of a compressed indexer key.

    Args:
        row: fp32 [128], normalised, not rounded.
        angles: As in `compressed_record`.
    """
    turned = np.concatenate([row[: INDEX_HEAD_DIM - ROPE], rotate(row[INDEX_HEAD_DIM - ROPE :], angles)])
    return index_record(to_bf16(turned), OCP, power_of_two=True)


def index_record(key: Halves, dialect: Dialect, *, power_of_two: bool) -> tuple[Bytes, np.float32]:
    """The 128 bytes and the scale of an indexer key given as bf16 patterns [128]."""
    values = from_bf16(key)
    largest = _largest(values)
    if power_of_two:
        exponent = scale_exponent(largest, dialect)
        scale = np.float32(np.inf) if exponent == 128 else np.float32(2.0**exponent)
        return to_fp8(_scaled(values, exponent), dialect), scale
    scale = np.maximum(largest, np.float32(QUANT_FLOOR)) / np.float32(dialect.limit)
    with np.errstate(invalid="ignore"):
        return to_fp8(values / scale, dialect), scale


def compress(kv: Doubles, score: Doubles, weight: Doubles, eps: float) -> Doubles:
    """The normalised row of a group, in float64.

    Args:
        kv: [tokens of the group, dims].
        score: Likewise; -inf for tokens that do not exist.
        weight: RMS norm weight [dims].
        eps: Added to the mean square.
    """
    share = np.exp(score - score.max(axis=0))
    row = (kv * share).sum(axis=0) / share.sum(axis=0)
    normalised: Doubles = row / np.sqrt((row**2).mean() + eps) * weight
    return normalised


def group_states(states: Floats, position: int, ratio: int, *, overlap: bool) -> tuple[Doubles, Doubles]:
    """Find kv and score, each [tokens, dims], that the entry ending at `position` is made of.

    Args:
        states: The states of one sequence, by position: [positions, 2 * dims] or, with overlap, [positions, 4 * dims].
        position: Last position of the group.
        ratio: Tokens that become one entry.
        overlap: Whether the group before takes part, in the first half of its states.
    """
    kv, score = np.split(states.astype(np.float64), 2, axis=1)
    if not overlap:
        group = slice(position + 1 - ratio, position + 1)
        return kv[group], score[group]
    dims = kv.shape[1] // 2
    first = position + 1 - ratio
    older, newer = slice(max(first - ratio, 0), first), slice(first, position + 1)
    return (
        np.concatenate([kv[older, :dims], kv[newer, dims:]]),
        np.concatenate([score[older, :dims], score[newer, dims:]]),
    )


def compressed_slot(position: int, ratio: int, block_table: npt.NDArray[np.int32], block_size: int) -> int:
    """Global slot of the entry that the token at `position` ends, by its request's block table row; -1 for none."""
    if (position + 1) % ratio:
        return -1
    column, offset = divmod(position // ratio, block_size)
    return int(block_table[column]) * block_size + offset
