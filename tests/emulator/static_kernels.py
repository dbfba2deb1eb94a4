"""Kernels for the static check: calls, counters that are full, results in order."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def _inner(value, n):
    for _ in range(n):
        value = value * 3 + 1
    return value


@triton.jit(noinline=True)
def _outer(value, n):
    return _inner(value, n) + _inner(value + 1, n + 1)


@triton.jit
def calls(x, out, n):
    tl.store(out, _outer(tl.load(x), n) + _inner(n, 2))
