"""Kernels with a race, and their right counterparts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def reverse(x, tmp, out, B: tl.constexpr, BARRIER: tl.constexpr):
    """Reads what other waves of the workgroup stored."""
    i = tl.arange(0, B)
    tl.store(tmp + i, tl.load(x + i))
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + i, tl.load(tmp + (B - 1 - i)))


@triton.jit
def overwrite(x, out, B: tl.constexpr, BARRIER: tl.constexpr):
    """Overwrites what other waves read."""
    i = tl.arange(0, B)
    values = tl.load(x + (B - 1 - i))
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + i, values)
    tl.store(out + i, values)


@triton.jit
def handoff(x, tmp, out, B: tl.constexpr):
    """Program 1 reads what program 0 stores."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(tmp + i, tl.load(x + i))
    else:
        tl.store(out + i, tl.load(tmp + i))


@triton.jit
def last_reduces(x, parts, counter, out, programs, B: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    """The program that arrives last adds up what all have stored."""
    i = tl.arange(0, B)
    own = tl.program_id(0)
    tl.store(parts + own * B + i, tl.load(x + own * B + i) * 2)
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem=SEM, scope=SCOPE)
    if arrived == programs - 1:
        tl.debug_barrier()
        total = tl.zeros((B,), tl.int32)
        for other in range(programs):
            total += tl.load(parts + other * B + i)
        tl.store(out + i, total)


@triton.jit
def same_value(out, B: tl.constexpr):
    """Every program stores the same."""
    i = tl.arange(0, B)
    tl.store(out + i, i)


@triton.jit
def different_values(out, B: tl.constexpr):
    """Every program stores something else."""
    i = tl.arange(0, B)
    tl.store(out + i, i + tl.program_id(0))


@triton.jit
def in_place(x, B: tl.constexpr):
    """Fewer elements than lanes: several waves load each of them, and one stores."""
    i = tl.arange(0, B)
    values = tl.load(x + i)
    tl.store(x + i, values / tl.sum(values))


@triton.jit
def bytes_apart(x, B: tl.constexpr):
    """Programs that store neighbouring bytes."""
    i = tl.arange(0, B)
    tl.store(x + i * 3 + tl.program_id(0), (i + tl.program_id(0)).to(tl.int8))
