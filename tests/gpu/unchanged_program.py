"""Somebody's program on an NVIDIA GPU: JIT calls, an autotuner, a graph, `torch.compile`. Prints digests of its results.

python unchanged_program.py calls|graph|compiled
"""

from __future__ import annotations

import hashlib
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * factor, i < n)


@triton.autotune([triton.Config({"B": 64}, num_warps=2), triton.Config({"B": 256}, num_warps=4)], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})
@triton.jit
def shift(x, out, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i) if EVEN else tl.load(x + i, i < n)
    tl.store(out + i, value + B * 0 + 1, i < n)


def told(*results: torch.Tensor) -> None:
    """Print the digest of each result."""
    for result in results:
        sys.stdout.write(hashlib.sha256(result.contiguous().cpu().numpy().tobytes()).hexdigest() + "\n")


def calls(x: torch.Tensor) -> None:
    """Integers of every class, unaligned views, a side stream, an autotuner."""
    for n in (1, 16, 1000, 4096):
        out = torch.zeros_like(x)
        scale[((n + 127) // 128,)](x, out, n, 0.5, BLOCK=128)
        told(out)
    out = torch.zeros_like(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        scale[(8,)](x[1:], out[1:], 1000, 2.0, BLOCK=128)
    torch.cuda.synchronize()
    told(out)
    for n in (1024, 1000):
        out = torch.zeros_like(x)
        shift[lambda given: (triton.cdiv(given["n"], given["B"]),)](x, out, n)
        told(out)


def graph(x: torch.Tensor) -> None:
    """The first call of a kernel happens while a graph is captured, if it was loaded before."""
    from aotkern.triton_bridge import installed

    out = torch.zeros_like(x)
    if installed.active():
        assert installed.active()[0].preload(scale) > 0
    else:
        scale[(32,)](x, out, 4096, 0.5, BLOCK=128)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        scale[(32,)](x, out, 4096, 0.5, BLOCK=128)
    for factor in (1, 3):
        x.copy_(torch.arange(4096, device="cuda") * float(factor))
        captured.replay()
        told(out)


def compiled(x: torch.Tensor) -> None:
    """Kernels that Inductor generates, and one of ours inside of what it compiles.

    Element by element: of a sum, Inductor would choose the order anew in each process, by timing.
    """
    x = x.view(64, 64)

    @torch.compile
    def fused(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2 + 1)

    @torch.compile
    def around(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), 0.25, BLOCK=128)
        return torch.relu(out) + 1

    told(fused(x), around(x))


if __name__ == "__main__":
    generator = torch.Generator().manual_seed(3)
    {"calls": calls, "graph": graph, "compiled": compiled}[sys.argv[1]](torch.randn(4096, generator=generator).cuda())
