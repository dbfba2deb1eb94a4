"""HSACO files: flags, descriptor, note, and what is refused when they contradict each other."""

import re
import struct
from dataclasses import replace

import elf_edits as edits
import msgpack
import pytest

from aotkern.codeobject import amdgpu, elf, note, read
from aotkern.codeobject.descriptor import BYTES, KernelDescriptor
from aotkern.errors import IntegrityError
from aotkern.target import Feature, Target

FLAG_BITS = {Feature.ANY: 1, Feature.OFF: 2, Feature.ON: 3}
HIP = ("hip:gfx942", "hip:gfx950")


def with_note(image, change):
    """The image with its metadata document changed by `change`, encoded afresh."""
    section = image.section(".note")
    document = note.metadata(image, section)
    change(document)
    return with_body(image, msgpack.packb(document))


def with_body(image, body):
    """The image with these bytes as the description of its note."""
    data = struct.pack("<3I8s", 7, len(body), 32, b"AMDGPU") + body + bytes(-len(body) % 4)
    sections = tuple(replace(item, data=memoryview(data)) if item.name == ".note" else item for item in image.sections)
    return replace(image, sections=sections)


@pytest.mark.parametrize("sramecc", Feature)
@pytest.mark.parametrize("xnack", Feature)
@pytest.mark.parametrize(("machine", "arch"), [(0x4C, "gfx942"), (0x4F, "gfx950")])
def test_target_comes_from_the_flags_alone(build, machine, arch, xnack, sramecc):
    flags = machine | FLAG_BITS[xnack] << 8 | FLAG_BITS[sramecc] << 10
    data = edits.put(build("mixed", "hip:gfx942").binary, edits.HEADER["e_flags"], flags)
    image = elf.parse(data, "k")
    expected = Target.parse(f"hip:{arch}")
    assert amdgpu.target(image) == replace(expected, sramecc=sramecc, xnack=xnack)
    marks = "".join(f":{n}{f.value}" for n, f in (("sramecc", sramecc), ("xnack", xnack)) if f is not Feature.ANY)
    named = with_note(image, lambda found: found.update({"amdhsa.target": f"amdgcn-amd-amdhsa--{arch}{marks}"}))
    assert amdgpu.read(named).target == amdgpu.target(image)
    if (machine, xnack, sramecc) != (0x4C, Feature.ANY, Feature.ANY):
        with pytest.raises(IntegrityError, match=r"k: \.note/amdhsa\.target: expected the target of e_flags"):
            read(data, "k")


@pytest.mark.parametrize("text", ["amdgcn-amd-amdhsa--gfx950", "amdgcn--gfx9999", "amdgcn--gfx942:xnack+", "gfx942 "])
def test_another_target_in_the_note_is_refused(build, text):
    image = elf.parse(build("mixed", "hip:gfx942").binary, "k")
    named = with_note(image, lambda found: found.update({"amdhsa.target": text}))
    with pytest.raises(IntegrityError, match=f"expected the target of e_flags, hip:gfx942, found '{re.escape(text)}'"):
        amdgpu.read(named)


@pytest.mark.parametrize("flags", [0x54D, 0x500, 0x04C, 0x44C, 0x14C, 0x154C, 0x0100_054C])
def test_flags_that_are_not_known_are_refused(build, flags):
    data = edits.put(build("mixed", "hip:gfx942").binary, edits.HEADER["e_flags"], flags)
    with pytest.raises(IntegrityError, match=f"k: e_flags: expected gfx942.*found {flags:#x}"):
        read(data, "k")


@pytest.mark.parametrize(("abi", "version"), [(2, 4), (3, 5), (4, 6)])
def test_code_object_version_is_stated(build, abi, version):
    found = read(edits.splice(build("mixed", "hip:gfx942").binary, 8, bytes([abi])), "k")
    assert (found.abi_version, found.code_version) == (abi, version)


def test_an_unknown_code_object_version_is_refused(build):
    with pytest.raises(IntegrityError, match=r"EI_OSABI: expected 64 .* found 64 with version 5"):
        read(edits.splice(build("mixed", "hip:gfx942").binary, 8, b"\x05"), "k")


