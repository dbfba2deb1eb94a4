"""Every field outside of the machine code is named, with both values."""

from __future__ import annotations

import struct

import pytest

from aotkern import codeobject
from aotkern.codeobject import descriptor, elf, explain, recover

REGISTERS = {"rsrc3": 44, "rsrc1": 48, "rsrc2": 52, "properties": 56, "preload": 58}
"""Where the registers stand in a descriptor, in bytes, by LLVM's table."""


@pytest.fixture(scope="session")
def hsaco(build):
    return build("mixed", "hip:gfx942").binary


def place(data: bytes) -> int:
    """Where the descriptor stands in the file."""
    image = elf.parse(data, "x")
    (symbol,) = (symbol for symbol in image.symbols(".dynsym") if symbol.name.endswith(".kd"))
    section = image.section(".rodata")
    return section.offset + symbol.value - section.address


def with_bit(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("field", descriptor.FIELDS, ids=lambda field: field.name.replace(" ", "_"))
def test_a_flipped_bit_of_the_descriptor_is_named(hsaco, field):
    other = with_bit(hsaco, place(hsaco) + REGISTERS[field.register], field.first)
    found = explain.changes(hsaco, other, "x")
    assert list(found) == ["descriptor"]
    ((name, (before, after)),) = found["descriptor"].items()
    assert name == field.name
    assert before != after
    assert explain.changes(other, hsaco, "x") == {"descriptor": {name: [after, before]}}


def test_the_fields_cover_every_bit_once():
    widths = {"rsrc1": 32, "rsrc2": 32, "rsrc3": 32, "properties": 16, "preload": 16}
    for register, width in widths.items():
        bits = [b for f in descriptor.FIELDS if f.register == register for b in range(f.first, f.first + f.width)]
        assert bits == list(range(width))
    assert len({field.name for field in descriptor.FIELDS}) == len(descriptor.FIELDS)


@pytest.mark.parametrize(
    ("offset", "name"),
    [(0, "group_segment_fixed_size"), (4, "private_segment_fixed_size"), (8, "kernarg_size")],
)
def test_sizes_of_the_descriptor_are_named(hsaco, offset, name):
    at = place(hsaco) + offset
    (before,) = struct.unpack_from("<I", hsaco, at)
    other = hsaco[:at] + struct.pack("<I", before + 64) + hsaco[at + 4 :]
    assert explain.changes(hsaco, other, "x") == {"descriptor": {name: [before, before + 64]}}


def test_values_say_what_they_mean(hsaco):
    at = place(hsaco) + REGISTERS["rsrc1"]
    found = explain.changes(hsaco, with_bit(with_bit(hsaco, at, 12), at, 17), "x")["descriptor"]
    assert found["float_round_mode_32"] == ["0 (to nearest even)", "1 (to plus infinity)"]
    assert found["float_denorm_mode_32"] == ["3 (keep)", "1 (flush in results)"]


@pytest.mark.parametrize(
    "key", [".uniform_work_group_size", ".sgpr_spill_count", ".kernarg_segment_align", ".max_flat_workgroup_size"]
)
def test_a_value_of_the_note_is_named(hsaco, key):
    note = elf.parse(hsaco, "x").section(".note")
    start = hsaco.index(key.encode(), note.offset) + len(key)
    # One more, in whichever width msgpack spells the number.
    at = start + {0xCC: 1, 0xCD: 2}.get(hsaco[start], 0)
    other = hsaco[:at] + bytes([hsaco[at] ^ 1]) + hsaco[at + 1 :]
    found = explain.changes(hsaco, other, "x")
    assert list(found) == ["metadata"]
    ((name, (before, after)),) = found["metadata"].items()
    assert (name, abs(after - before)) == (key, 1)


def test_an_argument_of_the_note_is_named_by_its_place(hsaco, build):
    found = explain.changes(hsaco, build("product", "hip:gfx942").binary, "x")
    assert ".args[0].size" not in found["metadata"]
    assert [name for name in found["metadata"] if name.startswith(".args[")]


def test_equal_files_have_no_changes(hsaco, build):
    assert explain.changes(hsaco, hsaco, "x") == {}
    cubin = build("mixed", "cuda:90").binary
    assert explain.changes(cubin, cubin, "x") == {}
    assert explain.changes(hsaco, cubin, "x") == {}


def test_attributes_of_a_cubin_are_named_where_nvidia_names_them(build):
    found = explain.changes(
        build("mixed", "cuda:90", num_warps=4).binary, build("mixed", "cuda:90", num_warps=8).binary, "x"
    )
    assert [name for name in found["attributes"] if name.endswith(("EIATTR_REQNTID", "EIATTR_MAX_THREADS"))]
    assert all(before != after for rows in found.values() for before, after in rows.values())


# Against facts alone, as in a golden manifest.


@pytest.mark.parametrize(
    "field", [f for f in descriptor.FIELDS if f.width <= 10], ids=lambda f: f.name.replace(" ", "_")
)
def test_a_flipped_bit_is_found_from_the_digest_alone(hsaco, field):
    other = with_bit(hsaco, place(hsaco) + REGISTERS[field.register], field.first)
    before = codeobject.read(hsaco, "x")
    assert recover.changes(before, other, "x") == explain.changes(hsaco, other, "x")


def test_registers_that_move_together_are_found(hsaco):
    at = place(hsaco)
    other = with_bit(with_bit(hsaco, at + REGISTERS["rsrc1"], 2), at + REGISTERS["rsrc3"], 3)
    found = recover.changes(codeobject.read(hsaco, "x"), other, "x")
    assert set(found["descriptor"]) == {"granulated_workitem_vgpr_count", "accum_offset"}
    assert found == explain.changes(hsaco, other, "x")


@pytest.mark.parametrize("key", [".uniform_work_group_size", ".sgpr_spill_count"])
def test_a_value_of_the_note_is_found_from_the_digest_alone(hsaco, key):
    start = hsaco.index(key.encode(), elf.parse(hsaco, "x").section(".note").offset) + len(key)
    other = hsaco[:start] + bytes([hsaco[start] ^ 1]) + hsaco[start + 1 :]
    found = recover.changes(codeobject.read(hsaco, "x"), other, "x")
    assert list(found["metadata"]) == [key]
    assert found == explain.changes(hsaco, other, "x")


def test_what_cannot_be_found_is_not_named(hsaco, build):
    other = with_bit(with_bit(hsaco, place(hsaco) + REGISTERS["rsrc1"], 12), place(hsaco) + REGISTERS["rsrc2"], 24)
    assert recover.changes(codeobject.read(hsaco, "x"), other, "x") == {}
    assert recover.changes(codeobject.read(hsaco, "x"), hsaco, "x") == {}
    assert recover.changes(codeobject.read(hsaco, "x"), build("mixed", "cuda:90").binary, "x") == {}
