"""LDS instructions against a plain byte array."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from bench import Bench
from isa import F32, M32, M64, integers, signed

from aotkern.emulator.arena import AccessError

A, B, C, D = (integers(seed) for seed in (1, 2, 3, 4))
SOME = 0xF00F_0FF0_3C3C_8001
ALL = M64
PLACES = random.Random(5).sample(range(0, 2048, 16), 64)


def loaded(exec_mask: int = ALL) -> Bench:
    bench = Bench("gfx950")
    rng = random.Random(9)
    bench.lds[:] = [rng.randrange(256) for _ in range(len(bench.lds))]
    for register, values in enumerate((PLACES, A, B, C, D)):
        bench.set(register, values)
    for register in range(8, 12):
        bench.set(register, [7] * 64)
    bench.exec = exec_mask
    return bench


def at(bench: Bench, place: int, size: int) -> int:
    return int.from_bytes(bench.lds[place : place + size].tobytes(), "little")


READS = {
    "b32": (4, lambda v: v), "b64": (8, lambda v: v), "b96": (12, lambda v: v), "b128": (16, lambda v: v),
    "u8": (1, lambda v: v), "i8": (1, lambda v: signed(v, 8) & M32), "u16": (2, lambda v: v),
    "i16": (2, lambda v: signed(v, 16) & M32),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("exec_mask", [ALL, SOME])
@pytest.mark.parametrize("offset", [0, 1024])
def test_reads(name: str, exec_mask: int, offset: int) -> None:
    bench = loaded(exec_mask)
    size, read = READS[name]
    count = max(1, size // 4)
    target = "v8" if count == 1 else f"v[8:{7 + count}]"
    bench.run(f"ds_read_{name} {target}, v0 offset:{offset}")
    for lane, place in enumerate(PLACES):
        expected = read(at(bench, place + offset, size))
        for index in range(count):
            word = expected >> 32 * index & M32 if exec_mask >> lane & 1 else 7
            assert bench.lanes(8 + index)[lane] == word


@pytest.mark.parametrize(("name", "high"), [("u8_d16", 0), ("u8_d16_hi", 1), ("i8_d16", 0), ("i8_d16_hi", 1),
                                            ("u16_d16", 0), ("u16_d16_hi", 1)])  # fmt: skip
def test_reads_into_half_a_register(name: str, high: int) -> None:
    bench = loaded()
    bench.set(8, D)
    bench.run(f"ds_read_{name} v8, v0")
    for lane, place in enumerate(PLACES):
        value = at(bench, place, 2 if name.startswith("u16") else 1)
        value = signed(value, 8) & 0xFFFF if name.startswith("i8") else value
        expected = D[lane] & 0xFFFF | value << 16 if high else D[lane] & 0xFFFF0000 | value
        assert bench.lanes(8)[lane] == expected


@pytest.mark.parametrize("name", ["b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi"])
@pytest.mark.parametrize("exec_mask", [ALL, SOME])
def test_writes(name: str, exec_mask: int) -> None:
    bench = loaded(exec_mask)
    before = bench.lds.copy()
    size = int(name[1:].split("_", maxsplit=1)[0]) // 8
    count = max(1, size // 4)
    bench.set_wide(2, [b | c << 32 for b, c in zip(B, C, strict=True)])
    bench.run(f"ds_write_{name} v0, {'v2' if count == 1 else f'v[2:{1 + count}]'} offset:64")
    registers = [bench.lanes(2 + index) for index in range(count)]
    for lane, place in enumerate(PLACES):
        value = sum(register[lane] << 32 * index for index, register in enumerate(registers))
        value = value >> 16 if name.endswith("hi") else value
        raw = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if exec_mask >> lane & 1:
            before[place + 64 : place + 64 + size] = list(raw)
    assert bench.lds.tolist() == before.tolist()


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("stride", ["", "st64"])
def test_two_places_at_once(width: int, stride: str) -> None:
    bench = loaded()
    size, words = width // 8, width // 32
    scale = size * (64 if stride else 1)
    low = [place % 256 // 8 * 8 for place in PLACES]
    bench.set(0, low)
    bench.run(f"ds_read2{stride}_b{width} v[8:{7 + 2 * words}], v0 offset0:1 offset1:3")
    for lane, place in enumerate(low):
        for part, offset in enumerate((1, 3)):
            value = at(bench, place + offset * scale, size)
            found = [bench.lanes(8 + words * part + index)[lane] for index in range(words)]
            assert found == [value >> 32 * index & M32 for index in range(words)]
    bench.set(0, [size * lane for lane in range(64)])
    data = "v1, v2" if words == 1 else "v[2:3], v[4:5]"
    bench.set(4, D)
    bench.set(5, A)
    offsets = (0, 64) if not stride else (0, 4)
    bench.run(f"ds_write2{stride}_b{width} v0, {data} offset0:{offsets[0]} offset1:{offsets[1]}")
    pairs = ((1,), (2,)) if words == 1 else ((2, 3), (4, 5))
    for registers, offset in zip(pairs, offsets, strict=True):
        for lane in range(64):
            expected = sum(bench.lanes(register)[lane] << 32 * index for index, register in enumerate(registers))
            assert at(bench, size * lane + offset * scale, size) == expected


@pytest.mark.parametrize("width", [1, 2])
def test_transposed_reads(width: int) -> None:
    bench = loaded()
    bench.run(f"ds_read_b64_tr_b{8 * width} v[8:9], v0")
    per_lane = 8 // width
    for lane in range(64):
        group = lane // 16 * 16
        elements = []
        for row in range(per_lane):
            index = row * 16 + lane % 16  # in the 16 lanes' elements, one lane's after the other's
            place = PLACES[group + index // per_lane] + index % per_lane * width
            elements.append(at(bench, place, width))
        whole = sum(element << 8 * width * i for i, element in enumerate(elements))
        assert bench.lanes(8)[lane] | bench.lanes(9)[lane] << 32 == whole


def s(value: int, bits: int) -> int:
    return signed(value, bits)


def atomic(name: str, bits: int, old: int, data: int) -> int:
    mask = (1 << bits) - 1
    results = {
        "add": old + data, "sub": old - data, "and": old & data, "or": old | data, "xor": old ^ data,
        "min_u": min(old, data), "max_u": max(old, data),
        "min_i": min(s(old, bits), s(data, bits)), "max_i": max(s(old, bits), s(data, bits)),
        "inc": 0 if old >= data else old + 1, "dec": data if old == 0 or old > data else old - 1,
        "swap": data,
    }  # fmt: skip
    return results[name] & mask


NAMES = ["add_u", "sub_u", "inc_u", "dec_u", "min_u", "max_u", "min_i", "max_i", "and_b", "or_b", "xor_b"]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("returns", [False, True])
def test_atomics_in_lane_order(name: str, bits: int, returns: bool) -> None:
    bench = loaded(SOME)
    size = bits // 8
    places = [lane % 7 * 8 for lane in range(64)]
    bench.set(0, places)
    bench.set_wide(2, [b | c << 32 for b, c in zip(B, C, strict=True)])
    operation, kind = name.split("_")
    key = name if operation in ("min", "max") else operation
    memory = {place: at(bench, place, size) for place in places}
    data = "v2" if bits == 32 else "v[2:3]"
    target = ("v8, " if bits == 32 else "v[8:9], ") if returns else ""
    bench.run(f"ds_{operation}{'_rtn' if returns else ''}_{kind}{bits} {target}v0, {data}")
    for lane, place in enumerate(places):
        if SOME >> lane & 1:
            if returns:
                found = bench.lanes(8)[lane] | (bench.lanes(9)[lane] << 32 if bits == 64 else 0)
                assert found == memory[place]
            memory[place] = atomic(key, bits, memory[place], B[lane] | (C[lane] << 32 if bits == 64 else 0))
    assert {place: at(bench, place, size) for place in places} == memory


def test_exchanges() -> None:
    bench = loaded()
    old = [at(bench, place, 4) for place in PLACES]
    compare = [value if lane % 2 else 1 for lane, value in enumerate(old)]
    bench.set(1, compare)
    bench.run("ds_cmpst_rtn_b32 v8, v0, v1, v2")
    assert bench.lanes(8) == old
    assert [at(bench, place, 4) for place in PLACES] == [
        b if lane % 2 or value == 1 else value for lane, (b, value) in enumerate(zip(B, old, strict=True))
    ]
    bench.run("ds_wrxchg_rtn_b32 v9, v0, v3\nds_wrxchg_rtn_b64 v[10:11], v0, v[2:3]\nds_cmpst_b32 v0, v1, v4")
    assert [at(bench, place + 4, 4) for place in PLACES] == C


def test_float_atomics() -> None:
    bench = loaded()
    bench.lds.view("f4")[:] = 1.5
    bench.set(0, [0] * 64)
    bench.set(1, [F32.encode(Fraction(lane)) for lane in range(64)])
    bench.run("ds_add_f32 v0, v1")
    assert at(bench, 0, 4) == F32.encode(Fraction(3, 2) + 63 * 32)
    bench.run("ds_max_f32 v0, v1\nds_min_f32 v0, v1")
    assert at(bench, 0, 4) == 0


@pytest.mark.parametrize(
    "text", ["ds_read_b32 v8, v0 offset:4", "ds_write_b64 v0, v[2:3]", "ds_add_u32 v0, v1 offset:8"]
)
def test_an_access_outside_is_refused(text: str) -> None:
    bench = loaded()
    bench.set(0, [4092 if lane == 37 else 0 for lane in range(64)])
    with pytest.raises(AccessError) as caught:
        bench.run(text)
    assert caught.value.lane == 37
    bench.exec = ~(1 << 37) & M64
    bench.run(text)


def test_each_workgroup_has_its_own() -> None:
    bench = Bench(waves=2, groups=(0, 1))
    bench.v[0] = 16
    bench.v[1, 0], bench.v[1, 1] = 11, 22
    bench.run("ds_write_b32 v0, v1\nds_read_b32 v2, v0")
    assert bench.v[2, :, 5].tolist() == [11, 22]
    assert [int(bench.lds.view("u4")[word]) for word in (4, 1028)] == [11, 22]
