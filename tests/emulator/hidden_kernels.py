"""Kernels that need hidden arguments."""

import triton
import triton.language as tl


@triton.jit
def sizes(out):
    tl.store(out, tl.num_programs(0))
    tl.store(out + 1, tl.num_programs(1))
    tl.store(out + 2, tl.num_programs(2))


@triton.jit
def strided(x, out, n, B: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, B), tl.num_programs(0)):
        i = block * B + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, i < n) + 1, i < n)


@triton.jit
def prints(out):
    tl.device_print("value", tl.load(out))


@triton.jit
def asserts(x, out):
    value = tl.load(x)
    tl.device_assert(value > 0, "values are positive")
    tl.store(out, value)
