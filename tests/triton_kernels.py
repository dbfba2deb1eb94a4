"""Kernels that tests compile; in a file of their own, because Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def mixed(x, s, f, n, m):
    """Every width of scalar, all of them used."""
    if f:
        tl.store(x + m, s + n)