@pytest.mark.parametrize("target", HIP)
@pytest.mark.parametrize("kernel", ["mixed", "product"])
def test_note_and_descriptor_agree_with_the_assembly(build, kernel, target):
    built = build(kernel, target)
    found = read(built.binary, "k")
    laid_out = amdgpu.descriptor(elf.parse(built.binary, "k"), kernel)

    def directive(name):
        return int(re.search(rf"\.{name}\s+(\d+)", built.text)[1])

    assert laid_out.kernarg_bytes == directive("amdhsa_kernarg_size") == found.kernarg_bytes
    assert laid_out.private_bytes == directive("amdhsa_private_segment_fixed_size") == found.resources.scratch_bytes
    assert laid_out.group_bytes == directive("amdhsa_group_segment_fixed_size") == found.resources.lds_bytes
    assert laid_out.accum_offset == directive("amdhsa_accum_offset")
    assert laid_out.user_sgprs == directive("amdhsa_user_sgpr_count")
    assert laid_out.preload_dwords == directive("amdhsa_user_sgpr_kernarg_preload_length")
    assert laid_out.preload_offset == directive("amdhsa_user_sgpr_kernarg_preload_offset")
    ids = tuple(bool(directive(f"amdhsa_system_sgpr_workgroup_id_{axis}")) for axis in "xyz")
    assert laid_out.workgroup_ids == ids
    assert laid_out.workitem_ids == directive("amdhsa_system_vgpr_workitem_id")
    assert laid_out.splits_threadgroup == bool(directive("amdhsa_tg_split"))
    assert laid_out.wave == 64
    assert not laid_out.flushes_denormals
    registers = found.resources
    assert registers.vgprs <= laid_out.vgprs < registers.vgprs + 8
    assert registers.agprs == 0 or registers.vgprs == laid_out.accum_offset + registers.agprs
    assert registers.vgprs == directive("vgpr_count:")
    assert registers.agprs == directive("agpr_count:")
    assert registers.sgprs == directive("sgpr_count:")
    assert registers.vgpr_spills == directive("vgpr_spill_count:")
    assert registers.sgpr_spills == directive("sgpr_spill_count:")


def test_descriptor_refuses_reserved_bytes_and_wrong_lengths():
    assert KernelDescriptor.parse(bytes(BYTES), "kd").vgprs == 8
    with pytest.raises(IntegrityError, match="kd/reserved: expected zeros"):
        KernelDescriptor.parse(bytes(12) + b"\1" + bytes(51), "kd")
    with pytest.raises(IntegrityError, match="expected 64 bytes, found 63"):
        KernelDescriptor.parse(bytes(63), "kd")


def test_descriptor_fields_stand_where_the_guide_puts_them():
    laid_out = KernelDescriptor.parse(
        struct.pack("<3I4xq20x3IHH4x", 1, 2, 3, -256, 0x1_003F, 0x0003_03FF, 0x1B8D, 0x400, 0x0183), "kd"
    )
    assert (laid_out.group_bytes, laid_out.private_bytes, laid_out.kernarg_bytes) == (1, 2, 3)
    assert (laid_out.entry_offset, laid_out.accum_offset, laid_out.splits_threadgroup) == (-256, 256, True)
    assert (laid_out.vgprs, laid_out.sgprs, laid_out.flushes_denormals) == (512, 128, False)
    assert (laid_out.uses_scratch, laid_out.user_sgprs, laid_out.workitem_ids) == (True, 6, 3)
    assert laid_out.workgroup_ids == (True, True, True)
    assert (laid_out.wave, laid_out.preload_dwords, laid_out.preload_offset) == (32, 3, 3)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (".kernarg_segment_size", 40, "48 as in the kernel descriptor"),
        (".group_segment_fixed_size", 1, "0 as in the kernel descriptor"),
        (".private_segment_fixed_size", 1, "0 as in the kernel descriptor"),
        (".wavefront_size", 32, "64 as in the kernel descriptor"),
        (".vgpr_count", 512, "at most the"),
        (".vgpr_count", -1, "an integer from 0"),
        (".vgpr_count", True, "an integer from 0"),
        (".agpr_count", 8, "AGPRs among them"),
        (".sgpr_count", "8", "an integer from 0"),
        (".symbol", "mixed", "the kernel's name and '.kd'"),
        (".symbol", "another.kd", "one STT_OBJECT symbol another.kd"),
        (".symbol", 7, "a text of 1 to"),
        (".args", 7, "a list of maps"),
        (".args", [7], "a list of maps"),
        (".args", [{".offset": 44, ".size": 8, ".value_kind": "by_value"}], "bytes between 0 and 48"),
        (".args", [{".offset": 0, ".size": 0, ".value_kind": "by_value"}], "bytes between 0 and 48"),
        (".args", [{".offset": 0, ".size": 8}], "a text of 1 to"),
    ],
)
def test_a_note_that_contradicts_the_file_is_refused(build, key, value, expected):
    image = elf.parse(build("mixed", "hip:gfx942").binary, "k")
    changed = with_note(image, lambda document: document["amdhsa.kernels"][0].update({key: value}))
    with pytest.raises(IntegrityError, match=re.escape(expected)):
        amdgpu.read(changed)


