"""Kernels whose workgroups wait for each other."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def locked(lock, total, values, B: tl.constexpr):
    """Every program adds its values to the total, under a lock."""
    i = tl.arange(0, B)
    own = tl.load(values + tl.program_id(0) * B + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.debug_barrier()
    tl.store(total + i, tl.load(total + i) + own)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def meet(arrived, values, out, programs, B: tl.constexpr):
    """Every program stores, waits until all have, and reads its neighbour's values."""
    i = tl.arange(0, B)
    own = tl.program_id(0)
    tl.store(values + own * B + i, own + i)
    tl.debug_barrier()
    tl.atomic_add(arrived, 1)
    while tl.atomic_add(arrived, 0) < programs:
        pass
    tl.debug_barrier()
    other = (own + 1) % programs
    tl.store(out + own * B + i, tl.load(values + other * B + i))


@triton.jit
def look_back(x, totals, flags, out, B: tl.constexpr):
    """A prefix sum in one pass: each program waits for the total of all before it."""
    own = tl.program_id(0)
    i = tl.arange(0, B)
    values = tl.load(x + own * B + i)
    before = tl.zeros((), tl.int32)
    if own > 0:
        while tl.atomic_add(flags + own - 1, 0) == 0:
            pass
        tl.debug_barrier()
        before = tl.load(totals + own - 1)
    tl.store(totals + own, before + tl.sum(values))
    tl.debug_barrier()
    tl.atomic_xchg(flags + own, 1)
    tl.store(out + own * B + i, before + tl.cumsum(values))


@triton.jit
def plain_wait(flag, out):
    """Waits with a volatile load for what nobody writes."""
    while tl.load(flag, volatile=True) == 0:
        pass
    tl.store(out, 1)


@triton.jit
def crossed(flags, out):
    """Program 0 waits for 1 and 1 for 0."""
    own = tl.program_id(0)
    while tl.atomic_add(flags + 1 - own, 0) == 0:
        pass
    tl.atomic_xchg(flags + own, 1)
    tl.store(out + own, 1)


@triton.jit
def polls_and_works(p, out, N):
    """Reads an atomic in a long loop, and goes on whatever it finds."""
    total = tl.zeros((), tl.int32)
    for i in range(N):
        total += tl.atomic_add(p, 0) + i
    tl.store(out, total)
