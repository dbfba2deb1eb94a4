"""Global, flat, scratch, buffer and scalar memory instructions against a plain byte array."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from bench import GLOBAL, Bench
from isa import BF16, F16, F32, F64, M32, M64, add, integers, signed
from test_lds import atomic

from aotkern.emulator.arena import AccessError, Region
from aotkern.emulator.operands import PRIVATE_BASE, SHARED_BASE

A, B, C, D = (integers(seed) for seed in (1, 2, 3, 4))
SOME = 0xF00F_0FF0_3C3C_8001
PLACES = random.Random(6).sample(range(0, 4000, 16), 64)
LOADS: dict[str, tuple[int, Callable[[int], int]]] = {
    "ubyte": (1, lambda v: v), "sbyte": (1, lambda v: signed(v, 8) & M32), "ushort": (2, lambda v: v),
    "sshort": (2, lambda v: signed(v, 16) & M32), "dword": (4, lambda v: v), "dwordx2": (8, lambda v: v),
    "dwordx3": (12, lambda v: v), "dwordx4": (16, lambda v: v),
}  # fmt: skip
STORES = {"byte": 1, "short": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
SPACES = {
    "global": ("v[2:3], off", "v[2:3], {data}, off"),
    "saddr": ("v1, s[2:3]", "v1, {data}, s[2:3]"),
    "flat": ("v[2:3]", "v[2:3], {data}"),
    "buffer": ("v1, s[4:7], s9 offen", None),
}


def loaded(exec_mask: int = M64, *, shift: int = 0) -> Bench:
    bench = Bench()
    rng = random.Random(9)
    bench.memory[:] = [rng.randrange(256) for _ in range(len(bench.memory))]
    bench.set(1, [place + shift for place in PLACES])
    bench.set_wide(2, [GLOBAL + place + shift for place in PLACES])
    bench.scalar(2, GLOBAL, bits=64)
    bench.scalar(4, GLOBAL, bits=64)
    bench.scalar(6, 4096)
    bench.scalar(7, 0x27000)
    bench.scalar(9, 0)
    for register, values in ((4, A), (5, B), (6, C), (7, D)):
        bench.set(register, values)
    for register in range(8, 12):
        bench.set(register, [7] * 64)
    bench.exec = exec_mask
    return bench


def at(bench: Bench, place: int, size: int) -> int:
    return int.from_bytes(bench.memory[place : place + size].tobytes(), "little")


def registers(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def load_text(space: str, name: str, offset: int) -> str:
    operation = "flat" if space == "flat" else "buffer" if space == "buffer" else "global"
    return f"{operation}_load_{name} {{}}, {SPACES[space][0]} offset:{offset}"


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize(("exec_mask", "shift"), [(M64, 0), (SOME, 0), (M64, 3)])
def test_loads(space: str, name: str, exec_mask: int, shift: int) -> None:
    bench = loaded(exec_mask, shift=shift)
    size, read = LOADS[name]
    count = max(1, size // 4)
    bench.run(load_text(space, name, 16).format(registers(8, count)))
    for lane, place in enumerate(PLACES):
        value = read(at(bench, place + shift + 16, size))
        for index in range(count):
            assert bench.lanes(8 + index)[lane] == (value >> 32 * index & M32 if exec_mask >> lane & 1 else 7)


@pytest.mark.parametrize("space", ["global", "saddr", "flat", "buffer"])
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(("exec_mask", "shift"), [(M64, 0), (SOME, 0), (SOME, 1)])
def test_stores(space: str, name: str, exec_mask: int, shift: int) -> None:
    bench = loaded(exec_mask, shift=shift)
    expected = bench.memory.copy()
    size = STORES[name]
    count = max(1, size // 4)
    data = registers(4, count)
    if space == "buffer":
        bench.run(f"buffer_store_{name} {data}, v1, s[4:7], 0 offen offset:4")
    else:
        operation = "flat" if space == "flat" else "global"
        bench.run(f"{operation}_store_{name} {str(SPACES[space][1]).format(data=data)} offset:4")
    for lane, place in enumerate(PLACES):
        if exec_mask >> lane & 1:
            value = sum(column[lane] << 32 * i for i, column in enumerate((A, B, C, D)[:count]))
            raw = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
            expected[place + shift + 4 : place + shift + 4 + size] = list(raw)
    assert bench.memory.tolist() == expected.tolist()


@pytest.mark.parametrize(("name", "high"), [("ubyte_d16", 0), ("ubyte_d16_hi", 1), ("sbyte_d16", 0), ("sbyte_d16_hi", 1),
                                            ("short_d16", 0), ("short_d16_hi", 1)])  # fmt: skip
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
def test_loads_into_half_a_register(name: str, high: int, space: str) -> None:
    bench = loaded()
    bench.set(8, D)
    bench.run(load_text(space, name, 0).format("v8"))
    for lane, place in enumerate(PLACES):
        value = at(bench, place, 2 if name.startswith("short") else 1)
        value = signed(value, 8) & 0xFFFF if name.startswith("sbyte") else value
        expected = D[lane] & 0xFFFF | value << 16 if high else D[lane] & 0xFFFF0000 | value
        assert bench.lanes(8)[lane] == expected
    bench.run("global_store_short_d16_hi v[2:3], v8, off\nglobal_store_byte_d16_hi v[2:3], v8, off offset:2")
    assert [at(bench, place, 3) for place in PLACES] == [v >> 16 | (v >> 16 & 0xFF) << 16 for v in bench.lanes(8)]


def test_buffer_accesses_beyond_the_records() -> None:
    bench = loaded()
    bench.scalar(6, 2048)
    bench.run("buffer_load_dwordx2 v[8:9], v1, s[4:7], 0 offen")
    bench.set(4, [0xDEAD] * 64)
    before = bench.memory.copy()
    for lane, place in enumerate(PLACES):
        assert bench.lanes(8)[lane] == (at(bench, place, 4) if place < 2048 else 0)
    bench.run("buffer_store_dword v4, v1, s[4:7], 0 offen")
    changed = {int(word) * 4 for word in np.flatnonzero((bench.memory != before).reshape(-1, 4).any(1))}
    assert changed == {place for place in PLACES if place < 2048}
    bench.set(1, [2044] * 64)
    with pytest.raises(AccessError, match="across the end"):
        bench.run("buffer_load_dwordx2 v[8:9], v1, s[4:7], 0 offen")


@pytest.mark.parametrize(("register", "value"), [(5, 0x0004_7000), (5, 0x8000_7000), (7, 0x0080_0000)])
def test_buffer_descriptors_that_are_not_modelled(register: int, value: int) -> None:
    bench = loaded()
    bench.scalar(register, value)
    with pytest.raises(AccessError, match="descriptor"):
        bench.run("buffer_load_dword v8, v1, s[4:7], 0 offen")


@pytest.mark.parametrize(
    "text", ["buffer_load_dword v8, off, s[4:7], s9 offset:12", "global_load_dword v8, v1, s[2:3] offset:12"]
)
def test_one_address_for_all_lanes(text: str) -> None:
    bench = loaded()
    bench.set(1, [0] * 64)
    assert bench.run(text).lanes(8) == [at(bench, 12, 4)] * 64


@pytest.mark.parametrize(
    ("text", "bytes_a_lane"),
    [
        ("buffer_load_dword v1, s[4:7], 0 offen lds", 4),
        ("buffer_load_dwordx4 v1, s[4:7], 0 offen lds", 16),
        ("global_load_lds_dword v[2:3], off", 4),
        ("global_load_lds_dwordx4 v[2:3], off", 16),
        ("global_load_lds_ushort v[2:3], off", 2),
    ],
)
@pytest.mark.parametrize("exec_mask", [M64, SOME])
def test_loads_into_lds(text: str, bytes_a_lane: int, exec_mask: int) -> None:
    bench = loaded(exec_mask)
    bench.lds[:] = 0x5A
    bench.scalar(124, 256)
    bench.run(text)
    step = max(4, bytes_a_lane)
    for lane, place in enumerate(PLACES):
        found = int.from_bytes(bench.lds[256 + step * lane : 256 + step * (lane + 1)].tobytes(), "little")
        wanted = at(bench, place, bytes_a_lane) if exec_mask >> lane & 1 else int.from_bytes(b"\x5a" * step, "little")
        assert found == wanted


def test_scratch_belongs_to_each_lane() -> None:
    bench = loaded(SOME)
    bench.scalar(8, 8)
    bench.set(1, [lane % 5 * 4 for lane in range(64)])
    bench.run("scratch_store_dwordx2 off, v[4:5], off offset:32\nscratch_store_dword v1, v6, s8 offset:4")
    bench.run("scratch_load_dwordx2 v[8:9], off, off offset:32\nscratch_load_dword v10, v1, s8 offset:4")
    for lane in range(64):
        on = SOME >> lane & 1
        assert (bench.lanes(8)[lane], bench.lanes(10)[lane]) == ((A[lane], C[lane]) if on else (7, 7))
    with pytest.raises(AccessError, match="scratch"):
        bench.run("scratch_load_dwordx2 v[8:9], off, off offset:60")


@pytest.mark.parametrize("name", ["ubyte", "sshort", "dwordx3", "dwordx4"])
def test_scratch_elements(name: str) -> None:
    bench = loaded()
    size, read = LOADS[name]
    bench.run("scratch_store_dwordx4 off, v[4:7], off offset:16")
    bench.run(f"scratch_load_{name} {registers(8, max(1, size // 4))}, off, off offset:16")
    whole = [a | b << 32 | c << 64 | d << 96 for a, b, c, d in zip(A, B, C, D, strict=True)]
    for lane, value in enumerate(whole):
        expected = read(value & (1 << 8 * size) - 1)
        assert bench.lanes(8)[lane] == expected & M32
    bench.run(
        "scratch_store_short off, v4, off\nscratch_store_byte off, v5, off offset:2\nscratch_load_dword v8, off, off"
    )
    assert [v & 0xFFFFFF for v in bench.lanes(8)] == [a & 0xFFFF | (b & 0xFF) << 16 for a, b in zip(A, B, strict=True)]


def test_flat_addresses_reach_lds_and_scratch() -> None:
    bench = loaded()
    bench.set_wide(2, [SHARED_BASE + 4 * lane for lane in range(64)])
    bench.run("flat_store_dword v[2:3], v4\nflat_load_dword v8, v[2:3]")
    assert bench.lanes(8) == A
    assert bench.lds.view("u4")[:64].tolist() == A
    bench.set_wide(2, [PRIVATE_BASE + 8] * 64)
    bench.run("flat_store_dword v[2:3], v5\nflat_load_dword v8, v[2:3]\nscratch_load_dword v9, off, off offset:8")
    assert bench.lanes(8) == bench.lanes(9) == B
    bench.set_wide(2, [PRIVATE_BASE if lane else GLOBAL for lane in range(64)])
    with pytest.raises(AccessError, match="several kinds"):
        bench.run("flat_load_dword v8, v[2:3]")


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_scalar_loads(count: int) -> None:
    bench = loaded()
    suffix = "" if count == 1 else f"x{count}"
    target = "s16" if count == 1 else f"s[16:{15 + count}]"
    bench.scalar(10, 64)
    bench.run(f"s_load_dword{suffix} {target}, s[2:3], 0x40")
    assert [bench.scalar(16 + i) for i in range(count)] == [at(bench, 64 + 4 * i, 4) for i in range(count)]
    second = "s36" if count == 1 else f"s[36:{35 + count}]"
    bench.run(f"s_load_dword{suffix} {target}, s[2:3], s10\ns_buffer_load_dword{suffix} {second}, s[4:7], 0x40")
    assert [bench.scalar(16 + i) for i in range(count)] == [bench.scalar(36 + i) for i in range(count)]


INTEGER = {"add": "add", "sub": "sub", "smin": "min_i", "smax": "max_i", "umin": "min_u", "umax": "max_u", "and": "and",
           "or": "or", "xor": "xor", "inc": "inc", "dec": "dec", "swap": "swap"}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
def test_integer_atomics_in_lane_order(name: str, bits: int, space: str) -> None:
    bench = loaded(SOME)
    places = [lane % 5 * 8 for lane in range(64)]
    bench.set(1, places)
    bench.set_wide(2, [GLOBAL + place for place in places])
    size, words = bits // 8, bits // 32
    memory = {place: at(bench, place, size) for place in places}
    data, suffix = registers(4, words), "_x2" if bits == 64 else ""
    texts = {
        "global": f"global_atomic_{name}{suffix} {registers(8, words)}, v[2:3], {data}, off sc0",
        "flat": f"flat_atomic_{name}{suffix} {registers(8, words)}, v[2:3], {data} sc0",
        "buffer": f"buffer_atomic_{name}{suffix} {data}, v1, s[4:7], 0 offen sc0",
    }
    bench.run(texts[space])
    first = 4 if space == "buffer" else 8
    for lane, place in enumerate(places):
        if SOME >> lane & 1:
            found = bench.lanes(first)[lane] | (bench.lanes(first + 1)[lane] << 32 if bits == 64 else 0)
            assert found == memory[place]
            memory[place] = atomic(INTEGER[name], bits, found, A[lane] | (B[lane] << 32 if bits == 64 else 0))
    assert {place: at(bench, place, size) for place in places} == memory


@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(bits: int) -> None:
    bench = loaded()
    size, words = bits // 8, bits // 32
    old = [at(bench, place, size) for place in PLACES]
    new = [a | (b << 32 if bits == 64 else 0) for a, b in zip(A, B, strict=True)]
    expected = [value if lane % 3 else value ^ 1 for lane, value in enumerate(old)]
    for index in range(words):
        bench.set(4 + words + index, [value >> 32 * index & M32 for value in expected])
    suffix = "_x2" if bits == 64 else ""
    bench.run(f"global_atomic_cmpswap{suffix} {registers(8, words)}, v[2:3], {registers(4, 2 * words)}, off sc0")
    stored = [n if lane % 3 else o for lane, (n, o) in enumerate(zip(new, old, strict=True))]
    assert [at(bench, place, size) for place in PLACES] == stored


def test_float_atomics() -> None:
    bench = loaded()
    values = [F32.encode(Fraction(lane, 7)) for lane in range(64)]
    bench.memory.view("f4")[:] = 0.5
    bench.set(4, values)
    bench.set_wide(2, [GLOBAL + lane % 3 * 4 for lane in range(64)])
    bench.run("global_atomic_add_f32 v[2:3], v4, off")
    totals = [F32.encode(Fraction(1, 2))] * 3
    for lane, value in enumerate(values):
        totals[lane % 3] = add(totals[lane % 3], value)
    assert [at(bench, 4 * place, 4) for place in range(3)] == totals
    bench.memory.view("f8")[:] = 0.25
    wide = [F64.encode(Fraction(lane - 20, 7)) for lane in range(64)]
    bench.set_wide(4, wide)
    bench.set_wide(2, [GLOBAL] * 64)
    bench.run("global_atomic_max_f64 v[2:3], v[4:5], off\nglobal_atomic_add_f64 v[2:3], v[4:5], off offset:8")
    bench.run("global_atomic_min_f64 v[2:3], v[4:5], off offset:16")
    exact = F64.encode(Fraction(1, 4))
    for value in wide:
        exact = add(exact, value, F64)
    assert [at(bench, 8 * place, 8) for place in range(3)] == [wide[-1], exact, wide[0]]


@pytest.mark.parametrize(("name", "form"), [("f16", F16), ("bf16", BF16)])
def test_packed_float_atomics(name: str, form: object) -> None:
    bench = loaded()
    start = form.encode(Fraction(1, 2))
    bench.memory.view("u4")[0] = start | start << 16
    pairs = [(form.encode(Fraction(lane, 8)), form.encode(Fraction(-lane, 3))) for lane in range(64)]
    bench.set(4, [low | high << 16 for low, high in pairs])
    bench.set_wide(2, [GLOBAL] * 64)
    bench.run(f"global_atomic_pk_add_{name} v[2:3], v4, off")
    low = high = start
    for first, second in pairs:
        low, high = add(low, first, form), add(high, second, form)
    assert at(bench, 0, 4) == low | high << 16


@pytest.mark.parametrize(
    "text",
    ["global_load_dword v8, v[2:3], off", "global_store_dword v[2:3], v4, off", "global_atomic_add v[2:3], v4, off"],
)
@pytest.mark.parametrize("address", [GLOBAL - 4, GLOBAL + 4094, GLOBAL + 4096, 0, M64 - 3])
def test_an_access_outside_the_buffers_is_refused(text: str, address: int) -> None:
    bench = loaded()
    bench.set_wide(2, [address if lane == 21 else GLOBAL for lane in range(64)])
    with pytest.raises(AccessError, match="outside") as caught:
        bench.run(text)
    assert (caught.value.lane, caught.value.address) == (21, address)
    bench.exec = ~(1 << 21) & M64
    bench.run(text)


def ragged(size: int, *, lead: int = 0) -> Bench:
    """A bench whose buffer has `size` bytes and begins `lead` bytes behind a dword's beginning."""
    bench = Bench()
    bench.memory = np.arange(1, size + 1, dtype=np.uint8)
    region = Region("the buffer", GLOBAL + lead, bench.memory, True)
    bench.arena = dataclasses.replace(bench.arena, regions=(region,))
    bench.waves.arena = bench.arena
    return bench


