"""A thousand small variants of three kernels of different shapes, for measuring the build."""

from __future__ import annotations

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Float, Int, Kernel, Pointer, Space


@triton.jit
def scale_rows(x, out, n, factor, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """out[i] = x[i] * factor + STEP."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor + STEP, mask=i < n)


@triton.jit
def softmax_rows(x, out, columns, stride, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """The softmax of each row, STEP times over."""
    i = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride + i, mask=i < columns, other=-float("inf"))
    for _ in tl.static_range(STEP % 3 + 1):
        row = tl.exp(row - tl.max(row, 0))
        row = row / tl.sum(row, 0)
    tl.store(out + tl.program_id(0) * stride + i, row, mask=i < columns)


@triton.jit
def dot_tiles(a, b, out, STEP: tl.constexpr, TILE: tl.constexpr):
    """One TILE x TILE product, scaled by STEP."""
    i = tl.arange(0, TILE)[:, None] * TILE + tl.arange(0, TILE)[None, :]
    tl.store(out + i, tl.dot(tl.load(a + i), tl.load(b + i)) * STEP)


TARGETS = ("gfx942", "gfx950", "cuda:90")
_X = {"x": Pointer("fp32"), "out": Pointer("fp32")}

KERNELS = (
    Kernel(
        scale_rows,
        Space(
            TARGETS,
            {**_X, "n": Int(), "factor": Float(), "BLOCK": Constexpr(128, 256, 512), "STEP": Constexpr(*range(40))},
        ),
    ),
    Kernel(
        softmax_rows,
        Space(
            TARGETS,
            {
                **_X,
                "columns": Int(),
                "stride": Int(classes=("16",)),
                "BLOCK": Constexpr(256, 1024),
                "STEP": Constexpr(*range(40)),
            },
        ),
    ),
    Kernel(
        dot_tiles,
        Space(
            TARGETS,
            {
                "a": Pointer("bf16"),
                "b": Pointer("bf16"),
                "out": Pointer("fp32"),
                "STEP": Constexpr(*range(50)),
                "TILE": Constexpr(16, 32),
            },
        ),
    ),
)
"""1,000 variants for each AMD target, 500 for CUDA."""
