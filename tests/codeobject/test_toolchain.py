"""What the product takes for granted about the compiler's output, so that a new compiler that breaks it is noticed."""

import elf_edits as edits
import pytest

from aotkern.codeobject import Role, elf, read


def test_amd_objects_are_version_5_with_features_left_open(build):
    for arch, flags in (("gfx942", 0x54C), ("gfx950", 0x54F)):
        found = read(build("mixed", f"hip:{arch}").binary, "k")
        assert (found.e_flags, found.code_version, str(found.target)) == (flags, 5, f"hip:{arch}")


@pytest.mark.parametrize("target", ["hip:gfx942", "hip:gfx950", "cuda:80", "cuda:90"])
def test_a_second_compile_gives_the_same_bytes(build, target):
    # The cache of this fixture is per call, and the option spells out a default: so this is a second compile.
    assert build("mixed", target).binary == build("mixed", target, num_warps=4).binary


def test_lds_is_not_in_the_code_object(build):
    for target in ("hip:gfx942", "hip:gfx950", "cuda:80", "cuda:90"):
        built = build("product", target)
        assert built.metadata.shared > 0
        assert read(built.binary, "k").resources.lds_bytes == 0


def changed_sections(first, second):
    """The names of the sections whose content differs."""
    return {
        mine.name for mine, other in zip(first.sections, second.sections, strict=True) if mine.digest != other.digest
    }


def test_two_chips_can_share_code_and_descriptor(build):
    first, second = (read(build("mixed", f"hip:{arch}").binary, arch) for arch in ("gfx942", "gfx950"))
    assert changed_sections(first, second) == {".note"}
    assert first.identity != second.identity


@pytest.mark.parametrize("option", [{"allow_flush_denorm": True}, {"waves_per_eu": 2}])
def test_some_options_change_the_descriptor_alone(build, option):
    plain, changed = (read(build("mixed", "hip:gfx942", **options).binary, "k") for options in ({}, option))
    assert changed_sections(plain, changed) == {".rodata"}
    assert plain.identity != changed.identity


def test_sections_of_an_hsaco_and_their_roles(build):
    found = read(build("mixed", "hip:gfx950").binary, "k")
    roles = {role: {item.name for item in found.sections if item.role is role} for role in Role}
    assert roles[Role.CODE] == {".text"}
    assert roles[Role.DESCRIPTOR] == {".rodata"}
    assert roles[Role.METADATA] == {".note"}
    assert roles[Role.LINKAGE] == {".dynamic", ".dynstr", ".dynsym", ".gnu.hash", ".hash", ".relro_padding"}


def test_sections_of_a_cubin_and_their_roles(build):
    found = read(build("mixed", "cuda:90", line_info=True).binary, "k")
    roles = {role: {item.name for item in found.sections if item.role is role} for role in Role}
    assert roles[Role.CODE] == {".text.mixed"}
    assert {".nv.info", ".nv.info.mixed", ".nv.constant0.mixed", ".nv.compat"} <= roles[Role.DESCRIPTOR]
    assert not any("debug" in name for name in roles[Role.DESCRIPTOR])


def test_the_two_cuda_targets_use_the_two_layouts_of_the_flags(build):
    old, new = (elf.parse(build("mixed", target).binary, "k") for target in ("cuda:80", "cuda:90"))
    assert (old.os_abi, old.abi_version, old.flags) == (0x33, 7, 0x50_0550)
    assert (new.os_abi, new.abi_version, new.flags & 0xFFFFFF) == (0x41, 8, 0x5A04)


def test_the_top_byte_of_the_new_flags_is_the_index_of_a_section(build):
    for line_info in (False, True):
        image = elf.parse(build("mixed", "cuda:90", line_info=line_info).binary, "k")
        assert image.flags >> 24 == image.section(".note.nv.cuinfo").index


def test_line_information_holds_the_source_path(build):
    data = build("mixed", "hip:gfx950", line_info=True).binary
    start, size = edits.extent(data, ".debug_line")
    assert b"sample_kernels.py" in data[start : start + size]
    assert b"sample_kernels" not in build("mixed", "hip:gfx950").binary


def test_cubins_for_sm_100_give_one_debug_text_two_names(build):
    image = elf.parse(build("mixed", "cuda:100", line_info=True).binary, "k")
    first, second = (image.section(name) for name in (".nv_debug_ptx_txt", ".nv.merc.nv_debug_ptx_txt"))
    assert (first.offset, first.size) == (second.offset, second.size)
    assert read(build("mixed", "cuda:100", line_info=True).binary, "k").symbol == "mixed"
