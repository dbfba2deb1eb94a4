"""What decode attention means, in float64 and written for reading: the kernels are compared with this, never run by it.

For a query row with heads h and its valid entries e, main entries first and then extra ones:

    score[h, e] = scale * dot(q[h], k[e])
    out[h]      = sum over e of exp(score[h, e]) * k[e]  /  (sum over e of exp(score[h, e]) + exp(sink[h]))

K and V are the same latent rows. A row without valid entries has the output 0, with or without a sink. The sums are
taken relative to the largest term, as anyone would.

Numbers that are not finite: lanes of k that are NaN are read as 0. A score of +inf or NaN makes the output of its head
NaN. A score of -inf weighs nothing, but 0 times an infinite lane is NaN in that lane; where every score is -inf there
is nothing to divide by, and the output is 0. A sink of +inf takes all the weight: the output is 0. A sink of NaN makes
it NaN.

`partial` and `reduce` are the same in two steps, with the numbers that the split kernels keep in scratch.

Plain NumPy on bytes: nothing here shares code with the kernels, in particular not the decoding of records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from . import layout
from .selectors import slice_bounds

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]

NEG: Final = float(np.finfo(np.float32).min)
"""What the kernels store as the maximum of nothing."""
_LEAST: Final = float(np.nextafter(NEG, 0.0))
"""The least maximum of something: scores of -inf only."""


def fp8_value(byte: int, *, fnuz: bool) -> float:
    """The value of one E4M3 byte: sign, 4 exponent bits, 3 mantissa bits.

    OCP has exponent bias 7 and the NaNs 0x7F and 0xFF; FNUZ has bias 8, one NaN, 0x80, and no negative zero. Neither
    has infinities.
    """
    if byte == 0x80 if fnuz else byte & 0x7F == 0x7F:
        return float("nan")
    bias = 8 if fnuz else 7
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = byte >> 3 & 0xF, byte & 0x7
    if exponent == 0:
        return sign * mantissa / 8 * 2.0 ** (1 - bias)
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - bias)


def fp8_values(data: Bytes, *, fnuz: bool) -> Floats:
    """The values of E4M3 bytes, any shape."""
    table = np.array([fp8_value(byte, fnuz=fnuz) for byte in range(256)])
    return np.asarray(table[data], np.float64)


def scale_values(codes: Bytes) -> Floats:
    """The values of UE8M0 codes, any shape; 255 is infinity."""
    values = np.exp2(codes.astype(np.float64) - layout.SCALE_BIAS)
    return np.where(codes == layout.SCALE_CODE_MAX, np.inf, values)


def bf16_values(data: Bytes) -> Floats:
    """The values of little-endian bf16 numbers, given as bytes [..., 2n]; result [..., n]."""
    bits = np.ascontiguousarray(data).view("<u2").astype(np.uint32) << 16
    return bits.view(np.float32).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Cache:
    """A paged KV cache as bytes.

    Attributes:
        pages: uint8 [pages, page stride].
        block_size: Records of a page.
        fnuz: Dialect of its fp8 bytes.
    """

    pages: Bytes
    block_size: int
    fnuz: bool

    @property
    def rows(self) -> int:
        """Slots of the cache."""
        return len(self.pages) * self.block_size

    def row(self, slot: int) -> Floats:
        """The latent row in `slot`, 512 numbers, NaN read as 0."""
        page, position = layout.page_of(slot, self.block_size)
        data_at = layout.data_offset(position)
        scale_at = layout.scale_offset(position, self.block_size)
        data = self.pages[page, data_at : data_at + layout.DATA_BYTES]
        codes = self.pages[page, scale_at : scale_at + layout.QUANT_BLOCKS]
        with np.errstate(invalid="ignore", over="ignore"):
            scales = np.repeat(scale_values(codes), layout.QUANT_BLOCK)
            nope = (fp8_values(data[: layout.NOPE], fnuz=self.fnuz) * scales).astype(np.float32)
        row = np.concatenate([nope.astype(np.float64), bf16_values(data[layout.NOPE :])])
        return np.where(np.isnan(row), 0.0, row)


@dataclass(frozen=True, slots=True)
class Segment:
    """A cache and the entries that each query row takes from it.

    Attributes:
        cache: The cache.
        indices: int32 slots of all rows, one row after the other; whatever follows the last row is never read.
        indptr: int32 [rows + 1], where the rows begin.
    """

    cache: Cache
    indices: Ints
    indptr: Ints

    def entries(self, row: int) -> Ints:
        """The slots of `row`, valid or not."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def latent(self, slots: Ints) -> Floats:
        """The latent rows [n, 512] of those `slots` that are valid, in order."""
        valid = [self.cache.row(int(slot)) for slot in slots if 0 <= slot < self.cache.rows]
        return np.array(valid).reshape(-1, layout.HEAD_DIM)


