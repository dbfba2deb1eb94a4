"""Cubins: both layouts of the flags, launch attributes, and what is refused."""

import re
import subprocess

import elf_edits as edits
import pytest

from aotkern.codeobject import elf, nvidia, nvinfo, read
from aotkern.errors import IntegrityError
from aotkern.target import Target

EXIT_INSTR_OFFSETS = 0x1C

PTX = """
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 p, .param .u8 b) .maxntid 96, 2
{{
  .reg .b64 %r<3>; .reg .b32 %q<3>; .shared .align 4 .b32 s[64];
  ld.param.u64 %r1, [p]; ld.shared.u32 %q1, [s+4]; st.global.u32 [%r1], %q1; ret;
}}
"""


@pytest.fixture(scope="module", params=["ptxas", "ptxas_blackwell"])
def assemble(request, tmp_path_factory):
    """A function `arch -> (cubin, what ptxas -v prints)`, once for each assembler in Triton's wheel."""
    triton = pytest.importorskip("triton")
    tool = getattr(triton.knobs.nvidia, request.param).path
    folder = tmp_path_factory.mktemp(request.param)

    def assembled(arch):
        source, binary = folder / f"{arch}.ptx", folder / f"{arch}.cubin"
        source.write_text(PTX.format(arch=arch))
        command = [tool, "-v", f"-arch={arch}", source, "-o", binary]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return binary.read_bytes(), done.stdout + done.stderr

    return assembled


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120a"])
def test_facts_agree_with_what_the_assembler_prints(assemble, arch):
    binary, printed = assemble(arch)
    found = read(binary, arch)
    assert found.target == Target.parse(f"cuda:{arch.removeprefix('sm_').removesuffix('a')}")
    assert found.resources.vgprs == int(re.search(r"Used (\d+) registers", printed)[1])
    assert found.resources.lds_bytes == int(re.search(r"(\d+) bytes smem", printed)[1]) == 256
    assert found.resources.max_threads == 192
    assert [(item.offset, item.size, item.kind) for item in found.arguments] == [(0, 8, "by_value"), (8, 1, "by_value")]
    assert found.kernarg_bytes == 9
    assert found.code_version is None


def test_accelerated_code_has_the_target_of_its_chip_and_an_identity_of_its_own(assemble):
    plain, accelerated = (read(assemble(arch)[0], arch) for arch in ("sm_90", "sm_90a"))
    assert plain.target == accelerated.target
    assert plain.identity != accelerated.identity


def test_stack_is_what_the_assembler_prints(build):
    found = read(build("product", "cuda:90").binary, "k")
    assert found.resources.scratch_bytes == 0
    assert found.resources.lds_bytes == 0


@pytest.mark.parametrize(
    ("os_abi", "abi", "flags", "arch"),
    [
        (0x33, 7, 0x50_0550, "80"),
        (0x33, 7, 0x5A_0D5A, "90"),
        (0x41, 8, 0x0600_5004, "80"),
        (0x41, 8, 0x0900_5A04, "90"),
        (0x41, 8, 0x0600_640A, "100"),
    ],
)
def test_both_layouts_of_the_flags(build, os_abi, abi, flags, arch):
    data = edits.splice(build("mixed", "cuda:90").binary, 7, bytes([os_abi, abi]))
    image = elf.parse(edits.put(data, edits.HEADER["e_flags"], flags), "k")
    assert nvidia.target(image) == Target.parse(f"cuda:{arch}")


@pytest.mark.parametrize(("os_abi", "abi"), [(0x33, 8), (0x41, 7), (0x41, 9), (0, 0)])
def test_an_unknown_layout_is_refused(build, os_abi, abi):
    data = edits.splice(build("mixed", "cuda:90").binary, 7, bytes([os_abi, abi]))
    with pytest.raises(IntegrityError, match="EI_OSABI: expected 51 with version 7, or 65 with 8"):
        read(data, "k")


def test_an_unknown_architecture_is_refused(build):
    data = edits.put(build("mixed", "cuda:90").binary, edits.HEADER["e_flags"], 0x0600_6704)
    with pytest.raises(IntegrityError, match=r"e_flags: expected a target whose limits are known.*sm_103"):
        read(data, "k")


