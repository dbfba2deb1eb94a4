"""Kernels whose code depends on the type, the identity or the surroundings of what they are given."""

from __future__ import annotations

import enum
from typing import NamedTuple

import key_one
import key_two
import triton
import triton.language as tl

ACTS = (key_one.act, key_two.act)


class Strides(NamedTuple):
    """As in public reports: code asks for a field by name."""

    batch: int
    token: int


class Mode(enum.IntEnum):
    """As in vLLM's attention kernels."""

    NONE = 0
    FAST = 1


@triton.constexpr_function
def first(s):
    """By field name where there is one."""
    return s.batch if hasattr(s, "batch") else s[1]


@triton.constexpr_function
def is_fast(mode):
    """Whether this is the member, and not the number."""
    return type(mode).__name__ == "Mode" and mode.name == "FAST"


@triton.jit
def composed(x, o, F: tl.constexpr, G: tl.constexpr):
    """One function after the other."""
    tl.store(o, G(F(tl.load(x))))


@triton.jit
def typed(o, S: tl.constexpr, M: tl.constexpr):
    """A named tuple and an enum."""
    if is_fast(M):
        tl.store(o, first(S))
    else:
        tl.store(o, S[0] + 100)


@triton.jit
def product(a, b, c, B: tl.constexpr):
    """A product of fp32, whose default precision is a setting."""
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(c + i, tl.dot(tl.load(a + i), tl.load(b + i)))


KERNELS = (composed, typed, product)
