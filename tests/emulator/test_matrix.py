"""MFMA against exact fractions: each lane's values put where the ISA has them, by loops."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from fractions import Fraction

import pytest
from bench import Bench
from isa import BF16, F16, F32, F64, M32
from test_convert import small

FORMATS = ["bf16", "f16", "f32", "xf32", "i8", "fp8_fp8", "bf8_bf8", "fp8_bf8", "bf8_fp8"]
SHAPES: list[tuple[str, int, int, str]] = [
    ("gfx942", 16, 16, "bf16"), ("gfx942", 32, 8, "bf16"), ("gfx942", 16, 16, "f16"), ("gfx942", 32, 8, "f16"),
    ("gfx942", 16, 4, "f32"), ("gfx942", 32, 2, "f32"), ("gfx942", 16, 8, "xf32"), ("gfx942", 32, 4, "xf32"),
    ("gfx942", 16, 32, "i8"), ("gfx942", 32, 16, "i8"), ("gfx942", 16, 32, "fp8_bf8"), ("gfx942", 32, 16, "bf8_fp8"),
    ("gfx942", 16, 32, "fp8_fp8"), ("gfx942", 32, 16, "bf8_bf8"),
    ("gfx950", 16, 32, "bf16"), ("gfx950", 32, 16, "bf16"), ("gfx950", 16, 32, "f16"), ("gfx950", 32, 16, "f16"),
    ("gfx950", 16, 32, "fp8_fp8"), ("gfx950", 32, 16, "fp8_fp8"), ("gfx950", 16, 32, "bf8_bf8"),
    ("gfx950", 16, 64, "i8"), ("gfx950", 32, 32, "i8"), ("gfx950", 16, 4, "f32"),
]  # fmt: skip


def codec(name: str, arch: str) -> tuple[int, Callable[[int], Fraction], Callable[[random.Random], int]]:
    """Width in bits, meaning of a code, and a random code of moderate size."""
    if name == "i8":
        return 8, lambda c: Fraction(c - 256 if c & 0x80 else c), lambda r: r.randrange(256)
    if name in ("fp8", "bf8"):
        table = {c: v for c, v in small(name, arch == "gfx942").items() if isinstance(v, Fraction) and abs(v) < 16}
        return 8, lambda c: Fraction(table[c]), lambda r: r.choice(list(table))
    form = {"bf16": BF16, "f16": F16, "f32": F32, "xf32": F32}[name]
    width = 1 + form.exponent + form.mantissa

    def make(rng: random.Random) -> int:
        bits = form.encode(Fraction(rng.gauss(0, 1)))
        return bits & ~0x1FFF if name == "xf32" else bits  # without the bits that xf32 drops

    return width, lambda c: form.decode(c).value, make


def packed(codes: list[int], width: int) -> list[int]:
    """Codes of one lane as its registers."""
    whole = sum(code << width * i for i, code in enumerate(codes))
    return [whole >> 32 * i & M32 for i in range(max(1, len(codes) * width // 32))]


def result_place(rows: int, register: int, lane: int) -> tuple[int, int]:
    if rows == 16:
        return 4 * (lane // 16) + register, lane % 16
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4, lane % 32


@pytest.mark.parametrize(("arch", "rows", "depth", "name"), SHAPES)
@pytest.mark.parametrize("zero", [False, True])
def test_products(arch: str, rows: int, depth: int, name: str, zero: bool) -> None:
    rng = random.Random(f"{rows}{depth}{name}")
    left, right = name.split("_") if "_" in name else (name, name)
    integer = name == "i8"
    slices, share = 64 // rows, depth * rows // 64
    bench = Bench(arch)
    matrices = []
    for base, kind in ((32, left), (64, right)):
        width, meaning, make = codec(kind, arch)
        codes = [[make(rng) for _ in range(share)] for _ in range(64)]
        for register, column in enumerate(zip(*(packed(lane, width) for lane in codes), strict=True)):
            bench.set(base + register, column)
        matrices.append(
            [[meaning(codes[k // share * rows + row][k % share]) for k in range(depth)] for row in range(rows)]
        )
    count = rows * rows // 64
    old = [
        [rng.randrange(1000) if integer else F32.encode(Fraction(rng.gauss(0, 1))) for _ in range(64)]
        for _ in range(count)
    ]
    for register, column in enumerate(old):
        bench.set(register, column)
    size = max(1, share * codec(left, arch)[0] // 32)
    spelling = f"v_mfma_{'i32' if integer else 'f32'}_{rows}x{rows}x{depth}_{name}"
    a, b = (f"v{base}" if size == 1 else f"v[{base}:{base + size - 1}]" for base in (32, 64))
    bench.exec = 0xF  # has no effect on matrix instructions
    target, addend = (f"a[0:{count - 1}]", "0") if zero else (f"v[128:{127 + count}]", f"v[0:{count - 1}]")
    bench.run(f"{spelling} {target}, {a}, {b}, {addend}")
    assert slices * share == depth
    for register in range(count):
        found = bench.lanes((256 if zero else 128) + register)
        for lane in range(64):
            row, column = result_place(rows, register, lane)
            total = sum((x * y for x, y in zip(matrices[0][row], matrices[1][column], strict=True)), Fraction(0))
            if integer:
                assert found[lane] == (int(total) + (0 if zero else old[register][lane])) & M32
                continue
            total += 0 if zero else F32.decode(old[register][lane]).value
            assert abs(F32.decode(found[lane]).value - total) <= max(abs(total), Fraction(1, 64)) * Fraction(2) ** -23


def test_double_precision() -> None:
    rng = random.Random(7)
    bench = Bench("gfx942")
    a, b = ([struct.unpack("<Q", struct.pack("<d", rng.gauss(0, 1)))[0] for _ in range(64)] for _ in range(2))
    c = [[struct.unpack("<Q", struct.pack("<d", rng.gauss(0, 1)))[0] for _ in range(64)] for _ in range(4)]
    bench.set_wide(32, a)
    bench.set_wide(34, b)
    for register, column in enumerate(c):
        bench.set_wide(2 * register, column)
    bench.run("v_mfma_f64_16x16x4_f64 v[16:23], v[32:33], v[34:35], v[0:7]")
    for register in range(4):
        for lane, got in enumerate(bench.wide(16 + 2 * register)):
            row, column = 4 * register + lane // 16, lane % 16
            exact = F64.decode(c[register][lane]).value
            exact += sum(F64.decode(a[16 * k + row]).value * F64.decode(b[16 * k + column]).value for k in range(4))
            assert abs(F64.decode(got).value - exact) < Fraction(2) ** -48


def tiny(name: str) -> list[Fraction]:
    """The values of fp6, bf6 and fp4 by code."""
    exponent, mantissa, bias = {"fp6": (2, 3, 1), "bf6": (3, 2, 3), "fp4": (2, 1, 1)}[name]
    made = []
    for code in range(1 << (1 + exponent + mantissa)):
        field, part = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
        whole = part + ((1 << mantissa) if field else 0)
        value = Fraction(whole) * Fraction(2) ** (max(field, 1) - bias - mantissa)
        made.append(-value if code >> (exponent + mantissa) else value)
    return made


def small_place(k: int, depth: int, name: str) -> tuple[int, int]:
    """Which slice of the lanes holds value k of a row, and as its how manyth value.

    8-bit formats hold 16 values in each half of K; the others 32 in a row.
    """
    if name not in ("fp8", "bf8"):
        return divmod(k, 32)
    half, within = divmod(k, depth // 2)
    return within // 16, half * 16 + within % 16


SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")


@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("names", [("fp8", "fp8"), ("bf8", "fp6"), ("bf6", "fp4"), ("fp4", "fp8")])
def test_small_formats_without_scales(rows: int, names: tuple[str, str]) -> None:
    depth, share = 2048 // rows, 32
    rng = random.Random(rows)
    bench = Bench("gfx950")
    matrices, spelt = [], []
    for base, name in ((32, names[0]), (64, names[1])):
        if name in ("fp8", "bf8"):
            width, meaning, make = codec(name, "gfx950")
        else:
            values = tiny(name)
            width = len(values).bit_length() - 1
            meaning, make = values.__getitem__, lambda r, n=len(values): r.randrange(n)
        codes = [[make(rng) for _ in range(share)] for _ in range(64)]
        for register, column in enumerate(zip(*(packed(lane, width) for lane in codes), strict=True)):
            bench.set(base + register, column)
        spelt.append(f"v[{base}:{base + share * width // 32 - 1}]")
        places = [small_place(k, depth, name) for k in range(depth)]
        matrices.append([[meaning(codes[part * rows + row][index]) for part, index in places] for row in range(rows)])
    count = rows * rows // 64
    formats = f"cbsz:{SMALL.index(names[0])} blgp:{SMALL.index(names[1])}"
    bench.run(f"v_mfma_f32_{rows}x{rows}x{depth}_f8f6f4 v[0:{count - 1}], {spelt[0]}, {spelt[1]}, 0 {formats}")
    for register in range(count):
        for lane, got in enumerate(bench.lanes(register)):
            row, column = result_place(rows, register, lane)
            exact = sum((x * y for x, y in zip(matrices[0][row], matrices[1][column], strict=True)), Fraction(0))
            assert abs(F32.decode(got).value - exact) <= max(abs(exact), Fraction(1, 64)) * Fraction(2) ** -23
