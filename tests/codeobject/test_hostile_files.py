"""Damaged and hostile files: always one `IntegrityError`, or a code object whose facts hold together."""

from itertools import pairwise

import elf_edits as edits
import pytest
from elftools.common.exceptions import ELFParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from aotkern.codeobject import CodeObject, elf, read, section_bytes
from aotkern.errors import IntegrityError

TARGETS = ("hip:gfx950", "cuda:80", "cuda:90")
EXTREMES = [0, 1, 63, 64, 255, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, (1 << 64) - 1]

pytestmark = pytest.mark.parametrize("target", TARGETS)


def outcome(data):
    """Read a file that may be anything: the facts, or None after one well-formed refusal."""
    found, problems = None, ()
    try:
        found = read(data, "file")
    except IntegrityError as error:
        problems = error.problems
    if found is None:
        assert len(problems) == 1
        assert problems[0].where.startswith("file: ")
        return None
    assert CodeObject.from_json(found.to_json(), "object") == found
    assert found.identity
    return found


@pytest.fixture(scope="module")
def files(build):
    return {target: build("mixed", target).binary for target in TARGETS}


def values(data):
    near = st.integers(-2, 2).map(lambda delta: len(data) + delta)
    return st.sampled_from(EXTREMES) | near | st.integers(0, len(data)) | st.integers(0, (1 << 64) - 1)


@given(st.data())
def test_cut_files(files, target, data):
    original = files[target]
    size = data.draw(st.integers(0, len(original) - 1))
    assert outcome(original[:size]) is None


def test_every_cut_at_a_border_of_a_section(files, target):
    original = files[target]
    for name in edits.section_bases(original):
        start, size = edits.extent(original, name)
        for end in {start, start + 1, start + size // 2, start + size} - {len(original)}:
            assert outcome(original[:end]) is None


@given(st.data())
@settings(max_examples=300)
def test_changed_bytes(files, target, data):
    changed = bytearray(files[target])
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(changed))


@given(st.data())
@settings(max_examples=300)
def test_extreme_numbers_in_headers_and_symbols(files, target, data):
    original = changed = files[target]
    for _ in range(data.draw(st.integers(1, 3))):
        fields, base = data.draw(st.sampled_from(records(original)))
        changed = edits.put(
            changed, data.draw(st.sampled_from(list(fields.values()))), data.draw(values(original)), base
        )
    outcome(changed)


def records(data):
    """Every record of the file: its fields, and where it stands."""
    table = ".dynsym" if ".dynsym" in edits.section_bases(data) else ".symtab"
    first, count = edits.get(data, edits.HEADER["e_phoff"]), edits.get(data, edits.HEADER["e_phnum"])
    return [
        (edits.HEADER, 0),
        *((edits.SECTION, base) for base in edits.section_bases(data).values()),
        *((edits.SEGMENT, first + edits.SEGMENT_BYTES * index) for index in range(count)),
        *((edits.SYMBOL, base) for base in edits.symbol_bases(data, table).values()),
    ]


@given(st.data())
def test_changed_bytes_in_what_the_reader_interprets(files, target, data):
    original = files[target]
    read_closely = [
        name for name in edits.section_bases(original) if name in {".note", ".rodata"} or ".nv.info" in name
    ]
    start, size = edits.extent(original, data.draw(st.sampled_from(read_closely)))
    at = data.draw(st.integers(0, size - 1))
    new = data.draw(st.binary(min_size=1, max_size=min(8, size - at)))
    outcome(edits.splice(original, start + at, new))


def test_sections_that_claim_the_same_bytes(files, target):
    original = files[target]
    bases = edits.section_bases(original)
    placed = [name for name in bases if name and edits.extent(original, name)[1] > 1 and "shared" not in name]
    placed = [name for name in placed if name != ".relro_padding"]
    for name, other in pairwise(placed):
        start, _ = edits.extent(original, other)
        moved = edits.put(original, edits.SECTION["sh_offset"], start + 1, bases[name])
        assert outcome(moved) is None
        with pytest.raises(IntegrityError, match=r"expected bytes (from|inside)"):
            elf.parse(moved, "file")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("e_shoff", 1 << 63, "e_shoff: expected a table between bytes 64 and"),
        ("e_shoff", 8, "e_shoff: expected a table between bytes 64 and"),
        ("e_shnum", 1, "e_shnum: expected 2 to 1024 section headers"),
        ("e_shnum", 0xFFFF, "e_shnum: expected 2 to 1024 section headers"),
        ("e_shentsize", 40, "e_shentsize: expected 64"),
        ("e_shstrndx", 0, "e_shstrndx: expected the index of a string table"),
        ("e_shstrndx", 0xFFFF, "e_shstrndx: expected the index of a string table"),
        ("e_phoff", (1 << 64) - 56, "e_phoff: expected a table between bytes 64 and"),
        ("e_phnum", 0xFFFF, "e_phnum: expected at most 1024 of 56 bytes"),
        ("e_phentsize", 32, "e_phnum: expected at most 1024 of 56 bytes"),
    ],
)
def test_headers_that_cannot_be_right_are_refused_by_name(files, target, field, value, expected):
    with pytest.raises(IntegrityError, match=expected):
        read(edits.put(files[target], edits.HEADER[field], value), "file")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("sh_offset", (1 << 64) - 1, "bytes inside a file of"),
        ("sh_size", (1 << 64) - 1, "bytes inside a file of"),
        ("sh_flags", 1 << 32, "sh_flags: expected 32 bits"),
        ("sh_name", (1 << 32) - 1, "an ASCII name of at most"),
    ],
)
def test_section_headers_that_cannot_be_right_are_refused_by_name(files, target, field, value, expected):
    base = edits.section_bases(files[target])[".symtab"]
    with pytest.raises(IntegrityError, match=rf"file: section\[\d+\].*{expected}"):
        read(edits.put(files[target], edits.SECTION[field], value, base), "file")


