"""A kernel with nine arguments, for measuring launches."""

import triton
import triton.language as tl


@triton.jit
def touch(a, b, c, out, n, stride, offset, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    value = tl.load(a + at, mask=keep) + tl.load(b + at, mask=keep) * scale
    tl.store(out + at, value + tl.load(c + at * stride + offset, mask=keep), mask=keep)
