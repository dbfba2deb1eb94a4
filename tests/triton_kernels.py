"""Kernels that tests compile; in a file of their own, because Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def mixed(x, s, f, n, m):
    """Every width of scalar, all of them used."""
    if f:
        tl.store(x + m, s + n)


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    """out[i] = x[i] * factor for i < n."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)


@triton.jit
def store_scalar(x, s):
    """x[0] = s, whatever the type of s."""
    tl.store(x, s.to(tl.float32))


@triton.jit
def scale_short(x, out, n, factor, BLOCK: tl.constexpr):
    """`scale` with a mistake: it forgets the last element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n - 1
    tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)


@triton.jit
def counted(x):
    tl.store(x, tl.num_programs(0))
