"""Facts of real code objects against what Triton says of them, identity, and the JSON form."""

import json
import subprocess
import sys
from dataclasses import replace

import elf_edits as edits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.codeobject import Argument, CodeObject, Resources, Role, Section, read, section_bytes
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError
from aotkern.target import Target

TARGETS = ("hip:gfx942", "hip:gfx950", "cuda:80", "cuda:90")
KERNELS = ("mixed", "product")

DIGESTS = st.binary(max_size=4).map(Digest.of)
NAMES = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=12)
COUNTS = st.integers(0, (1 << 48) - 1)
SECTIONS = st.builds(Section, NAMES, st.sampled_from(Role), COUNTS, DIGESTS, st.integers(0, (1 << 32) - 1))
OBJECTS = st.builds(
    CodeObject,
    target=st.sampled_from(["hip:gfx942:sramecc+:xnack-", "hip:gfx950", "cuda:90"]).map(Target.parse),
    symbol=NAMES,
    e_flags=st.integers(0, (1 << 32) - 1),
    abi_version=st.integers(0, 255),
    sections=st.lists(SECTIONS, max_size=5, unique_by=lambda item: item.name).map(
        lambda items: tuple(sorted(items, key=lambda item: item.name))
    ),
    resources=st.builds(Resources, *[COUNTS] * 9),
    arguments=st.lists(st.builds(Argument, COUNTS, COUNTS, NAMES), max_size=4).map(tuple),
    kernarg_bytes=COUNTS,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_facts_agree_with_what_triton_says(build, kernel, target):
    built = build(kernel, target)
    found = read(built.binary, "k")
    assert found.target == Target.parse(target)
    assert found.symbol == built.metadata.name == kernel
    assert found.resources.wave == built.metadata.target.warp_size
    assert found.resources.max_threads == built.metadata.num_warps * built.metadata.target.warp_size
    assert found.resources.vgprs > 0
    assert found.code_bytes > 0
    roles = {section.role for section in found.sections}
    assert {str(role) for role in roles} <= {"code", "descriptor", "metadata", "linkage", "debug"}
    assert {Role.CODE, Role.DESCRIPTOR, Role.DEBUG} <= roles


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_keep_the_width_of_scalars_and_end_with_two_scratch_pointers(build, target):
    found = read(build("mixed", target).binary, "k")
    places = [(item.offset, item.size) for item in found.arguments]
    assert places == [(0, 8), (8, 4), (12, 1), (16, 8), (24, 4), (32, 8), (40, 8)]
    assert found.kernarg_bytes == 48
    assert found.hidden_arguments == ()
    if target.startswith("hip"):
        kinds = [item.kind for item in found.arguments]
        assert kinds == ["global_buffer"] + ["by_value"] * 4 + ["global_buffer"] * 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_line_information_changes_bytes_but_not_identity(build, kernel, target):
    plain, lined = build(kernel, target), build(kernel, target, line_info=True)
    assert plain.binary != lined.binary
    first, second = read(plain.binary, "plain"), read(lined.binary, "lined")
    assert first.identity == second.identity
    debug = [item.name for item in second.sections if item.role is Role.DEBUG]
    assert ".debug_line" in debug


@pytest.mark.parametrize("target", ["hip:gfx942", "hip:gfx950"])
def test_identity_sees_a_wave_limit(build, target):
    plain, limited = (read(build("product", target, waves_per_eu=waves).binary, "k") for waves in (0, 2))
    assert plain.identity != limited.identity


@pytest.mark.parametrize(
    "change",
    [
        {"e_flags": 0x74C},
        {"abi_version": 4},
        {"symbol": "other"},
        {"target": Target.parse("hip:gfx942:xnack-")},
    ],
)
def test_identity_covers_the_header(build, change):
    found = read(build("mixed", "hip:gfx942").binary, "k")
    assert replace(found, **change).identity != found.identity


@given(OBJECTS.filter(lambda found: found.sections), st.data())
def test_identity_covers_each_section_that_can_change_what_runs_and_no_other(found, data):
    place = data.draw(st.integers(0, len(found.sections) - 1))
    old = found.sections[place]
    new = replace(old, digest=Digest.of(old.digest.raw))
    changed = replace(found, sections=(*found.sections[:place], new, *found.sections[place + 1 :]))
    assert (changed.identity != found.identity) == old.role.identifies


@given(OBJECTS)
def test_json_round_trip_survives_canonical_spelling(found):
    text = json.dumps(found.to_json(), sort_keys=True)
    assert CodeObject.from_json(json.loads(text), "object") == found
    assert json.dumps(found.to_json()) == json.dumps(CodeObject.from_json(json.loads(text), "object").to_json())


@pytest.mark.parametrize("target", TARGETS)
def test_json_round_trip_of_a_real_object(build, target):
    found = read(build("product", target).binary, "k")
    again = CodeObject.from_json(json.loads(json.dumps(found.to_json())), "object")
    assert again == found
    assert again.identity == found.identity


def test_from_json_names_every_problem_at_once(build):
    value = read(build("mixed", "hip:gfx942").binary, "k").to_json()
    value["target"] = "hip:gfx9999"
    value["e_flags"] = -1
    value["resources"]["vgprs"] = True
    value["arguments"][1] = [8, 4]
    value["sections"][".text"][0] = "kode"
    value["sections"][".note"][2] = "sha256:12"
    with pytest.raises(InputError) as caught:
        CodeObject.from_json(value, "manifest: object")
    places = [problem.where for problem in caught.value.problems]
    assert sorted(places) == sorted(
        [
            "manifest: object.target",
            "manifest: object.e_flags",
            "manifest: object.resources.vgprs",
            "manifest: object.arguments[1]",
            "manifest: object.sections[.text].0",
            "manifest: object.sections[.note].2",
        ]
    )


@pytest.mark.parametrize("name", ["target", "sections", "resources"])
def test_from_json_refuses_missing_and_unknown_fields(build, name):
    value = read(build("mixed", "hip:gfx942").binary, "k").to_json()
    without = {key: item for key, item in value.items() if key != name}
    for wrong in (without, {**value, "more": 1}):
        with pytest.raises(InputError, match="exactly the fields"):
            CodeObject.from_json(wrong, "object")


@given(JSON, st.sampled_from(["", "target", "symbol", "e_flags", "resources", "arguments", "sections"]))
def test_from_json_answers_any_json_with_an_input_error(value, name):
    form = CodeObject(Target.parse("gfx942"), "k", 0, 3, (), Resources(*[0] * 9), (), 0).to_json()
    found, problems = None, ()
    try:
        found = CodeObject.from_json({**form, name: value} if name else value, "object")
    except InputError as error:
        problems = error.problems
    assert problems or CodeObject.from_json(found.to_json(), "object") == found


def test_section_bytes_are_those_of_the_file(build):
    data = build("mixed", "hip:gfx950").binary
    start, size = edits.extent(data, ".text")
    assert section_bytes(data, ".text", "k") == data[start : start + size]
    assert section_bytes(data, ".relro_padding", "k") == b""
    with pytest.raises(IntegrityError, match=r"k: sections: expected a section \.nothing"):
        section_bytes(data, ".nothing", "k")


def test_importing_the_room_imports_no_elf_reader_no_msgpack_and_no_compiler():
    code = (
        "import sys, aotkern.codeobject;"
        "print([n for n in ('elftools', 'msgpack', 'triton', 'torch', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_imports_neither_the_dwarf_readers_nor_a_compiler(build, tmp_path):
    path = tmp_path / "k.hsaco"
    path.write_bytes(build("mixed", "hip:gfx942").binary)
    code = (
        "import sys, pathlib, aotkern.codeobject as c; c.read(pathlib.Path(sys.argv[1]).read_bytes(), 'k');"
        "print([n for n in ('elftools.dwarf.dwarfinfo', 'triton', 'torch', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