def test_exactly_one_kernel_is_accepted(build):
    image = elf.parse(build("mixed", "hip:gfx942").binary, "k")
    for kernels, found in (([], "0 entries"), ("x", "str"), (None, "NoneType"), ([[]], "1 entries")):
        with pytest.raises(IntegrityError, match=f"a list of one map, found {found}"):
            note.single_kernel(image, {"amdhsa.kernels": kernels})
    twice = with_note(image, lambda document: document["amdhsa.kernels"].append(document["amdhsa.kernels"][0]))
    with pytest.raises(IntegrityError, match="a list of one map, found 2 entries"):
        amdgpu.read(twice)


def test_order_of_keys_in_the_note_does_not_matter_but_values_do(build):
    image = elf.parse(build("mixed", "hip:gfx942").binary, "k")

    def reversed_keys(document):
        kernel = document["amdhsa.kernels"][0]
        document["amdhsa.kernels"][0] = dict(reversed(kernel.items()))

    def other_value(document):
        document["amdhsa.kernels"][0][".uniform_work_group_size"] = 0

    plain, turned, other = (amdgpu.read(with_note(image, do)) for do in (dict, reversed_keys, other_value))
    assert plain.identity == turned.identity == amdgpu.read(image).identity
    assert plain.identity != other.identity


@pytest.mark.parametrize(
    ("symbol", "field", "value", "expected"),
    [
        ("mixed.kd", "st_size", 63, "64 aligned bytes in .rodata"),
        ("mixed.kd", "st_value", 0, "a place inside its section"),
        ("mixed.kd", "st_info", 0x12, "one STT_OBJECT symbol mixed.kd"),
        ("mixed.kd", "st_shndx", 0xFFF1, "a place inside its section"),
        ("mixed", "st_size", 1 << 40, "a place inside its section"),
        ("mixed", "st_value", (1 << 64) - 256, "a place inside its section"),
        ("mixed", "st_name", 1 << 20, "an ASCII name"),
    ],
)
def test_symbols_that_point_elsewhere_are_refused(build, symbol, field, value, expected):
    data = build("mixed", "hip:gfx942").binary
    base = edits.symbol_bases(data, ".dynsym")[symbol]
    with pytest.raises(IntegrityError, match=re.escape(expected)):
        read(edits.put(data, edits.SYMBOL[field], value, base), "k")


def test_an_entry_elsewhere_is_refused(build):
    data = build("mixed", "hip:gfx942").binary
    start, _ = edits.extent(data, ".rodata")
    with pytest.raises(IntegrityError, match=r"mixed\.kd/entry: expected the 256-byte aligned address of mixed"):
        read(edits.put(data, edits.Field(16, 8), 0x2000, start), "k")


def loads(data):
    """Where the program header of each segment that is loaded stands, by the segment's place in the file."""
    start, count = edits.get(data, edits.HEADER["e_phoff"]), edits.get(data, edits.HEADER["e_phnum"])
    bases = range(start, start + count * edits.SEGMENT_BYTES, edits.SEGMENT_BYTES)
    loaded = (base for base in bases if edits.get(data, edits.SEGMENT["p_type"], base) == 1)
    return {edits.get(data, edits.SEGMENT["p_offset"], base): base for base in loaded}


def test_segments_that_map_other_bytes_than_the_sections_are_refused(build):
    data = build("mixed", "hip:gfx942").binary
    text, _ = edits.extent(data, ".text")
    moved = edits.put(data, edits.SEGMENT["p_offset"], text - 256, loads(data)[text])
    with pytest.raises(IntegrityError, match=r"k: \.text: expected bytes that a PT_LOAD segment maps"):
        read(moved, "k")


@pytest.mark.parametrize(("field", "value"), [("p_memsz", 0x2000), ("p_vaddr", 0x2C00)])
def test_segments_that_map_over_each_other_are_refused(build, field, value):
    data = build("mixed", "hip:gfx942").binary
    text, _ = edits.extent(data, ".text")
    with pytest.raises(IntegrityError, match=r"k: program headers: expected no segment before 0x[0-9a-f]+, after"):
        read(edits.put(data, edits.SEGMENT[field], value, loads(data)[text]), "k")
