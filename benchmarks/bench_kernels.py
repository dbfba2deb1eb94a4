"""Kernels that the benchmarks launch: one with 16 run-time arguments, and one that comes in 200 versions."""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Float, Int, Kernel, Pointer, Space

VERSIONS = 200


@triton.jit
def sixteen(a, b, c, d, e, out, n0, n1, n2, n3, n4, n5, n6, n7, n8, factor, BLOCK: tl.constexpr):
    """6 pointers, 9 integers and a float, all of them used; each program handles BLOCK elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n0
    total = tl.load(a + at, mask=mask) + tl.load(b + at, mask=mask) + tl.load(c + at, mask=mask)
    total += tl.load(d + at, mask=mask) + tl.load(e + at, mask=mask)
    offset = n1 + n2 + n3 + n4 + n5 + n6 + n7 + n8
    tl.store(out + at, total * factor + offset, mask=mask)


@triton.jit
def versioned(x, out, n, VERSION: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = x[i] * VERSION + VERSION, so that every version has code of its own."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * VERSION + VERSION, mask=mask)


KERNELS = (
    Kernel(
        sixteen,
        Space(
            targets=("gfx942", "gfx950", "cuda:90"),
            arguments={
                **{name: Pointer("fp32") for name in ("a", "b", "c", "d", "e", "out")},
                **{name: Int(classes=("16", "any")) for name in ("n0", "n1", "n2")},
                **{f"n{index}": Int(classes=("any",)) for index in range(3, 9)},
                "factor": Float(),
                "BLOCK": Constexpr(128, 256),
            },
            options={"num_warps": 4},
        ),
    ),
    Kernel(
        versioned,
        Space(
            targets=("gfx942", "gfx950", "cuda:90"),
            arguments={
                "x": Pointer("fp32"),
                "out": Pointer("fp32"),
                "n": Int(classes=("any",)),
                "VERSION": Constexpr(*range(2, VERSIONS + 2)),
                "BLOCK": 256,
            },
            options={"num_warps": 4},
        ),
    ),
)
