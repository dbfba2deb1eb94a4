"""Kernels for the numerics audit: a wrong one, a racy one, one that never ends, one that no emulator knows."""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Kernel, Pointer, Space


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    """Wrong: it subtracts."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) - tl.load(y + i, i < n), i < n)


@triton.jit
def reverse(x, tmp, out, B: tl.constexpr):
    """Without the barrier that it needs between its waves."""
    i = tl.arange(0, B)
    tl.store(tmp + i, tl.load(x + i))
    tl.store(out + i, tl.load(tmp + (B - 1 - i)))


@triton.jit
def total(x, out, B: tl.constexpr):
    """A sum over four waves, through LDS."""
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) / tl.sum(tl.load(x + i)))


@triton.jit
def spin(x, out, n):
    """Counts for a very long time for n > 0, and waits for nobody."""
    value = tl.load(x)
    while value != n:
        value = value * 5 + 2
    tl.store(out, value)


@triton.jit
def strange(x, out, B: tl.constexpr):
    """An instruction that means nothing to an emulator."""
    i = tl.arange(0, B)
    value = tl.inline_asm_elementwise("v_cvt_pknorm_i16_f32 $0, $1, $1", "=v,v", [tl.load(x + i)], tl.float32, False, 1)
    tl.store(out + i, value)


@triton.jit
def branchy(x, out, n, B: tl.constexpr):
    """Half of it runs only for large n."""
    i = tl.arange(0, B)
    if n > 1000:
        tl.store(out + i, tl.sin(tl.load(x + i)) * tl.exp(tl.load(x + i)))
    else:
        tl.store(out + i, tl.load(x + i))


def _space(warps=4, **arguments):
    return Space(targets=("gfx942", "gfx950"), arguments=arguments, options={"num_warps": warps})


X = Pointer("fp32", storage="small")
I = Pointer("i32", storage="small")
N = Int(classes=("any",))
KERNELS = (
    Kernel(add, _space(x=X, y=X, out=X, n=N, B=Constexpr(64), warps=1)),
    Kernel(reverse, _space(x=X, tmp=X, out=X, B=Constexpr(256))),
    Kernel(total, _space(x=X, out=X, B=Constexpr(256))),
    Kernel(spin, _space(x=I, out=I, n=N)),
    Kernel(strange, _space(x=X, out=X, B=Constexpr(64), warps=1)),
    Kernel(branchy, _space(x=X, out=X, n=N, B=Constexpr(64), warps=1)),
)
