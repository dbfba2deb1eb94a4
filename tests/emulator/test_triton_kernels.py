"""Machine code of ordinary Triton kernels, of both targets, against float64."""

from __future__ import annotations

from typing import Any

import emulated_kernels
import numpy as np
import pytest
import torch
from emulated import EmulatorLauncher

ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
FP8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e4b8": torch.float8_e4m3fnuz, "fp8e5": torch.float8_e5m2}


def launcher(arch: str, **how: Any) -> EmulatorLauncher:
    return EmulatorLauncher.of(arch, emulated_kernels, **how)


@ARCHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64])
def test_element_wise(arch: str, dtype: torch.dtype) -> None:
    x, y = (torch.arange(700).mul(k).remainder(255).sub(100).to(dtype) for k in (7, 11))
    out = torch.full((701,), 77).to(dtype)
    launcher(arch)["add"][(3,)](x, y, out, 700, BLOCK=256)
    assert torch.equal(out[:700], x + y)
    assert out[700] == 77


@ARCHS
@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_softmax(arch: str, warps: int) -> None:
    x = torch.randn(5, 1000, generator=torch.manual_seed(1)).bfloat16()
    out = torch.zeros(5, 1000)
    launcher(arch)["softmax"][(5,)](x, out, 1000, 1000, BLOCK=1024, num_warps=warps)
    assert torch.allclose(out.double(), x.double().softmax(1), rtol=1e-5, atol=1e-9)


MATMULS = [("bf16", 1, 16), ("bf16", 2, 32), ("bf16", 4, 16), ("bf16", 8, 32), ("f16", 4, 16), ("f16", 4, 32),
           ("fp8e4nv", 4, 16), ("fp8e4b8", 4, 16), ("fp8e4nv", 2, 32), ("f32", 4, 16), ("i8", 4, 16)]  # fmt: skip


@ARCHS
@pytest.mark.parametrize(("kind", "warps", "side"), MATMULS)
def test_matmul(arch: str, kind: str, warps: int, side: int) -> None:
    rng = torch.manual_seed(2)
    m, n, k = 70, 64, 96
    plain = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    if kind == "i8":
        a, b = (torch.randint(-128, 128, shape, generator=rng, dtype=torch.int8) for shape in ((m, k), (k, n)))
    else:
        a, b = (torch.randn(shape, generator=rng).to((plain | FP8)[kind]) for shape in ((m, k), (k, n)))
    c = torch.zeros(m, n, dtype=torch.int32 if kind == "i8" else torch.float32)
    how = {"num_warps": warps, "matrix_instr_nonkdim": side}
    launcher(arch)["matmul"][(2, 2)](a, b, c, m, n, k, BM=64, BN=32, BK=32, ZERO=0 if kind == "i8" else 0.0, **how)
    exact = a.double() @ b.double()
    if kind == "i8":
        assert torch.equal(c.double(), exact)
    else:
        # gfx942 multiplies f32 as xf32 by default: 10 bits of mantissa.
        tolerance = 2e-2 if kind == "f32" else 1e-5
        assert torch.allclose(c.double(), exact, rtol=tolerance, atol=tolerance)


def mx_values(codes: torch.Tensor, form: str) -> torch.Tensor:
    """Microscaling elements as float64; fp4 codes are two in a byte along the last dimension, the lower first."""
    if form == "e2m1":
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
        table = torch.cat([table, -table])
        both = torch.stack([codes & 15, codes >> 4], -1).long()
        return table[both].flatten(-2)
    return codes.view(torch.float8_e4m3fn if form == "e4m3" else torch.float8_e5m2).double()


