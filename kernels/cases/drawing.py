"""What the cases of several kernels share: random numbers, number patterns that are hard to round, marked memory."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from aotkern.audit.cases import Array
from aotkern.spec import VariantKey

from .. import layout
from ..writer_reference import Bytes, Floats, Halves, to_bf16

UNTOUCHED: Final = 0xA5
"""Every byte that a kernel must leave alone."""
Longs = NDArray[np.int64]


def generator(key: VariantKey, seed: int) -> np.random.Generator:
    """Random numbers for the cases of a kernel: the same for each of its variants."""
    return np.random.default_rng([seed, zlib.crc32(key.kernel.encode())])


def marked(shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    """An array of marked bytes."""
    return np.full((*shape, np.dtype(dtype).itemsize), UNTOUCHED, np.uint8).view(dtype)[..., 0]


def padded(rng: np.random.Generator, size: int) -> int:
    """A stride for pieces of `size`: a multiple of 16 that leaves some room, another amount for another seed."""
    return -(-size // 16) * 16 + 16 * int(rng.integers(1, 6))


def one_of(rng: np.random.Generator, *sizes: int) -> int:
    """One of some sizes."""
    return int(rng.choice(sizes))


def normal_patterns(rng: np.random.Generator, shape: tuple[int, ...], deviation: float = 1.0) -> Halves:
    """bf16 patterns of normally distributed numbers."""
    return to_bf16((rng.standard_normal(shape) * deviation).astype(np.float32))


def hard_rows(rng: np.random.Generator, width: int) -> Halves:
    """bf16 patterns [8, width] for a quantiser that takes blocks of 64.

    Ordinary rows; rows of which every number lies on, or next to, the middle between two fp8 values, under a largest
    number that lies on, or next to, the limit of a scale; any patterns at all, NaN and infinities among them; numbers
    below the floor of the scale; zeros of both signs.
    """
    ordinary = normal_patterns(rng, (2, width))
    ties = np.stack([_ties(rng, width, below) for below in (-1, 0, 1)])
    anything = rng.integers(0, 1 << 16, (1, width)).astype(np.uint16)
    tiny = normal_patterns(rng, (1, width), 1e-5)
    zeros = (rng.integers(0, 2, (1, width)) << 15).astype(np.uint16)
    return np.concatenate([ordinary, ties, anything, tiny, zeros])


def _ties(rng: np.random.Generator, width: int, beside: int) -> Halves:
    """One row of near-ties; the largest of each block of 64 is 1.75 * 2^k, or `beside` it by one unit."""
    top = np.repeat(rng.integers(120, 140, -(-width // 64)), 64)[:width]
    exponent = top - rng.integers(1, 19, width)
    mantissa = rng.integers(0, 8, width) << 4 | rng.choice([0, 7, 8, 9], width)
    patterns = exponent << 7 | mantissa
    patterns[::64] = (top[::64] << 7 | 0x60) + beside
    return (patterns | rng.integers(0, 2, width) << 15).astype(np.uint16)


def angle_table(positions: int) -> Floats:
    """Cosines and sines fp32 [positions, 64] of angles that differ in every place."""
    angle = np.arange(positions)[:, None] * 1.7 + np.arange(layout.ROPE // 2) * 0.37 + 0.1
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def store_record(pages: Bytes, slot: int, block_size: int, data: Bytes, codes: Bytes) -> None:
    """Put a KV record into pages [n, page stride]."""
    page, place = layout.page_of(slot, block_size)
    start = layout.data_offset(place)
    pages[page, start : start + layout.DATA_BYTES] = data
    start = layout.scale_offset(place, block_size)
    pages[page, start : start + layout.SCALE_BYTES] = codes


def store_key(
    pages: Bytes, slot: int, block_size: int, codes: Bytes, scale: np.float32, *, shuffled: bool = False
) -> None:
    """Put an indexer key into pages [n, page stride]."""
    page, place = layout.page_of(slot, block_size)
    offsets = [layout.index_byte_offset(place, dim, shuffled=shuffled) for dim in range(layout.INDEX_HEAD_DIM)]
    pages[page, offsets] = codes
    start = layout.index_scale_offset(place, block_size)
    pages[page, start : start + layout.INDEX_SCALE_BYTES] = np.frombuffer(scale.tobytes(), np.uint8)