def info_at(data, attribute):
    """Where the value of the kernel's attribute begins."""
    section = ".nv.info" if attribute == nvinfo.Attribute.REGCOUNT else ".nv.info.mixed"
    start, size = edits.extent(data, section)
    at = start
    while at < start + size:
        if data[at + 1] == attribute:
            return at + 4
        at += 4 + (int.from_bytes(data[at + 2 : at + 4], "little") if data[at] == 4 else 0)
    raise AssertionError(attribute)


@pytest.mark.parametrize(
    ("attribute", "at", "new", "expected"),
    [
        (nvinfo.Attribute.REGCOUNT, 0, b"\xff\xff\0\0", "the index of one of"),
        (nvinfo.Attribute.REGCOUNT, -3, b"\x30", "EIATTR_REGCOUNT of mixed"),
        (nvinfo.Attribute.REGCOUNT, -4, b"\x09", "an attribute with format 1 to 4"),
        (nvinfo.Attribute.REGCOUNT, -2, b"\xff\xff", "at most"),
        (nvinfo.Attribute.REQNTID, 0, bytes(4), "three numbers of threads"),
        (nvinfo.Attribute.REQNTID, 0, b"\xff" * 8, "three numbers of threads"),
        (nvinfo.Attribute.CBANK_PARAM_SIZE, -2, b"\x31\0", "the size that PARAM_CBANK states"),
        (EXIT_INSTR_OFFSETS, -3, b"\x17", "KPARAM_INFO: expected 12 bytes"),
        (nvinfo.Attribute.KPARAM_INFO, 4, b"\x05\0", "ordinal 6"),
        (nvinfo.Attribute.KPARAM_INFO, 6, b"\x20\0", "from byte 40 on"),
        (nvinfo.Attribute.KPARAM_INFO, 8, bytes(4), "from byte 40 on"),
        (nvinfo.Attribute.KPARAM_INFO, 10, b"\x41\0", "parameters of 48 bytes together, found 56 bytes"),
    ],
)
def test_attributes_that_contradict_each_other_are_refused(build, attribute, at, new, expected):
    data = build("mixed", "cuda:90").binary
    with pytest.raises(IntegrityError, match=re.escape(expected)):
        read(edits.splice(data, info_at(data, attribute) + at, new), "k")


def test_a_kernel_that_states_no_block_size_has_none(build):
    data = build("mixed", "cuda:90").binary
    at = info_at(data, nvinfo.Attribute.REQNTID) - 3
    assert read(edits.splice(data, at, b"\x7f"), "k").resources.max_threads == 0


def test_too_many_attributes_are_refused(build, monkeypatch):
    monkeypatch.setattr(nvinfo, "MAX_ENTRIES", 2)
    with pytest.raises(IntegrityError, match=r"\.nv\.info: expected at most 2 attributes, found more"):
        read(build("mixed", "cuda:90").binary, "k")


def test_exactly_one_kernel_is_accepted(build):
    data = build("mixed", "cuda:90").binary
    bases = edits.section_bases(data)
    unnamed = edits.put(
        data,
        edits.SECTION["sh_name"],
        edits.get(data, edits.SECTION["sh_name"], bases[".text.mixed"]) + 1,
        bases[".text.mixed"],
    )
    with pytest.raises(IntegrityError, match=r"one section \.text\.\*, found 0"):
        read(unnamed, "k")
    base = edits.symbol_bases(data, ".symtab")["mixed"]
    with pytest.raises(IntegrityError, match=r"\.symtab/mixed: expected one function inside \.text\.mixed"):
        read(edits.put(data, edits.SYMBOL["st_size"], 1 << 30, base), "k")


def test_flags_of_the_text_section_are_part_of_the_identity(build):
    data = build("mixed", "cuda:80").binary
    base = edits.section_bases(data)[".text.mixed"]
    barriers = edits.put(
        data, edits.SECTION["sh_flags"], edits.get(data, edits.SECTION["sh_flags"], base) | 1 << 20, base
    )
    assert read(barriers, "k").identity != read(data, "k").identity