def one_lane(bench: Bench, place: int) -> Bench:
    bench.exec = 1
    bench.set_wide(2, [GLOBAL + place] * 64)
    return bench


@pytest.mark.parametrize(
    ("size", "lead", "place", "expected"),
    [(6, 0, 4, 0xFFC10605), (7, 0, 4, 0xFF070605), (2, 0, 0, 0xFFC10201), (5, 2, 0, 0x0201FFC1), (1, 1, 0, 0xFFC101C1)],
)
def test_the_dword_at_an_odd_end_is_read_with_poison_beyond(size: int, lead: int, place: int, expected: int) -> None:
    bench = one_lane(ragged(size, lead=lead), place)
    assert bench.run("global_load_dword v8, v[2:3], off").lanes(8)[0] == expected
    bench.scalar(2, GLOBAL + place, bits=64)
    bench.run("s_load_dword s8, s[2:3], 0x0")
    assert bench.scalar(8) == expected


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("global_load_ushort v8, v[2:3], off", 6),  # an element of its own
        ("global_load_ubyte v8, v[2:3], off", 6),
        ("global_load_dword v8, v[2:3], off", 8),  # the next dword
        ("global_load_dwordx2 v[8:9], v[2:3], off", 4),
        ("global_load_dword v8, v[2:3], off", 3),  # not aligned
        ("global_store_dword v[2:3], v4, off", 4),
        ("global_store_short v[2:3], v4, off", 6),
        ("global_atomic_add_x2 v[2:3], v[4:5], off", 8),
        ("global_atomic_add v[2:3], v4, off", 8),
    ],
)
def test_what_leaves_an_odd_end_otherwise_is_an_error(text: str, place: int) -> None:
    bench = one_lane(ragged(6), place)
    before = bench.memory.copy()
    with pytest.raises(AccessError, match="outside the given buffers"):
        bench.run(text)
    assert (bench.memory == before).all()


