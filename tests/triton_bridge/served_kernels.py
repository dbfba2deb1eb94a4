"""Kernels of a program that is recorded and served: between them, every kind of argument that a kernel can take."""

from __future__ import annotations

import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def twice(x):
    """A function that kernels take as a constant."""
    return x * 2


@triton.jit
def thrice(x):
    """Another one, which reads a global."""
    return x * FACTOR


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    """Pointers and an integer; calls a helper."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, twice(tl.load(x + i, i < n)), i < n)


@triton.jit
def scalars(x, flag, f, none, wide: tl.int64, half: tl.float16):
    """A bool, a float, None, and annotated scalars."""
    tl.store(x, f + flag + wide + half)


@triton.jit
def pair(x, shape):
    """A tuple, with another inside."""
    tl.store(x, shape[0] + shape[1][0] * shape[1][1])


@triton.jit
def fixed(x, V: tl.constexpr, DTYPE: tl.constexpr, MODE: tl.constexpr, FN: tl.constexpr, SHAPE: tl.constexpr):
    """Constants of every kind."""
    if MODE == "a":
        tl.store(x, FN(tl.full((), SHAPE[0], DTYPE)))
    if V is not None:
        tl.store(x + 1, V)


@triton.jit(do_not_specialize=["n"])
def unspecialised(x, n):
    """An integer that Triton is told not to specialise."""
    tl.store(x, n)


@triton.autotune([triton.Config({"B": 32}, num_warps=2), triton.Config({"B": 64}, num_warps=4)], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})
@triton.jit
def tuned(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    """An autotuner above a heuristic."""
    i = tl.arange(0, B)
    if EVEN:
        tl.store(x + i, n)
    else:
        tl.store(x + i, n, i < n)


PLAIN = (scale, scalars, pair, fixed, unspecialised, tuned.fn.fn)


def forget() -> None:
    """Empty Triton's tables of these kernels, as in a fresh process."""
    for kernel in PLAIN:
        kernel.device_caches.clear()
    tuned.cache.clear()