@pytest.mark.parametrize("field", ["p_offset", "p_filesz", "p_memsz"])
def test_segments_that_leave_the_file_are_refused(files, target, field):
    base = edits.get(files[target], edits.HEADER["e_phoff"])
    with pytest.raises(IntegrityError, match=r"file: segment\[0\]: expected bytes inside a file of"):
        read(edits.put(files[target], edits.SEGMENT[field], 1 << 40, base), "file")


def test_a_reserved_section_may_not_reserve_without_bound(files, target):
    base = edits.section_bases(files[target])[".symtab"]
    huge = edits.put(files[target], edits.SECTION["sh_type"], 8, base)
    with pytest.raises(IntegrityError, match=r"file: section\[\d+\]: expected bytes inside"):
        read(edits.put(huge, edits.SECTION["sh_size"], 1 << 40, base), "file")


def test_a_section_over_the_elf_header_is_refused(files, target):
    base = edits.section_bases(files[target])[".strtab"]
    with pytest.raises(IntegrityError, match="after the ELF header"):
        read(edits.put(files[target], edits.SECTION["sh_offset"], 8, base), "file")


def test_many_names_for_the_same_bytes_are_refused(files, target):
    """Else a small file could make the reader hash the same large section a thousand times."""
    original = files[target]
    bases = edits.section_bases(original)
    names = [name for name in bases if name and not edits.get(original, edits.SECTION["sh_flags"], bases[name]) & 2]
    grown = original + bytes(len(original))
    for name in names[-4:]:
        grown = edits.put(grown, edits.SECTION["sh_type"], 1, bases[name])
        grown = edits.put(grown, edits.SECTION["sh_offset"], len(original), bases[name])
        grown = edits.put(grown, edits.SECTION["sh_size"], len(original), bases[name])
    with pytest.raises(IntegrityError, match="at most twice the file"):
        read(grown, "file")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "0 bytes beginning with nothing"),
        (b"\x7fELF", "4 bytes beginning with 7f454c46"),
        (b"PK\3\4" + bytes(100), "104 bytes beginning with 504b0304"),
        (b"\x80\x04\x95" + bytes(100), "103 bytes beginning with 800495"),
    ],
)
def test_what_is_no_elf_file_is_shown(target, data, found):
    with pytest.raises(IntegrityError, match=f"file: e_ident: expected an ELF header of 64 bytes, found {found}"):
        read(data, "file")


@pytest.mark.parametrize(("at", "value", "field"), [(4, 1, "EI_CLASS"), (5, 2, "EI_DATA"), (6, 0, "EI_VERSION")])
def test_other_classes_and_byte_orders_are_refused(files, target, at, value, field):
    with pytest.raises(IntegrityError, match=f"file: {field}: expected"):
        read(edits.splice(files[target], at, bytes([value])), "file")


def test_errors_of_the_elf_library_do_not_leave_the_reader(files, target, monkeypatch):
    def broken(*_):
        raise ELFParseError("expected 4, found 3")

    monkeypatch.setattr(elf, "struct_parse", broken)
    with pytest.raises(IntegrityError, match="file: header: expected 1 records Elf_Ehdr, found expected 4"):
        read(files[target], "file")


def test_other_machines_are_refused(files, target):
    with pytest.raises(IntegrityError, match="file: e_machine: expected EM_AMDGPU or EM_CUDA, found EM_X86_64"):
        read(edits.put(files[target], edits.HEADER["e_machine"], 62), "file")


def test_a_file_over_the_limit_is_refused_unread(files, target, monkeypatch):
    monkeypatch.setattr(elf, "MAX_FILE_BYTES", len(files[target]) - 1)
    with pytest.raises(IntegrityError, match="file: size: expected at most"):
        section_bytes(files[target], ".strtab", "file")


def test_two_sections_of_one_name_are_refused(files, target):
    bases = edits.section_bases(files[target])
    name = edits.get(files[target], edits.SECTION["sh_name"], bases[".strtab"])
    with pytest.raises(IntegrityError, match="sh_name: expected a name of its own"):
        read(edits.put(files[target], edits.SECTION["sh_name"], name, bases[".symtab"]), "file")