@dataclass(frozen=True, slots=True)
class Call:
    """One decode call.

    Attributes:
        q: [rows, heads, 512].
        segments: Main, or main and extra.
        scale: Softmax scale.
        sink: [heads], or None.
    """

    q: Floats
    segments: tuple[Segment, ...]
    scale: float = layout.SOFTMAX_SCALE
    sink: Floats | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """What the slices of all rows leave in scratch.

    Attributes:
        m: [rows, splits, heads], the largest score of a slice; `NEG` for a slice without entries.
        l: [rows, splits, heads], the denominator relative to m.
        acc: [rows, splits, heads, 512], the numerator relative to m.
    """

    m: Floats
    l: Floats
    acc: Floats


def attend(call: Call) -> Floats:
    """The output [rows, heads, 512] of a call."""
    out = np.zeros_like(call.q)
    for row, q in enumerate(call.q):
        k = np.concatenate([segment.latent(segment.entries(row)) for segment in call.segments])
        if len(k):
            m, l, acc = _attended(call.scale, q, k)
            out[row] = _merged(m[None], l[None], acc[None], call.sink)
    return out


def _attended(scale: float, q: Floats, k: Floats) -> tuple[Floats, Floats, Floats]:
    """Maximum [heads], denominator [heads] and numerator [heads, 512] of at least one entry."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores = scale * q @ k.T
        largest = scores.max(axis=1, initial=_LEAST)
        weights = np.exp(scores - largest[:, None])
        return largest, weights.sum(axis=1), weights @ k


def _merged(m: Floats, l: Floats, acc: Floats, sink: Floats | None) -> Floats:
    """The output [heads, 512] of slices [slices, heads] and [slices, heads, 512], each of which holds an entry."""
    none = np.full(m.shape[1], -np.inf)
    logit = none if sink is None else sink
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.maximum(m.max(axis=0), logit)
        weights = np.exp(m - largest)
        total = (weights * l).sum(axis=0) + np.exp(logit - largest)
        weighed = (weights[..., None] * acc).sum(axis=0) / np.where(total == 0, 1.0, total)[:, None]
    nothing_weighed = (total == 0) | (logit == np.inf)
    return np.where(nothing_weighed[:, None], 0.0, weighed)


def partial(call: Call, splits: int) -> Partial:
    """The first step: every row is cut into `splits` slices, main and extra entries each on their own."""
    rows, heads, _ = call.q.shape
    m = np.full((rows, splits, heads), NEG)
    l = np.zeros((rows, splits, heads))
    acc = np.zeros((rows, splits, heads, layout.HEAD_DIM))
    for row, split, k in _slices(call, splits):
        if len(k):
            m[row, split], l[row, split], acc[row, split] = _attended(call.scale, call.q[row], k)
    return Partial(m, l, acc)


def reduce(partials: Partial, sink: Floats | None = None) -> Floats:
    """The second step: the output [rows, heads, 512] from what the slices left.

    A slice whose maximum is `NEG` holds no entry, and what else it left is not read. All others count, whatever they
    hold: NaN stays NaN.
    """
    rows, _, heads, dim = partials.acc.shape
    out = np.zeros((rows, heads, dim))
    for row in range(rows):
        for head in range(heads):
            held = partials.m[row, :, head] != NEG
            if held.any():
                parts = (part[row, held, head][:, None] for part in (partials.m, partials.l, partials.acc))
                out[row, head] = _merged(*parts, None if sink is None else sink[head : head + 1])[0]
    return out


def _slices(call: Call, splits: int) -> Iterator[tuple[int, int, Floats]]:
    """Row, split and latent rows of every slice."""
    for row in range(len(call.q)):
        for split in range(splits):
            parts = []
            for segment in call.segments:
                entries = segment.entries(row)
                first, end = slice_bounds(len(entries), split, splits)
                parts.append(segment.latent(entries[first : max(first, end)]))
            yield row, split, np.concatenate(parts)