@pytest.mark.parametrize(("left", "right"), [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")])
@pytest.mark.parametrize("side", [16, 32])
def test_scaled_matmul(left: str, right: str, side: int) -> None:
    rng = torch.manual_seed(3)
    depth = 256

    def codes(form: str) -> torch.Tensor:
        made = torch.randint(0, 256, (64, depth // (2 if form == "e2m1" else 1)), generator=rng, dtype=torch.uint8)
        return made if form == "e2m1" else made & 0xBF  # moderate exponents, no NaN

    a, b = codes(left), codes(right)
    scales = [torch.randint(122, 132, (64, depth // 32), generator=rng, dtype=torch.uint8) for _ in range(2)]
    c = torch.zeros(64, 64)
    device = launcher("gfx950")
    device["scaled_matmul"][(1,)](
        a, scales[0], b.T.contiguous(), scales[1], c, K=depth, A=left, B=right, num_warps=4, matrix_instr_nonkdim=side
    )
    exact = [
        mx_values(code, form) * torch.exp2(scale.double() - 127).repeat_interleave(32, 1)
        for code, form, scale in zip((a, b), (left, right), scales, strict=True)
    ]
    assert torch.allclose(c.double(), exact[0] @ exact[1].T, rtol=1e-5, atol=1e-4)
    assert any("mfma_scale" in name for name in device.statistics[0].mnemonics)


@ARCHS
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_atomics(arch: str, dtype: torch.dtype) -> None:
    x = torch.randint(-50, 50, (700,), generator=torch.manual_seed(4)).to(dtype)
    sums, top = torch.zeros(7, dtype=dtype), torch.zeros(1, dtype=dtype)
    launcher(arch)["histogram"][(3,)](x, sums, top, 700, BLOCK=256)
    assert torch.equal(sums, torch.zeros(7, dtype=dtype).index_add(0, torch.arange(700) % 7, x))
    assert top[0] == x.abs().max()


@ARCHS
def test_scan_and_sort(arch: str) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (512,), generator=torch.manual_seed(5), dtype=torch.int32)
    out = torch.zeros_like(x)
    device = launcher(arch)
    device["sort"][(1,)](x, out, BLOCK=512)
    assert torch.equal(out, x.sort().values)
    device["running_sum"][(1,)](x, out, BLOCK=512)
    assert torch.equal(out, x.cumsum(0).to(torch.int32))


@ARCHS
def test_64_bit_integers(arch: str) -> None:
    rng = torch.manual_seed(6)
    x, y = (torch.randint(-(2**62), 2**62, (300,), generator=rng) for _ in range(2))
    y[::3] = torch.randint(1, 9, (100,), generator=rng)
    out = torch.zeros_like(x)
    launcher(arch)["wide_arithmetic"][(2,)](x, y, out, 300, BLOCK=256)
    for a, b, got in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        exact = (a * b + quotient - (a - quotient * b)) ^ (a >> 3)
        assert (got - exact) % 2**64 == 0


@ARCHS
def test_functions(arch: str) -> None:
    rng = torch.manual_seed(7)
    x, y = torch.randn(300, generator=rng) * 3, torch.randn(300, generator=rng) * 10
    out = torch.zeros(300)
    launcher(arch)["functions"][(2,)](x, y, out, 300, BLOCK=256)
    a, b = x.double(), y.double()
    roots = a.abs().sqrt() + (b.abs() + 1).rsqrt()
    exact = a / b + roots + b.sin() + a.cos() + b.abs().log() + a.exp2() + a.floor()
    assert torch.allclose(out.double(), exact, rtol=1e-5, atol=1e-5)


@ARCHS
@pytest.mark.parametrize("kind", [*FP8, "bf16", "f16", "i32"])
def test_conversions(arch: str, kind: str) -> None:
    dtype = (FP8 | {"bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32})[kind]
    x = torch.randn(300, generator=torch.manual_seed(8)) * 30
    x[:7] = torch.tensor([0.0, -0.0, 1e-9, -1e-9, 200.0, 2**-7, -(2**-8)])
    out = torch.zeros(300, dtype=dtype)
    launcher(arch)["convert"][(2,)](x, out, 300, BLOCK=256)
    assert torch.equal(out.view(torch.uint8), x.to(dtype).view(torch.uint8))


@ARCHS
@pytest.mark.parametrize(("kind", "warps"), [("bf16", 4), ("fp8e4nv", 4), ("fp8e4b8", 2), ("fp8e4nv", 8)])
def test_sparse_attention(arch: str, kind: str, warps: int) -> None:
    rng = torch.manual_seed(9)
    heads, dim, length = 16, 128, 75
    q = (torch.randn(2, heads, dim, generator=rng) * 0.125).bfloat16()
    kv = (
        torch.randn(100, dim, generator=rng).mul(1 if kind == "bf16" else 10).to((FP8 | {"bf16": torch.bfloat16})[kind])
    )
    codes = torch.randint(120, 125, (100,), generator=rng, dtype=torch.uint8)
    indices = torch.randint(0, 100, (2, length), generator=rng, dtype=torch.int32)
    indices[0, 3], indices[1, 40:50] = -1, -1
    out = torch.zeros(2, heads, dim, dtype=torch.bfloat16)
    constants = {"H": heads, "D": dim, "T": 32, "FP8": kind != "bf16", "num_warps": warps}
    launcher(arch)["attend"][(2,)](q, kv, codes, indices, out, length, **constants)
    keys = kv.double()[indices.clamp(min=0).long()]
    if kind != "bf16":
        keys = keys * torch.exp2(codes[indices.clamp(min=0).long()].double() - 127)[..., None]
    scores = torch.einsum("thd,tkd->thk", q.double(), keys).masked_fill((indices < 0)[:, None], -np.inf)
    weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
    exact = weights @ keys / weights.sum(-1, keepdim=True)
    assert (out.double() - exact).norm() / exact.norm() < 4e-3
