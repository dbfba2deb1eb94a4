"""Comparisons, classes and selects, lane by lane in Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from bench import Bench
from isa import F16, F32, F64, floats, integers, signed

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "eq": operator.eq,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
INTEGER = {**ORDERS, "ne": operator.ne}


def unordered(a: float, b: float) -> bool:
    return a != a or b != b


FLOAT: dict[str, Callable[[float, float], bool]] = {
    **ORDERS,
    "lg": lambda a, b: a < b or a > b,
    "o": lambda a, b: not unordered(a, b),
    "u": unordered,
    "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b,
    "neq": operator.ne,
    "nlt": lambda a, b: not a < b,
}
KINDS: dict[str, tuple[int, Callable[[int], Any], dict[str, Callable[[Any, Any], bool]]]] = {
    "u16": (16, lambda v: v & 0xFFFF, INTEGER),
    "i16": (16, lambda v: signed(v & 0xFFFF, 16), INTEGER),
    "u32": (32, lambda v: v, INTEGER),
    "i32": (32, signed, INTEGER),
    "u64": (64, lambda v: v, INTEGER),
    "i64": (64, lambda v: signed(v, 64), INTEGER),
    "f16": (16, lambda v: float(F16.decode(v & 0xFFFF)), FLOAT),
    "f32": (32, lambda v: float(F32.decode(v)), FLOAT),
    "f64": (64, lambda v: float(F64.decode(v)), FLOAT),
}


def columns(kind: str) -> tuple[list[int], list[int]]:
    if kind == "f32":
        a, b = floats(1), floats(2)
    else:
        a, b = integers(3, KINDS[kind][0]), integers(4, KINDS[kind][0])
    return a, [x if lane % 5 == 0 else y for lane, (x, y) in enumerate(zip(a, b, strict=True))]


def bits_of(flags: list[bool]) -> int:
    return sum(int(flag) << lane for lane, flag in enumerate(flags))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, row in KINDS.items() for name in row[2]])
def test_comparisons(kind: str, name: str) -> None:
    width, read, names = KINDS[kind]
    a, b = columns(kind)
    bench = Bench()
    (bench.set_wide if width == 64 else bench.set)(2, a)
    (bench.set_wide if width == 64 else bench.set)(4, b)
    left, right = ("v[2:3]", "v[4:5]") if width == 64 else ("v2", "v4")
    expected = bits_of([names[name](read(x), read(y)) for x, y in zip(a, b, strict=True)])
    bench.run(f"v_cmp_{name}_{kind}_e64 s[10:11], {left}, {right}")
    assert bench.scalar(10, bits=64) == expected
    bench.run(f"v_cmp_{name}_{kind}_e32 vcc, {left}, {right}")
    assert bench.scalar(106, bits=64) == expected
    bench.exec = 0xFFFF_FFFF_0000_FF0F
    bench.run(f"v_cmp_{name}_{kind}_e64 s[10:11], {left}, {right}")
    assert bench.scalar(10, bits=64) == expected & 0xFFFF_FFFF_0000_FF0F
    bench.run(f"v_cmpx_{name}_{kind}_e32 vcc, {left}, {right}")
    assert bench.exec == bench.scalar(106, bits=64) == expected & 0xFFFF_FFFF_0000_FF0F


def classes(bits: int) -> int:
    negative, size = bits >> 31, bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return 1 if size & 0x400000 else 0
    kind = 0 if size == 0x7F800000 else 1 if size >= 0x00800000 else 2 if size else 3
    return 2 + kind if negative else 9 - kind


@pytest.mark.parametrize("wanted", [0x003, 0x204, 0x090, 0x060, 0x1F8, 0x3FF])
def test_classes(wanted: int) -> None:
    values = [*floats(5)[:60], 0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00001]
    bench = Bench()
    bench.set(2, values)
    bench.scalar(8, wanted)
    bench.run("v_cmp_class_f32_e64 s[10:11], v2, s8")
    assert bench.scalar(10, bits=64) == bits_of([bool(wanted >> classes(value) & 1) for value in values])


def test_an_sdwa_comparison_takes_a_byte() -> None:
    a = integers(6)
    bench = Bench("gfx942")
    bench.set(2, a)
    bench.scalar(8, 0x80)
    bench.run("v_cmp_ne_u16_sdwa s[10:11], v2, s8 src0_sel:BYTE_2 src1_sel:DWORD")
    assert bench.scalar(10, bits=64) == bits_of([value >> 16 & 0xFF != 0x80 for value in a])


@pytest.mark.parametrize("text", ["v_cndmask_b32_e32 v0, v2, v4, vcc", "v_cndmask_b32_e64 v0, v2, v4, vcc"])
def test_select(text: str) -> None:
    a, b = integers(7), integers(8)
    chosen = 0x1234_5678_9ABC_DEF0
    bench = Bench()
    bench.set(2, a)
    bench.set(4, b)
    bench.scalar(106, chosen, bits=64)
    expected = [y if chosen >> lane & 1 else x for lane, (x, y) in enumerate(zip(a, b, strict=True))]
    assert bench.run(text).lanes(0) == expected
    found = bench.run("v_cndmask_b32_e64 v0, -v2, |v4|, vcc").lanes(0)
    assert found == [
        y & 0x7FFFFFFF if chosen >> lane & 1 else x ^ 0x80000000 for lane, (x, y) in enumerate(zip(a, b, strict=True))
    ]