@pytest.mark.parametrize(
    ("text", "data", "after"),
    [
        ("global_atomic_cmpswap v[2:3], v[4:5], off", (0xFFC1_0809, 0xFFC1_0605), (9, 8)),
        ("global_atomic_cmpswap v[2:3], v[4:5], off", (0xFFC1_0809, 0xFFC1_0604), (5, 6)),  # another value is there
        ("global_atomic_pk_add_f16 v[2:3], v4, off", (0x0000_0001, 0), (6, 6)),
        ("global_atomic_pk_add_bf16 v[2:3], v4, off", (0x0000_0001, 0), None),
        ("global_atomic_or v[2:3], v4, off", (0x0000_00F0, 0), (0xF5, 6)),
        ("global_atomic_and v[2:3], v4, off", (0xFFFF_00F4, 0), (4, 0)),
        ("global_atomic_cmpswap v[2:3], v[4:5], off", (0xFFC2_0809, 0xFFC1_0605), "error"),
        ("global_atomic_pk_add_f16 v[2:3], v4, off", (0x3C00_0001, 0), "error"),
        ("global_atomic_pk_add_bf16 v[2:3], v4, off", (0x3C00_0001, 0), "error"),
        ("global_atomic_and v[2:3], v4, off", (0x00FF_00FF, 0), "error"),
        ("global_atomic_swap v[2:3], v4, off", (0xFFC1_0001, 0), "error"),
        ("global_atomic_add_f32 v[2:3], v4, off", (0x3F80_0000, 0), "error"),
    ],
)
def test_an_atomic_at_an_odd_end_leaves_what_is_beyond(text: str, data: tuple[int, int], after: object) -> None:
    bench = one_lane(ragged(6), 4)
    for register, value in zip((4, 5), data, strict=True):
        bench.set(register, [value] * 64)
    if after == "error":
        with pytest.raises(AccessError, match="changes bytes beyond"):
            bench.run(text)
        assert bench.memory.tolist() == [1, 2, 3, 4, 5, 6]
        return
    bench.run(text)
    assert bench.memory[:4].tolist() == [1, 2, 3, 4]
    assert after is None or tuple(bench.memory[4:].tolist()) == after
    assert bench.run("global_load_dword v8, v[2:3], off").lanes(8)[0] >> 16 == 0xFFC1


def test_two_buffers_in_one_dword_are_each_their_own() -> None:
    bench = one_lane(ragged(6), 4)
    other = np.array([7, 8, 9, 10, 11, 12], np.uint8)
    regions = (*bench.arena.regions, Region("the next", GLOBAL + 6, other, True))
    bench.waves.arena = dataclasses.replace(bench.arena, regions=regions)
    bench.set_wide(2, [GLOBAL + 6] * 64)
    assert bench.run("global_load_ushort v8, v[2:3], off").lanes(8)[0] == 0x0807
