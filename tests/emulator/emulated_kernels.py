"""Small Triton kernels whose machine code the tests run."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, live) + tl.load(y + at, live), live)


@triton.jit
def softmax(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, at < n, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, (exponentials / tl.sum(exponentials, 0)).to(out.dtype.element_ty), at < n)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ZERO: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for start in range(0, k, BK):
        depth = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + depth[None, :], (rows[:, None] < m) & (depth[None, :] < k), other=ZERO)
        inside = (depth[:, None] < k) & (columns[None, :] < n)
        right = tl.load(b + depth[:, None] * n + columns[None, :], inside, other=ZERO)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total, (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def scaled_matmul(a, a_scale, b, b_scale, c, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    rows, groups = tl.arange(0, 64), tl.arange(0, K // 32)
    PACK_A: tl.constexpr = 2 if A == "e2m1" else 1
    PACK_B: tl.constexpr = 2 if B == "e2m1" else 1
    left = tl.load(a + rows[:, None] * (K // PACK_A) + tl.arange(0, K // PACK_A)[None, :])
    right = tl.load(b + tl.arange(0, K // PACK_B)[:, None] * 64 + rows[None, :])
    left_scale = tl.load(a_scale + rows[:, None] * (K // 32) + groups[None, :])
    right_scale = tl.load(b_scale + rows[:, None] * (K // 32) + groups[None, :])
    total = tl.dot_scaled(left, left_scale, A, right, right_scale, B)
    tl.store(c + rows[:, None] * 64 + rows[None, :], total)


@triton.jit
def histogram(x, sums, top, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    values = tl.load(x + at, live, other=0)
    tl.atomic_add(sums + at % 7, values, live)
    # Not negative: Triton 3.9 combines lanes of one address by an unsigned maximum.
    tl.atomic_max(top + at * 0, tl.abs(values), live)


@triton.jit
def running_sum(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def wide_arithmetic(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    a, b = tl.load(x + at, live, other=1), tl.load(y + at, live, other=1)
    tl.store(out + at, (a * b + a // b - (a % b)) ^ (a >> 3), live)


@triton.jit
def functions(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    a, b = tl.load(x + at, live, other=1.0), tl.load(y + at, live, other=1.0)
    size = tl.abs(b)
    roots = tl.sqrt(tl.abs(a)) + tl.rsqrt(size + 1.0)
    tl.store(out + at, a / b + roots + tl.sin(b) + tl.cos(a) + tl.log(size) + tl.exp2(a) + tl.floor(a), live)


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, live, other=0.0).to(out.dtype.element_ty), live)


@triton.jit
def attend(q, kv, codes, indices, out, length, H: tl.constexpr, D: tl.constexpr, T: tl.constexpr, FP8: tl.constexpr):
    """Sparse attention of one token a program: gathered rows, fp8 with a power-of-two scale or bf16."""
    heads, dims, entries = tl.arange(0, H), tl.arange(0, D), tl.arange(0, T)
    row = tl.program_id(0)
    query = tl.load(q + row * H * D + heads[:, None] * D + dims[None, :])
    m = tl.full((H,), -1e30, tl.float32)
    l = tl.zeros((H,), tl.float32)
    total = tl.zeros((H, D), tl.float32)
    for start in range(0, length, T):
        slot = tl.load(indices + row * length + start + entries, start + entries < length, other=-1)
        live = slot >= 0
        slot = tl.where(live, slot, 0).to(tl.int64)
        keys = tl.load(kv + slot[:, None] * D + dims[None, :], live[:, None], other=0.0)
        if FP8:
            scale = tl.exp2(tl.load(codes + slot).to(tl.float32) - 127.0)
            keys = (keys.to(tl.float32) * scale[:, None]).to(tl.bfloat16)
        scores = tl.where(live[None, :], tl.dot(query, tl.trans(keys)), -1e30)
        new = tl.maximum(m, tl.max(scores, 1))
        weights = tl.where(live[None, :], tl.exp2(scores - new[:, None]), 0.0)
        alpha = tl.exp2(m - new)
        l = l * alpha + tl.sum(weights, 1)
        total = total * alpha[:, None] + tl.dot(weights.to(tl.bfloat16), keys)
        m = new
    result = total / tl.where(l > 0, l, 1.0)[:, None]
    tl.store(out + row * H * D + heads[:, None] * D + dims[None, :], result.to(tl.bfloat16))


@triton.jit
def gather_unchecked(x, indices, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(indices + at)))
