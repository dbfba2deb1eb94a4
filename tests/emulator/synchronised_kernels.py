"""Ordinary kernels whose waves need waits and barriers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(a, b, c, K):
    """A 64 x 64 tile of a product, pipelined."""
    i, j, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for s in range(0, K, 32):
        left = tl.load(a + i[:, None] * K + (s + k)[None, :])
        right = tl.load(b + (s + k)[:, None] * 64 + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * 64 + j[None, :], total)


@triton.jit
def softmax(x, out, B: tl.constexpr):
    """A row, over several waves."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    values = tl.load(x + i)
    powers = tl.exp(values - tl.max(values))
    tl.store(out + i, powers / tl.sum(powers))


@triton.jit
def cumulate(x, out, B: tl.constexpr):
    """A prefix sum, over several waves."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.cumsum(tl.load(x + i)))


@triton.jit
def order(x, out, B: tl.constexpr):
    """A sorted row, over several waves."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def transpose(x, out, B: tl.constexpr):
    """A square, transposed through LDS."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    tl.store(out + i[:, None] * B + j[None, :], tl.trans(tl.load(x + i[:, None] * B + j[None, :])) + 1)


@triton.jit
def count(x, out, B: tl.constexpr):
    """A histogram, over several waves."""
    tl.store(out + tl.arange(0, 64), tl.histogram(tl.load(x + tl.arange(0, B)), 64))


@triton.jit
def attend(q, k, v, out, N, D: tl.constexpr):
    """Flash attention of 64 queries."""
    i, j, d = tl.arange(0, 64), tl.arange(0, 32), tl.arange(0, D)
    query = tl.load(q + i[:, None] * D + d[None, :])
    most = tl.full((64,), -1e30, tl.float32)
    total = tl.zeros((64,), tl.float32)
    sums = tl.zeros((64, D), tl.float32)
    for s in range(0, N, 32):
        keys = tl.load(k + (s + j)[None, :] * D + d[:, None])
        scores = tl.dot(query, keys)
        new = tl.maximum(most, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        scale = tl.exp(most - new)
        values = tl.load(v + (s + j)[:, None] * D + d[None, :])
        sums = tl.dot(powers.to(values.dtype), values, sums * scale[:, None])
        total = total * scale + tl.sum(powers, 1)
        most = new
    tl.store(out + i[:, None] * D + d[None, :], sums / total[:, None])
