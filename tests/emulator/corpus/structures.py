"""Attention, scans, sorting and gathering, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .harness import Case, Configuration, Near, floats, integers, wide, zeros


@triton.jit
def attention(
    q, k, v, out, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns, inner = tl.arange(0, N), tl.arange(0, D)
    head = tl.program_id(1) * length * D
    query = tl.load(q + head + rows[:, None] * D + inner[None, :], rows[:, None] < length, 0.0)
    most = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    result = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        at = start + columns
        key = tl.load(k + head + at[None, :] * D + inner[:, None], at[None, :] < length, 0.0)
        score = tl.dot(query, key) * scale
        seen = at[None, :] < length
        if CAUSAL:
            seen = seen & (at[None, :] <= rows[:, None])
        score = tl.where(seen, score, float("-inf"))
        now = tl.maximum(most, tl.max(score, 1))
        power = tl.exp2((score - now[:, None]) * 1.44269504)
        fade = tl.exp2((most - now) * 1.44269504)
        value = tl.load(v + head + at[:, None] * D + inner[None, :], at[:, None] < length, 0.0)
        total = total * fade + tl.sum(power, 1)
        result = result * fade[:, None] + tl.dot(power.to(value.dtype), value)
        most = now
    result = result / total[:, None]
    tl.store(out + head + rows[:, None] * D + inner[None, :], result, rows[:, None] < length)


@triton.jit
def _greater(a, b):
    return tl.maximum(a, b)


@triton.jit
def _recurrence(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scan(x, y, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, WAY: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    if WAY == "sum":
        result = tl.cumsum(value, AXIS, reverse=REVERSE)
    elif WAY == "product":
        result = tl.cumprod(value, AXIS, reverse=REVERSE)
    elif WAY == "max":
        result = tl.associative_scan(value, AXIS, _greater, reverse=REVERSE)
    else:
        _, result = tl.associative_scan((value, tl.load(y + at)), AXIS, _recurrence, reverse=REVERSE)
    tl.store(out + at, result)


@triton.jit
def arrange(x, out, M: tl.constexpr, N: tl.constexpr, WAY: tl.constexpr, K: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + m[:, None] * N + n[None, :])
    if WAY == "sort":
        tl.store(out + m[:, None] * N + n[None, :], tl.sort(value, 1))
    elif WAY == "descending":
        tl.store(out + m[:, None] * N + n[None, :], tl.sort(value, 1, descending=True))
    elif WAY == "flip":
        tl.store(out + m[:, None] * N + n[None, :], tl.flip(value, 1))
    elif WAY == "topk":
        tl.store(out + m[:, None] * K + tl.arange(0, K)[None, :], tl.topk(value, K))
    elif WAY == "transpose":
        tl.store(out + n[:, None] * M + m[None, :], tl.trans(value))
    elif WAY == "permute":
        cube = tl.permute(tl.reshape(value, (M, K, N // K)), (2, 0, 1))
        i, j, k = tl.arange(0, N // K), tl.arange(0, M), tl.arange(0, K)
        tl.store(out + i[:, None, None] * M * K + j[None, :, None] * K + k[None, None, :], cube)
    elif WAY == "split":
        low, high = tl.split(tl.reshape(value, (M, N // 2, 2)))
        half = tl.arange(0, N // 2)
        tl.store(out + m[:, None] * N + half[None, :], high)
        tl.store(out + m[:, None] * N + N // 2 + half[None, :], low)
    elif WAY == "join":
        pair = tl.join(value, value * 2)
        both = tl.reshape(pair, (M, 2 * N))
        tl.store(out + m[:, None] * 2 * N + tl.arange(0, 2 * N)[None, :], both)
    else:
        both = tl.interleave(value, -value)
        tl.store(out + m[:, None] * 2 * N + tl.arange(0, 2 * N)[None, :], both)


@triton.jit
def look_up(x, indices, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(indices + at), AXIS))


@triton.jit
def count(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + at), BINS, mask=at < n))


@triton.jit
def extreme(x, value, place, N: tl.constexpr, LEFT: tl.constexpr, LEAST: tl.constexpr):
    loaded = tl.load(x + tl.arange(0, N))
    if LEAST:
        best, at = tl.min(loaded, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    else:
        best, at = tl.max(loaded, 0, return_indices=True, return_indices_tie_break_left=LEFT)
    tl.store(value, best)
    tl.store(place, at)


@triton.jit
def four_bits(a, codes, scales, out, K: tl.constexpr, N: tl.constexpr, M: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2)
    packed = tl.load(codes + k[:, None] * N + n[None, :])
    low, high = (packed & 15).to(tl.int8) - 8, (packed >> 4).to(tl.int8) - 8
    both = tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), (K, N))
    weight = (both.to(tl.float32) * tl.load(scales + n)[None, :]).to(a.dtype.element_ty)
    left = tl.load(a + m[:, None] * K + tl.arange(0, K)[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(left, weight))


def _attention(kind: str, causal: bool, warps: int, stages: int, d: int = 64) -> Configuration:
    length, heads = 100, 2

    def make(rng: np.random.Generator, _: str) -> Case:
        q, k, v = (floats(rng, kind, heads, length, d) for _ in range(3))
        score = wide(q) @ wide(k).swapaxes(1, 2) * 0.125
        if causal:
            score = np.where(np.tril(np.ones((length, length), bool)), score, -np.inf)
        power = np.exp(score - score.max(2, keepdims=True))
        expected = (power / power.sum(2, keepdims=True)) @ wide(v)
        loss = {"fp32": 1e-3, "fp16": 2e-3, "bf16": 2e-2, "e5m2": 0.15}[kind]
        return Case((q, k, v, zeros("fp32", heads, length, d), length, 0.125), {3: Near(expected, loss, loss)})

    constants = {"M": 32, "N": 32, "D": d, "CAUSAL": causal, "num_warps": warps, "num_stages": stages}
    name = f"{kind} {'causal' if causal else 'full'} warps{warps} stages{stages} d{d}"
    return Configuration("attention", name, attention, (4, heads), constants, make)


def _scan(way: str, kind: str, axis: int, reverse: bool, shape: tuple[int, int] = (16, 64)) -> Configuration:
    real = kind[0] in "fb"

    def make(rng: np.random.Generator, _: str) -> Case:
        x = floats(rng, kind, *shape, scale=0.5) if real else integers(rng, kind, *shape)
        y = floats(rng, kind, *shape) if real else integers(rng, kind, *shape)
        array = wide(x) if real else x.numpy()
        other = wide(y) if real else y.numpy()
        if reverse:
            array, other = np.flip(array, axis), np.flip(other, axis)
        with np.errstate(over="ignore"):
            if way == "recurrence":
                result, state = np.empty_like(array), np.zeros_like(np.take(array, 0, axis))
                for at in range(shape[axis]):
                    state = state * np.take(array, at, axis) + np.take(other, at, axis)
                    result[(slice(None), at) if axis else (at,)] = state
            else:
                operation = {"sum": np.add, "product": np.multiply, "max": np.maximum}[way]
                result = operation.accumulate(array, axis, dtype=array.dtype)
        result = np.flip(result, axis) if reverse else result
        loss = {"fp32": 1e-5, "fp16": 2e-2, "bf16": 0.15, "fp64": 1e-12}.get(kind, 0)
        expected: Any = Near(result, loss, loss * 4) if real else np.ascontiguousarray(result)
        return Case((x, y, zeros(kind, *shape)), {2: expected})

    constants = {"M": shape[0], "N": shape[1], "AXIS": axis, "WAY": way, "REVERSE": reverse}
    name = f"{way} {kind} axis{axis}{' reverse' if reverse else ''} {shape[0]}x{shape[1]}"
    return Configuration("scans", name, scan, (1,), constants, make)


def _arranged(way: str, kind: str, shape: tuple[int, int] = (4, 128), k: int = 8) -> Configuration:
    row = "sorting" if way in ("sort", "descending", "topk") else "layouts"

    def make(rng: np.random.Generator, _: str) -> Case:
        m, n = shape
        x = floats(rng, kind, m, n) if kind[0] in "fb" else integers(rng, kind, m, n)
        array = wide(x) if kind[0] in "fb" else x.numpy()
        size = 2 * m * n if way in ("join", "interleave") else m * k if way == "topk" else m * n
        with np.errstate(over="ignore"):
            results = {
                "sort": lambda: np.sort(array, 1),
                "descending": lambda: -np.sort(-array.astype(object), 1),
                "topk": lambda: -np.sort(-array.astype(object), 1)[:, :k],
                "flip": lambda: array[:, ::-1],
                "transpose": lambda: array.T,
                "permute": lambda: array.reshape(m, k, n // k).transpose(2, 0, 1),
                "split": lambda: np.concatenate((array[:, 1::2], array[:, 0::2]), 1),
                "join": lambda: np.stack((array, array * array.dtype.type(2)), -1).reshape(m, 2 * n),
                "interleave": lambda: np.stack((array, -array), -1).reshape(m, 2 * n),
            }
            result = np.ascontiguousarray(results[way]().astype(array.dtype)).reshape(-1)
        expected: Any = Near(result) if kind[0] in "fb" else result
        return Case((x, zeros(kind, size)), {1: expected})

    constants = {"M": shape[0], "N": shape[1], "WAY": way, "K": k}
    return Configuration(row, f"{way} {kind} {shape[0]}x{shape[1]}", arrange, (1,), constants, make)


def _looked_up(kind: str, axis: int, shape: tuple[int, int]) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, indices = integers(rng, kind, *shape), integers(rng, "i32", *shape, low=0, high=shape[axis] - 1)
        expected = np.take_along_axis(x.numpy(), indices.numpy(), axis)
        return Case((x, indices, zeros(kind, *shape)), {2: expected})

    constants = {"M": shape[0], "N": shape[1], "AXIS": axis}
    return Configuration("sorting", f"gather {kind} axis{axis} {shape[0]}x{shape[1]}", look_up, (1,), constants, make)


def _counted(bins: int, n: int) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x = integers(rng, "i32", 1024, low=0, high=bins - 1)
        expected = np.bincount(x.numpy()[:n], minlength=bins).astype(np.int32)
        return Case((x, zeros("i32", bins), n), {1: expected})

    return Configuration("sorting", f"histogram {bins} of {n}", count, (1,), {"BINS": bins, "BLOCK": 1024}, make)


def _extreme(kind: str, least: bool, left: bool = True) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x = integers(rng, "i32", 512, low=-20, high=20)
        x = x.to(torch.float32) if kind == "fp32" else x
        best = (np.min if least else np.max)(x.numpy())
        first = int((np.argmin if least else np.argmax)(x.numpy()))

        def place(found: torch.Tensor) -> str | None:
            at = int(found[0])
            right = at == first if left else bool(x[at] == best)
            return None if right else f"found {at}, expected {first}"

        return Case((x, zeros(kind, 1), zeros("i32", 1)), {1: Near(np.array([best])), 2: place})

    name = f"{'min' if least else 'max'} with index {kind} {'left' if left else 'any'}"
    return Configuration("sorting", name, extreme, (1,), {"N": 512, "LEFT": left, "LEAST": least}, make)


def _four_bits(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        k, n, m = 64, 32, 16
        a, codes = floats(rng, kind, m, k), rng.integers(0, 16, (k, n), dtype=np.uint8)
        scales = floats(rng, "fp32", n)
        packed = torch.from_numpy(codes[0::2] | codes[1::2] << 4)
        weight = (codes.astype(np.float64) - 8) * wide(scales)
        exact = wide(a) @ weight
        size = np.abs(wide(a)) @ np.abs(weight)
        loss = 2.0 ** (-7 if kind == "bf16" else -10)
        return Case((a, packed, scales, zeros("fp32", m, n)), {3: Near(exact, 0.0, loss * size)})

    return Configuration("layouts", f"w4a16 {kind}", four_bits, (1,), {"K": 64, "N": 32, "M": 16}, make)


CONFIGURATIONS = (
    *(_attention(kind, causal, 4, 2) for kind in ("fp16", "bf16") for causal in (False, True)),
    _attention("fp16", True, 1, 1), _attention("bf16", False, 2, 3), _attention("fp32", False, 4, 1, 32),
    _attention("fp16", False, 8, 2, 128),
    *(_scan("sum", kind, 1, False) for kind in ("fp16", "bf16", "fp32", "fp64", "i32", "i64")),
    *(_scan("sum", kind, 0, True) for kind in ("fp32", "i32")),
    *(_scan(way, kind, 1, reverse) for way, kind, reverse in (("product", "i32", False), ("product", "fp32", True))),
    *(_scan("max", kind, 1, False) for kind in ("fp32", "i32", "i16", "i8")),
    *(_scan("recurrence", "fp32", axis, False) for axis in (0, 1)),
    _scan("recurrence", "fp32", 1, False, (4, 512)), _scan("sum", "i32", 1, False, (1, 2048)),
    *(_arranged("sort", kind) for kind in ("fp32", "fp16", "i32", "i64", "i16", "u8")),
    *(_arranged("descending", kind) for kind in ("fp32", "i32")),
    *(_arranged("topk", kind) for kind in ("fp32", "i32", "bf16")),
    *(_arranged(way, kind) for way in ("transpose", "permute", "split", "join", "interleave", "flip")
      for kind in ("fp16", "i32", "i8")),
    *(_looked_up(kind, axis, (32, 64)) for kind in ("i32", "i16") for axis in (0, 1)),
    _counted(16, 1000), _counted(64, 1024), _counted(256, 700),
    *(_extreme(kind, least) for kind in ("fp32", "i32") for least in (True, False)),
    _extreme("i32", False, left=False),
    _four_bits("fp16"), _four_bits("bf16"),
)  # fmt: skip
