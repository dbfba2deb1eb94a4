"""Element-wise kernels: integers, functions, conversions over all inputs, arithmetic of half precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .harness import ARCHS, TYPES, Case, Configuration, Near, floats, integers, wide, zeros


@triton.jit
def integer(x, y, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, at < n, 1), tl.load(y + at, at < n, 1)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = a // b
    elif OP == "mod":
        c = a % b
    elif OP == "shl":
        c = a << (b & 7)
    elif OP == "shr":
        c = a >> (b & 7)
    elif OP == "logic":
        c = (a & b) ^ (a | ~b)
    elif OP == "minmax":
        c = tl.minimum(a, b) + tl.maximum(a, tl.maximum(b, 3)) - tl.minimum(tl.minimum(a, 7), b)
    elif OP == "abs":
        c = tl.abs(a) + b
    elif OP == "umulhi":
        c = tl.umulhi(a, b)
    elif OP == "compare":
        c = tl.where(a < b, a, b) + (a == b).to(a.dtype) + ((a > 3) & (b <= 5)).to(a.dtype)
    elif OP == "cdiv":
        c = tl.cdiv(a, b)
    elif OP == "popc":
        c = libdevice.popc(a)
    elif OP == "clz":
        c = libdevice.clz(a)
    tl.store(out + at, c, at < n)


@triton.jit
def function(x, y, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, at < n, 1.0), tl.load(y + at, at < n, 1.0)
    if OP == "exp":
        c = tl.exp(a)
    elif OP == "exp2":
        c = tl.exp2(a)
    elif OP == "log":
        c = tl.log(tl.abs(a))
    elif OP == "log2":
        c = tl.log2(tl.abs(a))
    elif OP == "sin":
        c = tl.sin(a)
    elif OP == "cos":
        c = tl.cos(a)
    elif OP == "sqrt":
        c = tl.sqrt(tl.abs(a))
    elif OP == "rsqrt":
        c = tl.rsqrt(tl.abs(a))
    elif OP == "sqrt_rn":
        c = tl.sqrt_rn(tl.abs(a))
    elif OP == "div_rn":
        c = tl.div_rn(a, b)
    elif OP == "divide":
        c = a / b
    elif OP == "erf":
        c = tl.erf(a)
    elif OP == "floor":
        c = tl.floor(a) + tl.ceil(b)
    elif OP == "sigmoid":
        c = tl.sigmoid(a)
    elif OP == "fma":
        c = tl.fma(a, b, a)
    elif OP == "tan":
        c = libdevice.tan(a)
    elif OP == "asin":
        c = libdevice.asin(a / (tl.abs(a) + 1))
    elif OP == "acos":
        c = libdevice.acos(a / (tl.abs(a) + 1))
    elif OP == "atan":
        c = libdevice.atan(a)
    elif OP == "atan2":
        c = libdevice.atan2(a, b)
    elif OP == "sinh":
        c = libdevice.sinh(a)
    elif OP == "cosh":
        c = libdevice.cosh(a)
    elif OP == "tanh":
        c = libdevice.tanh(a)
    elif OP == "log1p":
        c = libdevice.log1p(tl.abs(a))
    elif OP == "expm1":
        c = libdevice.expm1(a)
    elif OP == "cbrt":
        c = libdevice.cbrt(a)
    elif OP == "pow":
        c = libdevice.pow(tl.abs(a), b)
    elif OP == "hypot":
        c = libdevice.hypot(a, b)
    elif OP == "fmod":
        c = libdevice.fmod(a, b)
    elif OP == "trunc":
        c = libdevice.trunc(a) + libdevice.rint(b)
    elif OP == "log10":
        c = libdevice.log10(tl.abs(a))
    elif OP == "exp10":
        c = libdevice.exp10(a)
    tl.store(out + at, c, at < n)


@triton.jit
def half(x, y, z, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a, b, c = tl.load(x + at, mask, 0.0), tl.load(y + at, mask, 0.0), tl.load(z + at, mask, 0.0)
    if OP == "add":
        d = a + b
    elif OP == "affine":
        d = a * 2.0 + 1.0
    elif OP == "muladd":
        d = a * b + c
    elif OP == "widened":
        d = a.to(tl.float32) * b.to(tl.float32) + c.to(tl.float32)
    elif OP == "mixed":
        d = a.to(tl.float32) * 3.5 + c.to(tl.float32)
    elif OP == "divide":
        d = a / b
    elif OP == "silu":
        d = (a * tl.sigmoid(a.to(tl.float32))).to(a.dtype)
    elif OP == "minimum":
        d = tl.minimum(tl.minimum(a, b), c)
    elif OP == "maximum":
        d = tl.maximum(tl.maximum(a, b), c)
    elif OP == "minimum nan":
        d = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "maximum nan":
        d = tl.maximum(tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL), c, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "clamp":
        d = tl.clamp(a, -0.5, 0.5)
    elif OP == "clamp nan":
        d = tl.clamp(a, -0.5, 0.5, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "select":
        d = tl.where(a < b, a, -c)
    elif OP == "abs":
        d = tl.abs(a) - b
    tl.store(out + at, d, mask)


@triton.jit
def convert(x, out, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty, fp_downcast_rounding=ROUNDING), at < n)


@triton.jit
def reinterpret(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n).to(KIND, bitcast=True) + 1, at < n)


N = 700
_DTYPE = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
          "u64": "uint64"}  # fmt: skip


def _shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return b & a.dtype.type(7)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    sign = np.where((a < 0) != (b < 0), -1, 1).astype(object)
    return (quotient * sign).astype(a.dtype)


def _bit(function: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    def run(a: np.ndarray, _: np.ndarray) -> np.ndarray:
        width = 8 * a.dtype.itemsize
        return np.array([function(int(v) & (1 << width) - 1, width) for v in a], np.int32)

    return run


def _high_unsigned(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    first, second = (part.view(f"u{a.dtype.itemsize}").astype(object) for part in (a, b))
    return np.array([int(value) >> bits for value in first * second], f"u{a.dtype.itemsize}").view(a.dtype)


_INTEGER: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncated,
    "mod": lambda a, b: (a.astype(object) - _truncated(a, b).astype(object) * b.astype(object)).astype(a.dtype),
    "shl": lambda a, b: a << _shift(a, b),
    "shr": lambda a, b: a >> _shift(a, b),
    "logic": lambda a, b: (a & b) ^ (a | ~b),
    "minmax": lambda a, b: np.minimum(a, b) + np.maximum(np.maximum(a, b), 3) - np.minimum(np.minimum(a, b), 7),
    "abs": lambda a, b: np.abs(a) + b,
    "umulhi": _high_unsigned,
    "compare": lambda a, b: np.minimum(a, b) + (a == b).astype(a.dtype) + ((a > 3) & (b <= 5)).astype(a.dtype),
    "cdiv": lambda a, b: (-(-a.astype(object) // b.astype(object))).astype(a.dtype),
    "popc": _bit(lambda v, _: v.bit_count()),
    "clz": _bit(lambda v, width: width - v.bit_length()),
}


def _integer(op: str, kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        low = 1 if op in ("cdiv",) else None
        x, y = (integers(rng, kind, N, low=low, high=100 if op == "cdiv" else None) for _ in range(2))
        edges = [value for value in (0, 1, 2, 3, 7, 127) if low is None or value >= low]
        x[: len(edges)] = torch.tensor(edges).to(x.dtype)
        if op in ("div", "mod"):
            y = torch.where(y.to(torch.int64) == 0, torch.ones_like(y.to(torch.int64)), y.to(torch.int64)).to(y.dtype)
            if kind[0] == "i":
                y = torch.where(y == -1, torch.full_like(y, 3), y)
        with np.errstate(over="ignore"):
            expected = _INTEGER[op](x.numpy(), y.numpy())
        out = zeros("i32" if op in ("popc", "clz") else kind, N)
        return Case((x, y, out, N), {2: expected.astype(out.numpy().dtype)})

    return Configuration("integers", f"{op} {kind}", integer, (3,), {"OP": op, "BLOCK": 256}, make)


_MATH = np.vectorize(math.erf), np.vectorize(math.cbrt)
_FUNCTION: dict[str, Callable[..., Any]] = {
    "exp": lambda a, b: np.exp(a), "exp2": lambda a, b: np.exp2(a), "log": lambda a, b: np.log(np.abs(a)),
    "log2": lambda a, b: np.log2(np.abs(a)), "sin": lambda a, b: np.sin(a), "cos": lambda a, b: np.cos(a),
    "sqrt": lambda a, b: np.sqrt(np.abs(a)), "rsqrt": lambda a, b: 1 / np.sqrt(np.abs(a)),
    "sqrt_rn": lambda a, b: np.sqrt(np.abs(a)), "div_rn": lambda a, b: a / b, "divide": lambda a, b: a / b,
    "erf": lambda a, b: _MATH[0](a), "floor": lambda a, b: np.floor(a) + np.ceil(b),
    "sigmoid": lambda a, b: 1 / (1 + np.exp(-a)), "fma": lambda a, b: a * b + a, "tan": lambda a, b: np.tan(a),
    "asin": lambda a, b: np.arcsin(a / (np.abs(a) + 1)), "acos": lambda a, b: np.arccos(a / (np.abs(a) + 1)),
    "atan": lambda a, b: np.arctan(a), "atan2": np.arctan2, "sinh": lambda a, b: np.sinh(a),
    "cosh": lambda a, b: np.cosh(a), "tanh": lambda a, b: np.tanh(a), "log1p": lambda a, b: np.log1p(np.abs(a)),
    "expm1": lambda a, b: np.expm1(a), "cbrt": lambda a, b: _MATH[1](a), "pow": lambda a, b: np.abs(a) ** b,
    "hypot": np.hypot, "fmod": np.fmod, "trunc": lambda a, b: np.trunc(a) + np.rint(b),
    "log10": lambda a, b: np.log10(np.abs(a)), "exp10": lambda a, b: 10**a,
}  # fmt: skip
_NOT_IN_LIBDEVICE = ("cbrt", "exp10")  # of Triton 3.9 for AMD: its compiler refuses them
_PLAIN_DOUBLE = ("exp", "log", "sin", "cos", "sqrt", "divide", "erf", "floor", "fma", "tan", "atan", "pow", "tanh")


def _function(op: str, kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, y = floats(rng, kind, N, scale=3.0), floats(rng, kind, N, scale=2.0)
        expected = _FUNCTION[op](wide(x), wide(y))
        loss = 2.0**-17 if kind == "fp32" else 2.0**-45
        return Case((x, y, zeros(kind, N), N), {2: Near(expected, loss, loss)})

    refused = dict.fromkeys(ARCHS, "at ") if op in _NOT_IN_LIBDEVICE else {}
    constants = {"OP": op, "BLOCK": 256}
    return Configuration("functions", f"{op} {kind}", function, (3,), constants, make, refused=refused)


def _fold(choose: Any, *values: np.ndarray) -> np.ndarray:
    result = values[0]
    for value in values[1:]:
        result = choose(result, value)
    return np.asarray(result)


_HALF: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, c: a + b, "affine": lambda a, b, c: a * 2 + 1, "muladd": lambda a, b, c: a * b + c,
    "widened": lambda a, b, c: a * b + c, "mixed": lambda a, b, c: a * 3.5 + c, "divide": lambda a, b, c: a / b,
    "silu": lambda a, b, c: a / (1 + np.exp(-a)), "minimum": lambda a, b, c: _fold(np.fmin, a, b, c),
    "maximum": lambda a, b, c: _fold(np.fmax, a, b, c), "minimum nan": lambda a, b, c: np.minimum(a, b),
    "maximum nan": lambda a, b, c: _fold(np.maximum, a, b, c),
    "clamp": lambda a, b, c: np.fmax(np.fmin(a, 0.5), -0.5),
    "clamp nan": lambda a, b, c: np.clip(a, -0.5, 0.5), "select": lambda a, b, c: np.where(a < b, a, -c),
    "abs": lambda a, b, c: np.abs(a) - b,
}  # fmt: skip


def _half(op: str, kind: str, result: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, y, z = (floats(rng, kind, N, scale=2.0) for _ in range(3))
        if "nan" in op or op in ("minimum", "maximum"):
            for place, tensor in enumerate((x, y, z)):
                tensor[place::17] = float("nan")
        expected = _HALF[op](wide(x), wide(y), wide(z))
        loss = {"fp16": 2.0**-9, "bf16": 2.0**-6, "fp32": 2.0**-20}[result]
        return Case((x, y, z, zeros(result, N), N), {3: Near(expected, loss, loss)})

    return Configuration("half precision", f"{op} {kind} to {result}", half, (3,), {"OP": op, "BLOCK": 256}, make)


def _codes(kind: str) -> torch.Tensor:
    """Every code of a type of 8 or 16 bits; of 32 bits, every upper half with a few lower ones."""
    size = TYPES[kind].itemsize
    if size == 1:
        return torch.arange(256).to(torch.uint8).view(TYPES[kind]).repeat(2)
    if size == 2:
        return torch.arange(1 << 16).to(torch.int32).to(torch.uint16).view(TYPES[kind])
    upper = np.arange(0, 1 << 16, 3, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0xE000], np.uint32)
    bits = upper | lower[np.arange(len(upper)) % len(lower)]
    return torch.from_numpy(bits.view(np.float32))


def _converted(origin: str, result: str, rounding: str | None = None, faults: tuple[str, ...] = ()) -> Configuration:
    """Codes whose value is finite and in range must be rounded right; the others are in docs/triton-faults.md."""

    def make(_: np.random.Generator, arch: str) -> Case:
        x = _codes(origin)
        value = wide(x)
        limit = torch.finfo(TYPES[result]).max if result[0] not in "iu" else np.iinfo(_DTYPE[result]).max

        def check(found: torch.Tensor) -> str | None:
            got = wide(found)
            inside = np.isfinite(value) & (np.abs(value) <= float(limit))
            if arch == "gfx942" and (origin, result) == ("fp16", "e4m3"):
                inside &= ~((np.abs(value) > 464) & (np.abs(value) < 480))
            if result[0] in "iu":
                inside &= value >= np.iinfo(_DTYPE[result]).min
                want = np.trunc(value)
            elif rounding == "rtz":
                near = wide(torch.from_numpy(value.astype(np.float64)).to(TYPES[result]))
                want = near
                wrong = inside & ~(
                    (np.abs(got) <= np.abs(value))
                    & (np.abs(got - value) < np.spacing(np.abs(value)) + _step(value, result))
                )
                return None if not wrong.any() else f"{wrong.sum()} wrong, first {value[wrong][0]} to {got[wrong][0]}"
            else:
                want = wide(torch.from_numpy(value).to(torch.float32).to(TYPES[result]))
            wrong = inside & (got != want)
            return (
                None
                if not wrong.any()
                else f"{wrong.sum()} wrong, first {value[wrong][0]}: {got[wrong][0]}, not {want[wrong][0]}"
            )

        n = x.numel()
        return Case((x, zeros(result, n), n), {1: check})

    n = _codes(origin).numel()
    name = f"{origin} to {result}{' ' + rounding if rounding else ''}"
    constants = {"ROUNDING": rounding, "BLOCK": 1024}
    return Configuration("conversions", name, convert, (-(-n // 1024),), constants, make)


def _step(value: np.ndarray, result: str) -> np.ndarray:
    """The distance between neighbours of a type at some values."""
    info = torch.finfo(TYPES[result])
    size = np.maximum(np.abs(value), info.smallest_normal)
    return 2.0 ** np.floor(np.log2(size)) * info.eps


_SMALL = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
_ON_950 = ("e4m3", "e5m2")
CONFIGURATIONS = (
    *(_integer(op, kind) for kind in ("i8", "i16", "i32", "i64", "u32") for op in ("add", "mul", "div", "mod", "minmax")),
    *(_integer(op, kind) for kind in ("u8", "u16", "u64") for op in ("div", "mod", "shr", "compare")),
    *(_integer(op, kind) for kind in ("i8", "i32", "i64") for op in ("shl", "shr", "logic", "abs", "compare", "sub")),
    *(_integer("umulhi", kind) for kind in ("i32", "u32", "u64")),
    _integer("cdiv", "i32"),
    *(_integer(op, kind) for op in ("popc", "clz") for kind in ("i32", "i64")),
    *(_function(op, "fp32") for op in _FUNCTION),
    *(_function(op, "fp64") for op in _PLAIN_DOUBLE),
    *(_half(op, kind, kind) for kind in ("fp16", "bf16") for op in _HALF if op not in ("widened", "mixed")),
    *(_half(op, kind, "fp32") for kind in ("fp16", "bf16") for op in ("widened", "mixed")),
    *(_half(op, "fp32", "fp32") for op in ("minimum nan", "maximum nan", "clamp", "clamp nan", "maximum")),
    *(_half("widened", kind, kind) for kind in ("fp16", "bf16")),
    *(_converted(origin, result) for origin in _SMALL for result in ("fp32", "fp16", "bf16")),
    *(_converted(origin, result) for origin in ("fp32", "fp16", "bf16") for result in _SMALL),
    *(_converted(*pair) for pair in (("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp16"), ("fp32", "bf16"))),
    *(_converted(*pair) for pair in (("fp16", "bf16"), ("bf16", "fp16"), ("fp16", "i16"), ("fp16", "i32"))),
    *(_converted(*pair) for pair in (("bf16", "i8"), ("fp32", "i32"), ("fp32", "i64"), ("fp32", "u8"))),
    *(_converted("fp32", result, "rtz") for result in ("fp16", "bf16")),
)  # fmt: skip
