"""Small Triton kernels whose code objects the tests read."""

import triton
import triton.language as tl


@triton.jit
def mixed(p, f, b, n, i, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    x = tl.load(p + place + n)
    tl.store(p + place, tl.where(b, x * f, x + i))


@triton.jit
def product(a, b, c, length, TILE: tl.constexpr):
    place = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, length, TILE):
        left = tl.load(a + place[:, None] * length + start + place[None, :])
        right = tl.load(b + (start + place[:, None]) * TILE + place[None, :])
        total += tl.dot(left, right)
    tl.store(c + place[:, None] * TILE + place[None, :], total)


SIGNATURES = {
    "mixed": {"p": "*fp32", "f": "fp32", "b": "u1", "n": "i64", "i": "i32", "SIZE": "constexpr"},
    "product": {"a": "*fp16", "b": "*fp16", "c": "*fp32", "length": "i32", "TILE": "constexpr"},
}
CONSTANTS = {"mixed": {"SIZE": 256}, "product": {"TILE": 32}}
