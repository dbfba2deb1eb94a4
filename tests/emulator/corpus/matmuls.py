"""Matrix products of every input type, tile, number of waves, stage and layout; scaled products."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .harness import TYPES, Case, Configuration, Near, floats, integers, wide, zeros


@triton.jit
def matmul(
    a, b, c, M, N, K, sam, sak, sbk, sbn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), ACC)
    for step in range(0, K, BK):
        at = step + inner
        if MASKED:
            left = tl.load(a + rows[:, None] * sam + at[None, :] * sak, (rows[:, None] < M) & (at[None, :] < K), 0.0)
            right = tl.load(
                b + at[:, None] * sbk + columns[None, :] * sbn, (at[:, None] < K) & (columns[None, :] < N), 0.0
            )
        else:
            left = tl.load(a + rows[:, None] * sam + at[None, :] * sak)
            right = tl.load(b + at[:, None] * sbk + columns[None, :] * sbn)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=ACC)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask)


@triton.jit
def scaled(
    a, a_scale, b, b_scale, c, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    PA: tl.constexpr, PB: tl.constexpr, WITH_A: tl.constexpr, WITH_B: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        ka = step // PA + tl.arange(0, BK // PA)
        kb = step // PB + tl.arange(0, BK // PB)
        ks = step // 32 + tl.arange(0, BK // 32)
        left = tl.load(a + rows[:, None] * (K // PA) + ka[None, :])
        right = tl.load(b + kb[:, None] + columns[None, :] * (K // PB))
        sa = tl.load(a_scale + rows[:, None] * (K // 32) + ks[None, :]) if WITH_A else None
        sb = tl.load(b_scale + columns[:, None] * (K // 32) + ks[None, :]) if WITH_B else None
        total = tl.dot_scaled(left, sa, A, right, sb, B, total)
    tl.store(c + rows[:, None] * BN + columns[None, :], total)


@triton.jit
def three_dimensional(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + i[:, None, None] * M * K + m[None, :, None] * K + k[None, None, :])
    right = tl.load(b + i[:, None, None] * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(
        c + i[:, None, None] * M * N + m[None, :, None] * N + n[None, None, :],
        tl.dot(left, right, input_precision="ieee"),
    )


def _values(rng: np.random.Generator, kind: str, *shape: int) -> torch.Tensor:
    if kind == "i8":
        return integers(rng, "i8", *shape)
    scale = 0.5 if kind.startswith("e") else 1.0
    return floats(rng, kind, *shape, scale=scale)


def _fp8(kind: str, arch: str) -> str:
    """The fp8 types that a target multiplies itself; the others are converted."""
    return {"e4m3": "e4m3fnuz", "e5m2": "e5m2fnuz"}.get(kind, kind) if arch == "gfx942" else kind


def _matmul(left: str, right: str, **given: Any) -> Configuration:
    m, n, k = given.pop("size", (70, 50, 96))
    bm, bn, bk = given.pop("tile", (32, 32, 32))
    precision = given.pop("precision", "ieee")
    transposed = given.pop("transposed", "")
    native = given.pop("native", True)
    masked = given.pop("masked", True)
    refused = given.pop("refused", {})
    accumulator = {"i8": "i32", "fp64": "fp64"}.get(left, "fp32")
    if not masked:
        m, n, k = 2 * bm, 2 * bn, 3 * bk

    def make(rng: np.random.Generator, arch: str) -> Case:
        kinds = [_fp8(kind, arch) if native else kind for kind in (left, right)]
        a, b = _values(rng, kinds[0], m, k), _values(rng, kinds[1], k, n)
        exact = wide(a) @ wide(b)
        size = np.abs(wide(a)) @ np.abs(wide(b))
        loss = {"ieee": 2.0**-21, "tf32": 2.0**-9, "bf16x3": 2.0**-14, "bf16x6": 2.0**-19}[precision]
        if accumulator == "fp64":
            loss = 2.0**-48
        passed = [a.T.contiguous() if "a" in transposed else a, b.T.contiguous() if "b" in transposed else b]
        strides = [(1, m) if "a" in transposed else (k, 1), (1, k) if "b" in transposed else (n, 1)]
        expected = Near(exact, 0.0, 0.0 if accumulator == "i32" else loss * size)
        out = zeros(accumulator, m, n)
        return Case((*passed, out, m, n, k, *strides[0], *strides[1]), {2: expected})

    constants = {
        "BM": bm, "BN": bn, "BK": bk, "PRECISION": precision, "MASKED": masked,
        "ACC": {"i32": tl.int32, "fp64": tl.float64, "fp32": tl.float32}[accumulator],
        "num_warps": 4, "num_stages": 2,
    } | given  # fmt: skip
    parts = [f"{left}x{right}", f"{bm}x{bn}x{bk}", transposed, precision if precision != "ieee" else ""]
    parts += ["" if masked else "aligned", "" if native else "converted"]
    parts += [f"{name.split('_')[-1]}{value}" for name, value in given.items()]
    grid = (-(-m // bm), -(-n // bn))
    return Configuration(
        "matmul", "matmul " + " ".join(filter(None, parts)), matmul, grid, constants, make, refused=refused
    )


def _matmuls() -> list[Configuration]:
    made = []
    for kind in ("fp16", "bf16"):
        made += [_matmul(kind, kind, transposed=order) for order in ("", "a", "b", "ab")]
        made += [_matmul(kind, kind, num_warps=warps) for warps in (1, 2, 8)]
        made += [_matmul(kind, kind, num_stages=stages, masked=masked) for stages in (1, 3) for masked in (True, False)]
        made += [_matmul(kind, kind, masked=False, matrix_instr_nonkdim=side) for side in (16, 32)]
        made += [_matmul(kind, kind, tile=(64, 64, 64), masked=False, transposed="b")]
    made += [_matmul("fp16", "fp16", tile=tile) for tile in ((16, 16, 32), (64, 16, 32), (16, 64, 64), (128, 32, 32))]
    made += [_matmul("fp16", "fp16", masked=False, kpack=2), _matmul("bf16", "bf16", masked=False, kpack=2)]
    made += [_matmul("fp16", "fp16", tile=(128, 128, 32), masked=False, num_warps=8, size=(128, 128, 64))]
    for pair in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3")):
        made += [_matmul(*pair), _matmul(*pair, masked=False, num_warps=1, tile=(32, 32, 64))]
    made += [_matmul("e5m2", "e5m2", native=False), _matmul("e4m3", "e4m3", native=False, transposed="b")]
    made += [_matmul("e5m2", "e5m2", num_stages=3, num_warps=1, tile=(64, 32, 64))]
    made += [_matmul("i8", "i8", transposed=order) for order in ("", "b")]
    made += [_matmul("i8", "i8", masked=False, matrix_instr_nonkdim=side) for side in (16, 32)]
    made += [_matmul("i8", "i8", tile=(32, 32, 64), num_warps=2, num_stages=1)]
    made += [_matmul("fp32", "fp32", precision=way) for way in ("ieee", "bf16x3", "bf16x6")]
    made += [_matmul("fp32", "fp32", precision="tf32", refused={"gfx950": "tf32"})]
    made += [_matmul("fp32", "fp32", masked=False, matrix_instr_nonkdim=32), _matmul("fp32", "fp32", transposed="ab")]
    made += [_matmul("fp64", "fp64", tile=(16, 16, 16)), _matmul("fp64", "fp64", tile=(32, 32, 16), masked=False)]
    return made


_FORMATS = {"e4m3": ("e4m3", 1), "e5m2": ("e5m2", 1), "e2m1": ("e2m1", 2), "bf16": ("bf16", 1), "fp16": ("fp16", 1)}
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _scaled_values(rng: np.random.Generator, kind: str, rows: int, k: int) -> tuple[torch.Tensor, np.ndarray]:
    """Codes as the kernel takes them, and their values."""
    if kind == "e2m1":
        codes = rng.integers(0, 16, (rows, k), dtype=np.uint8)
        return torch.from_numpy(codes[:, 0::2] | codes[:, 1::2] << 4), _FP4[codes]
    values = floats(rng, kind, rows, k)
    return (values.view(torch.uint8) if kind.startswith("e") else values), wide(values)


def _scaled(left: str, right: str, with_a: bool, with_b: bool, **options: Any) -> Configuration:
    size, k = options.pop("size", 32), 256

    def make(rng: np.random.Generator, _: str) -> Case:
        a, a_value = _scaled_values(rng, left, size, k)
        b, b_value = _scaled_values(rng, right, size, k)
        scales = [torch.from_numpy(rng.integers(124, 131, (size, k // 32), dtype=np.uint8)) for _ in range(2)]
        factors = [np.repeat(2.0 ** (scale.numpy().astype(int) - 127), 32, axis=1) for scale in scales]
        first = a_value * (factors[0] if with_a else 1)
        second = b_value * (factors[1] if with_b else 1)
        expected = Near(first @ second.T, 0.0, 2.0**-20 * (np.abs(first) @ np.abs(second).T))
        return Case((a, scales[0], b, scales[1], zeros("fp32", size, size), k), {4: expected})

    constants = {
        "BM": size, "BN": size, "BK": 128, "A": left, "B": right, "PA": _FORMATS[left][1], "PB": _FORMATS[right][1],
        "WITH_A": with_a, "WITH_B": with_b, "num_warps": 4,
    } | options  # fmt: skip
    name = f"dot_scaled {left} {right} scales {int(with_a)}{int(with_b)} {size} {options or ''}".rstrip()
    return Configuration("dot_scaled", name, scaled, (1,), constants, make)


def _scaled_products() -> list[Configuration]:
    made = [_scaled(a, b, True, True) for a, b in product(("e4m3", "e5m2", "e2m1"), repeat=2)]
    made += [_scaled("e4m3", "bf16", True, False), _scaled("e2m1", "bf16", True, False)]
    made += [_scaled("bf16", "e2m1", False, True), _scaled("fp16", "e2m1", False, True)]
    made += [_scaled("e2m1", "e2m1", True, True, size=64, num_warps=2), _scaled("e4m3", "e4m3", True, False)]
    return made


def _batched(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        a, b = floats(rng, kind, 4, 16, 32), floats(rng, kind, 4, 32, 16)
        return Case((a, b, zeros("fp32", 4, 16, 16)), {2: Near(wide(a) @ wide(b), 2e-6, 1e-4)})

    constants = {"B": 4, "M": 16, "N": 16, "K": 32, "num_warps": 4}
    return Configuration("matmul", f"batched {kind}", three_dimensional, (1,), constants, make)


CONFIGURATIONS = (*_matmuls(), *_scaled_products(), _batched("fp16"), _batched("fp32"))
assert TYPES
