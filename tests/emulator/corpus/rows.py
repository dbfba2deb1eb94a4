"""Kernels that work along rows: softmax, normalisations, activations, losses, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from .harness import Case, Configuration, Near, floats, integers, wide, zeros


@triton.jit
def normalise(x, weight, out, columns, stride, WAY: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    if WAY == "softmax":
        value = tl.load(x + row * stride + at, mask, float("-inf")).to(tl.float32)
        power = tl.exp(value - tl.max(value, 0))
        result = power / tl.sum(power, 0)
    elif WAY == "rmsnorm":
        value = tl.load(x + row * stride + at, mask, 0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / columns + 1e-5)
        result = value * scale * tl.load(weight + at, mask, 0.0)
    elif WAY == "layernorm":
        value = tl.load(x + row * stride + at, mask, 0.0).to(tl.float32)
        mean = tl.sum(value, 0) / columns
        centred = tl.where(mask, value - mean, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
        result = centred * scale * tl.load(weight + at, mask, 0.0)
    elif WAY == "swiglu":
        gate = tl.load(x + row * stride + at, mask, 0.0).to(tl.float32)
        result = gate * tl.sigmoid(gate) * tl.load(weight + at, mask, 0.0)
    else:
        value = tl.load(x + row * stride + at, mask, 0.0)
        result = (value * 2.0 + 1.0) * tl.load(weight + at, mask, 0.0)
    tl.store(out + row * stride + at, result, mask)


@triton.jit
def cross_entropy(x, labels, loss, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, float("-inf")).to(tl.float32)
    most = tl.max(value, 0)
    total = tl.log(tl.sum(tl.exp(value - most), 0)) + most
    label = tl.load(labels + row)
    tl.store(loss + row, total - tl.load(x + row * columns + label).to(tl.float32))


@triton.jit
def reduce(x, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, WAY: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + m[:, None] * N + n[None, :])
    if WAY == "sum":
        result = tl.sum(value, AXIS)
    elif WAY == "max":
        result = tl.max(value, AXIS)
    elif WAY == "min":
        result = tl.min(value, AXIS)
    elif WAY == "xor":
        result = tl.xor_sum(value, AXIS)
    elif WAY == "argmax":
        result = tl.argmax(value, AXIS)
    else:
        result = tl.argmin(value, AXIS)
    tl.store(out + tl.arange(0, N if AXIS == 0 else M), result)


@triton.jit
def _both(a, b, c, d):
    return a * c, b + d


@triton.jit
def reduce_pairs(x, out, total, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    product, count = tl.reduce((value, value), 0, _both)
    tl.store(out, product)
    tl.store(total, count)


def _normalised(way: str, kind: str, columns: int, warps: int) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, weight = floats(rng, kind, 3, columns), floats(rng, kind, columns)
        value, factor = wide(x), wide(weight)
        if way == "softmax":
            power = np.exp(value - value.max(1, keepdims=True))
            result = power / power.sum(1, keepdims=True)
        elif way == "swiglu":
            result = value / (1 + np.exp(-value)) * factor
        elif way == "affine":
            result = (value * 2 + 1) * factor
        else:
            centred = value - (value.mean(1, keepdims=True) if way == "layernorm" else 0)
            result = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * factor
        loss = {"fp32": 3e-6, "fp16": 2.0**-9, "bf16": 2.0**-6}[kind]
        return Case((x, weight, zeros(kind, 3, columns), columns, columns), {2: Near(result, loss, loss * 0.1)})

    block = triton.next_power_of_2(columns)
    constants = {"WAY": way, "BLOCK": block, "num_warps": warps}
    return Configuration("rows", f"{way} {kind} {columns} warps{warps}", normalise, (3,), constants, make)


def _entropy(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, labels = floats(rng, kind, 4, 700), integers(rng, "i32", 4, low=0, high=699)
        value = wide(x)
        loss = np.log(np.exp(value).sum(1)) - value[np.arange(4), labels.numpy()]
        return Case((x, labels, zeros("fp32", 4), 700), {2: Near(loss, 1e-5, 1e-5)})

    return Configuration("rows", f"cross entropy {kind}", cross_entropy, (4,), {"BLOCK": 1024}, make)


def _reduced(way: str, kind: str, axis: int, shape: tuple[int, int] = (32, 64)) -> Configuration:
    real = kind in ("fp16", "bf16", "fp32", "fp64")
    result = "i32" if way.startswith("arg") else kind
    if way == "sum" and not real and kind[1:] in ("8", "16"):
        result = "i32"

    def make(rng: np.random.Generator, _: str) -> Case:
        x = floats(rng, kind, *shape) if real else integers(rng, kind, *shape)
        out = zeros(result, shape[1 - axis])
        if real and way == "sum":
            exact = wide(x).sum(axis)
            loss = {"fp16": 2.0**-8, "bf16": 2.0**-5, "fp32": 1e-5, "fp64": 1e-13}[kind]
            return Case((x, out), {1: Near(exact, loss, loss * 8)})
        array = wide(x) if real else x.numpy()
        if way == "xor":
            value = np.bitwise_xor.reduce(array, axis)
        elif way == "sum":
            with np.errstate(over="ignore"):
                value = array.sum(axis, dtype=out.numpy().dtype)
        else:
            value = {"max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin}[way](array, axis)
        expected: Any = Near(value) if real else value.astype(out.numpy().dtype)
        return Case((x, out), {1: expected})

    constants = {"M": shape[0], "N": shape[1], "AXIS": axis, "WAY": way, "num_warps": 4}
    return Configuration("reductions", f"{way} {kind} axis{axis} {shape[0]}x{shape[1]}", reduce, (1,), constants, make)


def _pairs() -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x = integers(rng, "i32", 256, low=1, high=3)
        value = x.numpy()
        with np.errstate(over="ignore"):
            expected = np.array([np.multiply.reduce(value, dtype=np.int32)], np.int32)
        return Case((x, zeros("i32", 1), zeros("i32", 1)), {1: expected, 2: np.array([value.sum()], np.int32)})

    return Configuration("reductions", "product and sum", reduce_pairs, (1,), {"N": 256}, make)


_WAYS = ("softmax", "rmsnorm", "layernorm", "swiglu", "affine")
CONFIGURATIONS = (
    *(_normalised(way, kind, 500, 4) for way in _WAYS for kind in ("fp32", "fp16", "bf16")),
    *(_normalised(way, "fp16", 1024, 1) for way in _WAYS),
    _entropy("fp16"),
    _entropy("bf16"),
    *(_reduced("sum", kind, axis) for kind in ("fp16", "bf16", "fp32", "fp64", "i8", "i64") for axis in (0, 1)),
    *(_reduced(way, kind, 1) for way in ("max", "min") for kind in ("fp16", "bf16", "fp32", "i8", "i16", "u16", "i64")),
    *(_reduced("xor", kind, 0) for kind in ("i16", "i32", "i64")),
    *(_reduced(way, kind, axis) for way, kind, axis in (("argmax", "fp32", 1), ("argmin", "i32", 0), ("argmax", "i8", 1))),
    _reduced("max", "fp32", 0, (128, 16)),
    _pairs(),
)  # fmt: skip
