"""Atomics, control flow, and what stands at the edges: descriptors, spills, cache modifiers, assembly, asserts, timers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .harness import TYPES, Case, Configuration, Near, floats, integers, wide, zeros


@triton.jit
def atomic(
    x, out, old, n, OP: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, 0)
    cell = out + at % CELLS
    if OP == "add":
        before = tl.atomic_add(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "max":
        before = tl.atomic_max(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "min":
        before = tl.atomic_min(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "and":
        before = tl.atomic_and(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "or":
        before = tl.atomic_or(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "xor":
        before = tl.atomic_xor(cell, value, at < n, sem=SEM, scope=SCOPE)
    elif OP == "xchg":
        before = tl.atomic_xchg(cell, value, at < n, sem=SEM, scope=SCOPE)
    tl.store(old + at, before, at < n)


@triton.jit
def atomic_scalar(x, out, OP: tl.constexpr):
    value = tl.load(x + tl.program_id(0))
    if OP == "add":
        tl.atomic_add(out, value)
    else:
        tl.atomic_max(out, value)


@triton.jit
def swap_if(x, out, old, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(old + at, tl.atomic_cas(out + at, tl.load(x + at), tl.load(x + at) + 1))


@triton.jit
def locked(lock, out, n, TURNS: tl.constexpr):
    for _ in range(TURNS):
        while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
            pass
        tl.store(out, tl.load(out, cache_modifier=".cv") + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0, sem="release")


@triton.jit
def split_k(a, b, out, K: tl.constexpr, PART: tl.constexpr, M: tl.constexpr):
    m, k = tl.arange(0, M), tl.program_id(0) * PART + tl.arange(0, PART)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * M + m[None, :])
    tl.atomic_add(out + m[:, None] * M + m[None, :], tl.dot(left, right))


@triton.jit(noinline=True)
def _apart(value, power):
    result = value
    for _ in range(power):
        result = result * 3 + 1
    return result


@triton.jit
def flow(x, out, n, WAY: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    if WAY == "persistent":
        for block in range(program, tl.cdiv(n, BLOCK), tl.num_programs(0)):
            place = block * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + place, tl.load(x + place, place < n) + 1, place < n)
    elif WAY == "while":
        value, turns = tl.load(x + program), 0
        while value > 1:
            value = value // 2 if value % 2 == 0 else value * 3 + 1
            turns += 1
        tl.store(out + program, turns)
    elif WAY == "return":
        if program % 2 == 0:
            return
        tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)
    elif WAY == "nested":
        value = tl.load(x + at, at < n)
        if n > 100:
            if program == 1:
                value += 10
            elif program == 2:
                value -= 20
            else:
                value *= 3
        tl.store(out + at, value, at < n)
    elif WAY == "noinline":
        value = tl.load(x + at, at < n)
        tl.store(out + at, value * _apart(program, 2) + _apart(n, 1), at < n)
    elif WAY == "grid":
        number = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + program
        tl.store(out + number, tl.num_programs(0) * 100 + tl.num_programs(1) * 10 + tl.num_programs(2))
    elif WAY == "swizzle":
        i, j = tl.swizzle2d(program // 4, program % 4, 4, 4, 2)
        tl.store(out + program, i * 4 + j)
    elif WAY == "loops":
        total = tl.zeros((BLOCK,), tl.int32)
        for i in range(program + 2):
            for j in tl.range(0, i, num_stages=2):
                total += tl.load(x + at, at < n) + i * j
        tl.store(out + at, total, at < n)


@triton.jit
def noise(out, seed, WAY: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if WAY == "rand":
        tl.store(out + at, tl.rand(seed, at))
    elif WAY == "randn":
        tl.store(out + at, tl.randn(seed, at))
    else:
        tl.store(out + at, tl.randint(seed, at))


@triton.jit
def described(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at) * 2)


@triton.jit
def odd(x, y, out, n, WAY: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    if WAY == "cached":
        value = tl.load(x + at, mask, 0.0, cache_modifier=".cg", eviction_policy="evict_first")
        tl.store(out + at, value, mask, cache_modifier=".wt")
    elif WAY == "volatile":
        tl.store(out + at, tl.load(x + at, mask, 0.0, volatile=True), mask, cache_modifier=".cs")
    elif WAY == "assembly":
        value = tl.load(x + at, mask, 0.0)
        value = tl.inline_asm_elementwise("v_add_f32 $0, $1, $1", "=v,v", [value], tl.float32, True, 1)
        tl.store(out + at, value, mask)
    elif WAY == "assert":
        value = tl.load(x + at, mask, 0.0)
        tl.device_assert(value == value, "no NaN")
        tl.store(out + at, value, mask)
    elif WAY == "rope":
        low, high = tl.load(x + at, mask, 0.0), tl.load(x + n + at, mask, 0.0)
        angle = tl.load(y + at, mask, 0.0)
        tl.store(out + at, low * tl.cos(angle) - high * tl.sin(angle), mask)
        tl.store(out + n + at, high * tl.cos(angle) + low * tl.sin(angle), mask)
    elif WAY == "quantise":
        value = tl.load(x + at, mask, 0.0)
        scale = tl.max(tl.abs(value), 0) / 127.0
        tl.store(out + at, tl.extra.libdevice.rint(value / scale) * scale, mask)
    else:
        value = tl.load(x + at, mask, 0.0)
        for _ in range(3):
            value = tl.cumsum(value * 0.5, 0) + tl.sin(value)
        tl.store(out + at, value, mask)


@triton.jit
def paged(q, pages, table, out, length, D: tl.constexpr, PAGE: tl.constexpr):
    inner, slot = tl.arange(0, D), tl.arange(0, PAGE)
    query = tl.load(q + inner)
    most, total, result = float("-inf"), 0.0, tl.zeros((D,), tl.float32)
    for page in range(tl.cdiv(length, PAGE)):
        number = tl.load(table + page)
        key = tl.load(pages + number * PAGE * D + slot[:, None] * D + inner[None, :]).to(tl.float32)
        score = tl.where(page * PAGE + slot < length, tl.sum(key * query[None, :], 1), float("-inf"))
        now = tl.maximum(most, tl.max(score, 0))
        power, fade = tl.exp(score - now), tl.exp(most - now)
        total = total * fade + tl.sum(power, 0)
        result = result * fade + tl.sum(power[:, None] * key, 0)
        most = now
    tl.store(out + inner, result / total)


_NUMPY = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
          "xor": np.bitwise_xor}  # fmt: skip


def _atomic(op: str, kind: str, sem: str = "acq_rel", scope: str = "gpu", cells: int = 7) -> Configuration:
    real = kind[0] in "fb"

    def make(rng: np.random.Generator, _: str) -> Case:
        n = 300
        x = floats(rng, kind, n) if real else integers(rng, kind, n)
        out, old = zeros(kind, cells), zeros(kind, n)
        if op == "xchg":
            given = {x[at::cells].numpy().tobytes() for at in range(cells)}
            assert given

            def one_of(found: torch.Tensor) -> str | None:
                bad = [at for at in range(cells) if found[at] not in x[at::cells]]
                return f"cells {bad} hold values that nobody wrote" if bad else None

            return Case((x, out, old, n), {1: one_of})
        array = wide(x) if real else x.numpy()
        start = np.zeros(cells, array.dtype)
        with np.errstate(over="ignore"):
            for at, value in enumerate(array):
                start[at % cells] = _NUMPY[op](start[at % cells], value)
        loss = {"fp32": 1e-5, "fp16": 5e-2, "bf16": 0.5, "fp64": 1e-12}.get(kind, 0)
        return Case((x, out, old, n), {1: Near(start, 0, loss if op == "add" else 0) if real else start})

    constants = {"OP": op, "SEM": sem, "SCOPE": scope, "CELLS": cells, "BLOCK": 64, "num_warps": 1}
    name = f"{op} {kind} {sem} {scope} {cells} cells"
    return Configuration("atomics", name, atomic, (5,), constants, make, order_shows=True)


def _single(op: str, kind: str, cells: int = 2) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x = torch.cat((integers(rng, "i32", 9, low=1, high=9), torch.zeros(1, dtype=torch.int32))).to(TYPES[kind])
        value = wide(x).sum() if op == "add" else wide(x).max()
        return Case((x, zeros(kind, cells)), {1: Near(np.array([value, *[0.0] * (cells - 1)]))})

    name = f"scalar {op} {kind} {cells} cells"
    return Configuration("atomics", name, atomic_scalar, (9,), {"OP": op, "num_warps": 1}, make)


def _compare(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x, start = integers(rng, kind, 128), integers(rng, kind, 128)
        start[::2] = x[::2]
        out = start.clone()
        with np.errstate(over="ignore"):
            expected = np.where(start.numpy() == x.numpy(), x.numpy() + x.numpy().dtype.type(1), start.numpy())
        return Case((x, out, zeros(kind, 128)), {1: expected, 2: start.numpy().copy()})

    return Configuration("atomics", f"cas {kind}", swap_if, (1,), {"BLOCK": 128}, make)


def _lock(programs: int) -> Configuration:
    def make(_: np.random.Generator, __: str) -> Case:
        return Case((zeros("i32", 1), zeros("i32", 1), 1), {1: np.array([2 * programs], np.int32)})

    return Configuration("atomics", f"lock {programs}", locked, (programs,), {"TURNS": 2, "num_warps": 1}, make)


def _split(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        a, b = floats(rng, kind, 32, 256), floats(rng, kind, 256, 32)
        return Case((a, b, zeros("fp32", 32, 32)), {2: Near(wide(a) @ wide(b), 1e-5, 1e-3)})

    constants = {"K": 256, "PART": 64, "M": 32}
    return Configuration("atomics", f"split k {kind}", split_k, (4,), constants, make, order_shows=True)


def _collatz(value: int) -> int:
    turns = 0
    while value > 1:
        value, turns = (value // 2 if value % 2 == 0 else value * 3 + 1), turns + 1
    return turns


def _flow(way: str, grid: tuple[int, ...] = (3,), warps: int = 1) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        n = 180
        x = integers(rng, "i32", n, low=1, high=30)
        value, block = x.numpy(), np.arange(n) // 64
        out = zeros("i32", n)
        if way == "persistent":
            expected = value + 1
        elif way == "while":
            expected = np.zeros(n, np.int32)
            expected[: grid[0]] = [_collatz(int(v)) for v in value[: grid[0]]]
        elif way == "return":
            expected = np.where(block % 2 == 1, value * 2, 0)
        elif way == "nested":
            expected = np.select([block == 1, block == 2], [value + 10, value - 20], value * 3)
        elif way == "noinline":
            expected = value * (block * 9 + 4) + n * 3 + 1
        elif way == "grid":
            expected = np.zeros(n, np.int32)
            expected[: int(np.prod(grid))] = grid[0] * 100 + grid[1] * 10 + grid[2]
        elif way == "swizzle":
            expected = np.zeros(n, np.int32)
            expected[:16] = [_swizzled(at // 4, at % 4) for at in range(16)]
        else:
            expected = sum(np.where(i < block + 2, value + i * j, 0) for i in range(4) for j in range(i))
        return Case((x, out, n), {1: np.asarray(expected, np.int32)})

    constants = {"WAY": way, "BLOCK": 64, "num_warps": warps}
    return Configuration("control flow", f"{way} {'x'.join(map(str, grid))} warps{warps}", flow, grid, constants, make)


def _swizzled(i: int, j: int) -> int:
    place = i * 4 + j
    group, rest = divmod(place, 8)
    return (group * 2 + rest % 2) * 4 + rest // 2


def _noise(way: str) -> Configuration:
    def make(_: np.random.Generator, __: str) -> Case:
        out = zeros("i32" if way == "randint" else "fp32", 1024)

        def plausible(found: torch.Tensor) -> str | None:
            value = wide(found)
            if len(np.unique(value)) < 1000:
                return "values repeat"
            if way == "randint":
                return None if abs(value.mean()) < 2.0**27 else f"mean {value.mean()}"
            mean, spread = (0.5, 0.2887) if way == "rand" else (0.0, 1.0)
            near = abs(value.mean() - mean) < 0.1 and abs(value.std() - spread) < 0.1
            return None if near else f"mean {value.mean()}, deviation {value.std()}"

        return Case((out, 42), {0: plausible})

    return Configuration("control flow", f"philox {way}", noise, (1,), {"WAY": way, "BLOCK": 1024}, make)


def _described(kind: str, shape: tuple[int, int]) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        x = floats(rng, kind, *shape)
        return Case((x, zeros(kind, *shape), *shape), {1: Near(wide(x) * 2)})

    constants = {"BM": 16, "BN": 32}
    return Configuration("odds", f"descriptor {kind} {shape[0]}x{shape[1]}", described, (3, 3), constants, make)


def _odd(way: str, block: int = 256, warps: int = 4, n: int = 0, **options: Any) -> Configuration:
    length = n or 700
    grid = -(-length // block)

    def make(rng: np.random.Generator, _: str) -> Case:
        x, y, out = floats(rng, "fp32", 2 * length), floats(rng, "fp32", length), zeros("fp32", 2 * length)
        value = wide(x)[:length]
        expected = np.zeros(2 * length)
        loss = 1e-6
        if way == "rope":
            other, angle = wide(x)[length:], wide(y)
            expected[:length] = value * np.cos(angle) - other * np.sin(angle)
            expected[length:] = other * np.cos(angle) + value * np.sin(angle)
            loss = 1e-5
        elif way == "quantise":
            for start in range(0, length, block):
                part = value[start : start + block]
                scale = np.abs(part).max() / 127
                expected[start : start + block][: len(part)] = part
                loss = max(loss, scale * 0.51)
        elif way == "spill":
            for _turn in range(3):
                value = np.cumsum(value * 0.5) + np.sin(value)
            expected[:length], loss = value, 2e-2
        else:
            expected[:length] = value * (2 if way == "assembly" else 1)
        return Case((x, y, out, length), {2: Near(expected, loss, loss)})

    constants = {"WAY": way, "BLOCK": block, "num_warps": warps} | options
    return Configuration("odds", f"{way} {block} warps{warps}", odd, (grid,), constants, make)


def _paged(kind: str) -> Configuration:
    def make(rng: np.random.Generator, _: str) -> Case:
        q, pages = floats(rng, "fp32", 64, scale=0.3), floats(rng, kind, 9, 16, 64)
        table, length = torch.from_numpy(rng.permutation(9).astype(np.int32)), 75
        keys = wide(pages)[table.numpy()].reshape(-1, 64)[:length]
        score = keys @ wide(q)
        power = np.exp(score - score.max())
        return Case((q, pages, table, zeros("fp32", 64), length), {3: Near(power @ keys / power.sum(), 1e-4, 1e-4)})

    return Configuration("odds", f"paged attention {kind}", paged, (1,), {"D": 64, "PAGE": 16}, make)


CONFIGURATIONS = (
    *(_atomic(op, kind) for op in ("add", "max", "min", "xchg") for kind in ("i32", "i64", "u32", "u64")),
    *(_atomic(op, kind) for op in ("and", "or", "xor") for kind in ("i32", "i64")),
    *(_atomic("add", kind, cells=cells) for kind in ("fp16", "bf16", "fp32", "fp64") for cells in (8, 7)),
    *(_single("add", kind, cells) for kind in ("fp16", "bf16") for cells in (1, 7)),
    *(_atomic(op, "fp32") for op in ("max", "min", "xchg")),
    *(_atomic("add", "i32", sem, scope) for sem in ("relaxed", "acquire", "release") for scope in ("cta", "gpu", "sys")),
    _atomic("add", "fp32", "relaxed", cells=1), _atomic("add", "i32", "relaxed", cells=1),
    *(_single("add", kind) for kind in ("fp16", "bf16", "fp32", "i32", "i64")),
    *(_single("max", kind) for kind in ("fp32", "i32")),
    *(_compare(kind) for kind in ("i32", "i64", "u32")),
    _lock(1), _lock(5), _split("fp16"), _split("bf16"),
    *(_flow(way, warps=warps) for way in ("persistent", "nested", "return", "noinline", "loops") for warps in (1, 4)),
    _flow("while", (20,)), _flow("grid", (4, 3, 5)), _flow("swizzle", (16,)), _flow("persistent", (2,)),
    *(_noise(way) for way in ("rand", "randn", "randint")),
    _described("fp16", (40, 64)), _described("fp32", (33, 96)),
    *(_odd(way) for way in ("cached", "volatile", "assembly", "rope", "quantise")),
    _odd("assert", debug=True), _odd("spill", 8192, 1, 8192), _odd("spill", 1024, 4, 1024),
    _paged("fp16"), _paged("fp32"),
)  # fmt: skip
