"""Packed instructions: halves chosen and negated as the modifiers say, each half by itself."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from bench import Bench
from isa import BF16, F16, F32, M16, M32, NAN, Ieee, add, agree, floats, fma, integers, is_nan, multiply, negate, signed

A = (floats(1), floats(2))
B = (floats(3), floats(4))
C = (floats(5), floats(6))
WORDS = integers(7), integers(8), integers(9)


def loaded() -> Bench:
    bench = Bench()
    for register, columns in ((2, A), (4, B), (6, C)):
        bench.set(register, columns[0])
        bench.set(register + 1, columns[1])
    for register, words in zip((10, 11, 12), WORDS, strict=True):
        bench.set(register, words)
    return bench


F32_OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {"add": (2, add), "mul": (2, multiply), "fma": (3, fma)}


@pytest.mark.parametrize("name", F32_OPERATIONS)
@pytest.mark.parametrize("select", [None, (0, 0, 0), (1, 0, 1)])
def test_f32_pairs(name: str, select: tuple[int, ...] | None) -> None:
    count, oracle = F32_OPERATIONS[name]
    columns = [A, B, C][:count]
    high = (1, 1, 1) if select is None else tuple(1 - bit for bit in select)
    low = select or (0, 0, 0)
    modifiers = "" if select is None else f"op_sel:{list(low[:count])} op_sel_hi:{list(high[:count])}".replace(" ", "").replace("]op", "] op")  # fmt: skip
    registers = ", ".join(f"v[{r}:{r + 1}]" for r in (2, 4, 6)[:count])
    bench = loaded().run(f"v_pk_{name}_f32 v[0:1], {registers} {modifiers} neg_lo:[0,1{',0' * (count - 2)}]")
    for register, choice, minus in ((0, low, True), (1, high, False)):
        expected = []
        for lane in range(64):
            values = [columns[i][choice[i]][lane] for i in range(count)]
            values[1] = negate(values[1]) if minus else values[1]
            expected.append(oracle(*values))
        assert agree(bench.lanes(register), expected)


def test_f32_pairs_with_scalars_and_constants() -> None:
    bench = loaded()
    bench.scalar(8, 0x40400000)
    bench.scalar(9, 0x3E800000)
    bench.run("v_pk_mul_f32 v[0:1], s[8:9], v[2:3]")
    assert agree(bench.lanes(0), [multiply(0x40400000, a) for a in A[0]])
    assert agree(bench.lanes(1), [multiply(0x3E800000, a) for a in A[1]])
    bench.run("v_pk_add_f32 v[0:1], v[2:3], 1.0 op_sel_hi:[1,0]")
    assert agree(bench.lanes(1), [add(a, 0x3F800000) for a in A[1]])
    bench.run("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]")
    assert (bench.lanes(0), bench.lanes(1)) == (A[1], B[0])
    bench.run("v_pk_mov_b32 v[2:3], v[2:3], v[2:3] op_sel:[0,1]")
    assert (bench.lanes(2), bench.lanes(3)) == A


def by(a: int) -> int:
    return a & 15


def s(value: int) -> int:
    return signed(value, 16)


WORD_OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "add_u16": (2, lambda a, b: a + b),
    "sub_u16": (2, lambda a, b: a - b),
    "add_i16": (2, lambda a, b: a + b),
    "sub_i16": (2, lambda a, b: a - b),
    "mul_lo_u16": (2, lambda a, b: a * b),
    "mad_u16": (3, lambda a, b, c: a * b + c),
    "mad_i16": (3, lambda a, b, c: a * b + c),
    "min_u16": (2, min),
    "max_u16": (2, max),
    "min_i16": (2, lambda a, b: min(s(a), s(b))),
    "max_i16": (2, lambda a, b: max(s(a), s(b))),
    "lshlrev_b16": (2, lambda a, b: b << by(a)),
    "lshrrev_b16": (2, lambda a, b: b >> by(a)),
    "ashrrev_i16": (2, lambda a, b: s(b) >> by(a)),
}


@pytest.mark.parametrize("name", WORD_OPERATIONS)
def test_words(name: str) -> None:
    count, oracle = WORD_OPERATIONS[name]
    registers = ", ".join(f"v{r}" for r in (10, 11, 12)[:count])
    found = loaded().run(f"v_pk_{name} v0, {registers}").lanes(0)
    for lane, got in enumerate(found):
        words = [column[lane] for column in WORDS[:count]]
        assert got & M16 == oracle(*(word & M16 for word in words)) & M16
        assert got >> 16 == oracle(*(word >> 16 for word in words)) & M16
    crossed = loaded().run(f"v_pk_{name} v0, {registers} op_sel:[1,0{',0' * (count - 2)}]").lanes(0)
    for lane, got in enumerate(crossed):
        words = [column[lane] for column in WORDS[:count]]
        assert got & M16 == oracle(words[0] >> 16, *(word & M16 for word in words[1:])) & M16


def least(a: int, b: int) -> int:
    return _chosen(a, b, min)


def most(a: int, b: int) -> int:
    return _chosen(a, b, max)


def _chosen(a: int, b: int, choose: Callable[..., int]) -> int:
    numbers = [value for value in (a, b) if not is_nan(value, F16)]
    return choose(numbers, key=lambda v: float(F16.decode(v))) if numbers else NAN


HALF_OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "add": (2, lambda a, b: add(a, b, F16)),
    "mul": (2, lambda a, b: multiply(a, b, F16)),
    "fma": (3, lambda a, b, c: fma(a, b, c, F16)),
    "min": (2, least),
    "max": (2, most),
}


@pytest.mark.parametrize("name", HALF_OPERATIONS)
def test_halves(name: str) -> None:
    count, oracle = HALF_OPERATIONS[name]
    registers = ", ".join(f"v{r}" for r in (10, 11, 12)[:count])
    found = loaded().run(f"v_pk_{name}_f16 v0, {registers} neg_hi:[1,0{',0' * (count - 2)}]").lanes(0)
    for lane, got in enumerate(found):
        words = [column[lane] for column in WORDS[:count]]
        low = oracle(*(word & M16 for word in words))
        high = oracle(words[0] >> 16 ^ 0x8000, *(word >> 16 for word in words[1:]))
        zeros = name in ("min", "max") and (got & 0x7FFF == 0 or got >> 16 & 0x7FFF == 0)
        assert zeros or agree([got & M16, got >> 16], [low, high], F16)


def exact_dot(a: int, b: int, c: int, form: Ieee) -> int:
    parts = [(form.decode(x), form.decode(y)) for x, y in ((a & M16, b & M16), (a >> 16, b >> 16))]
    if any(number.kind != "finite" for pair in parts for number in pair) or F32.decode(c).kind != "finite":
        return NAN
    return F32.encode(sum((x.value * y.value for x, y in parts), Fraction(0)) + F32.decode(c).value)


@pytest.mark.parametrize(("name", "form"), [("f16", F16), ("bf16", BF16)])
def test_dot_products_of_halves(name: str, form: Ieee) -> None:
    bench = loaded()
    addend = floats(10, special=False)
    words = [[form.encode(F32.decode(v).value) | form.encode(-F32.decode(w).value / 3) << 16
              for v, w in zip(floats(seed, special=False), floats(seed + 1, special=False), strict=True)]
             for seed in (11, 13)]  # fmt: skip
    for register, values in zip((1, 2, 3), (*words, addend), strict=True):
        bench.set(register, values)
    found = bench.run(f"v_dot2_f32_{name} v0, v1, v2, v3").lanes(0)
    bench.set(0, addend)
    accumulated = bench.run(f"v_dot2c_f32_{name} v0, v1, v2").lanes(0)
    for a, b, c, got, again in zip(*words, addend, found, accumulated, strict=True):
        assert got == again
        expected = exact_dot(a, b, c, form)
        assert expected == NAN or abs(got - expected) <= 1  # the sum is made in double precision


def test_dot_products_of_bytes() -> None:
    bench = loaded()
    found = bench.run("v_dot4_i32_i8 v0, v10, v11, v12").lanes(0)
    plain = bench.run("v_dot4_u32_u8 v1, v10, v11, v12").lanes(1)
    bench.set(0, WORDS[2])
    assert bench.run("v_dot4c_i32_i8 v0, v10, v11").lanes(0) == found
    for a, b, c, got, other in zip(*WORDS, found, plain, strict=True):
        bytes_a, bytes_b = ([word >> at & 0xFF for at in (0, 8, 16, 24)] for word in (a, b))
        pairs = list(zip(bytes_a, bytes_b, strict=True))
        assert got == (sum(signed(x, 8) * signed(y, 8) for x, y in pairs) + c) & M32
        assert other == (sum(x * y for x, y in pairs) + c) & M32
