"""Kernels that the benchmarks launch: with 2, 16 and 58 run-time arguments, and one that comes in 200 versions."""

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
def two(x, out, BLOCK: tl.constexpr):
    """2 pointers; each program handles BLOCK elements, all of which there are."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1)


@triton.jit
def fifty_eight(
    p0, p1, p2, p3, p4, p5, p6, p7, out, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15,
    m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36,
    m37, m38, m39, m40, m41, m42, m43, m44, m45, m46, m47, factor,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """9 pointers, 48 integers and a float, all of them used; each program handles BLOCK elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < m0
    total = tl.load(p0 + at, mask=mask) + tl.load(p1 + at, mask=mask)
    total += tl.load(p2 + at, mask=mask) + tl.load(p3 + at, mask=mask)
    total += tl.load(p4 + at, mask=mask) + tl.load(p5 + at, mask=mask)
    total += tl.load(p6 + at, mask=mask) + tl.load(p7 + at, mask=mask)
    offset = m1 + m2 + m3 + m4 + m5 + m6 + m7 + m8
    offset += m9 + m10 + m11 + m12 + m13 + m14 + m15 + m16
    offset += m17 + m18 + m19 + m20 + m21 + m22 + m23 + m24
    offset += m25 + m26 + m27 + m28 + m29 + m30 + m31 + m32
    offset += m33 + m34 + m35 + m36 + m37 + m38 + m39 + m40
    offset += m41 + m42 + m43 + m44 + m45 + m46 + m47
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
        two,
        Space(
            targets=("gfx942", "gfx950", "cuda:90"),
            arguments={"x": Pointer("fp32"), "out": Pointer("fp32"), "BLOCK": Constexpr(128, 256)},
            options={"num_warps": 4},
        ),
    ),
    Kernel(
        fifty_eight,
        Space(
            targets=("gfx942", "gfx950", "cuda:90"),
            arguments={
                **{name: Pointer("fp32") for name in (*(f"p{index}" for index in range(8)), "out")},
                **{name: Int(classes=("16", "any")) for name in ("m0", "m1", "m2")},
                **{f"m{index}": Int(classes=("any",)) for index in range(3, 48)},
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
