"""Kernels that the audit's tests compile. `fresh` gives each test function objects of its own."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction


def fresh(kernel: JITFunction, **options) -> JITFunction:
    """A new JIT function of the same source, with an empty table of binaries."""
    return JITFunction(kernel.fn, **options)


@triton.jit
def scale(x, n):
    """One pointer and one integer, both used."""
    tl.store(x, n * 2)


@triton.jit
def blocks(x, B: tl.constexpr):
    """A constexpr that is used."""
    tl.store(x + B, B)


@triton.jit
def leftover(x, k, NB: tl.constexpr):
    """An integer and a constexpr that nothing reads."""
    tl.store(x, 1)


@triton.jit
def wide(x, n: tl.int64):
    """An annotated integer."""
    tl.store(x, n)


@triton.jit
def pair(x, shape):
    """A tuple argument."""
    tl.store(x, shape[0] + shape[1] * shape[2])


@triton.jit
def even(x, n, EVEN_K: tl.constexpr):
    """What a heuristic computes."""
    if EVEN_K:
        tl.store(x, n)
    else:
        tl.store(x, 0)
