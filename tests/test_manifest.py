import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import GFX942, GFX950, hand_made, object_entry

from aotkern import canonical
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError
from aotkern.escape import visible
from aotkern.manifest import KernelEntry, Launch, Manifest, VariantEntry, options_name
from aotkern.spec import Constant, Fixed, Group, Parameter, Runtime, VariantKey

GOLDEN = Path(__file__).parent / "data" / "manifest.json"


def changed(change, manifest=None):
    """The bytes of a manifest whose JSON value was changed by hand, in whatever spelling."""
    value = json.loads((manifest or hand_made()).to_bytes())
    change(value)
    return json.dumps(value).encode()


def problems(data):
    with pytest.raises(IntegrityError) as refused:
        Manifest.parse(data, "m.json").check("m.json")
    return [str(problem) for problem in refused.value.problems]


def test_the_golden_file():
    # A difference here is a new format version, or a mistake.
    assert hand_made().to_bytes() == GOLDEN.read_bytes()


def test_the_golden_file_reads_as_what_it_was_made_from():
    data = GOLDEN.read_bytes()
    manifest = Manifest.parse(data, str(GOLDEN))
    manifest.check(str(GOLDEN), data)
    assert manifest == hand_made()
    assert manifest.digest == Digest.of(data)


def test_a_variant_is_a_line_so_that_a_diff_can_be_read():
    lines = GOLDEN.read_text().splitlines()
    for variant in hand_made().variants:
        (line,) = [line for line in lines if f'"key":{json.dumps(variant.text)}' in line]
        assert json.JSONDecoder().raw_decode(line)[0]["key"] == variant.text
    assert sum('"key":' in line for line in lines) == 3
    assert sum(line.startswith('{"code":') for line in lines) == 2


def test_the_order_of_the_parts_does_not_matter():
    whole = hand_made()
    again = Manifest.make(
        whole.target,
        dict(reversed(whole.toolchain.items())),
        whole.environment,
        whole.kernels[::-1],
        {entry.digest: entry for entry in (*whole.objects[::-1], object_entry("unused"))},
        [(variant, whole.options[variant.options]) for variant in whole.variants[::-1]],
    )
    assert again.to_bytes() == whole.to_bytes()


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
CONSTANTS = (st.integers(-(10**9), 10**9) | st.floats() | st.text(max_size=4) | st.booleans() | st.none()).map(
    Constant.of
)
LEAVES = (
    st.builds(Runtime, st.sampled_from(("i32", "*fp32", "*kbf16", "fp64", "u1")), st.booleans())
    | CONSTANTS.map(Fixed)
    | st.lists(CONSTANTS.map(Fixed), max_size=2).map(lambda items: Group(tuple(items)))
)
LAUNCHES = st.builds(
    Launch,
    *(st.integers(0, 1 << 20),) * 3,
    st.booleans(),
    st.booleans(),
    *(st.integers(0, 1 << 39),) * 4,
)
PLAIN = st.text(max_size=8).map(visible)
TEXTS = st.dictionaries(PLAIN.filter(bool), PLAIN, max_size=3)


@st.composite
def manifests(draw):
    kernels, variants, objects = [], [], {}
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        parameters = draw(st.lists(NAMES, unique=True, max_size=3))
        kernels.append(KernelEntry(name, tuple(map(Parameter, parameters)), Digest.of(name.encode())))
        specs = st.tuples(*(LEAVES for _ in parameters))
        for chosen in draw(st.lists(specs, min_size=1, max_size=3, unique_by=lambda spec: tuple(map(str, spec)))):
            options = dict(sorted(draw(st.dictionaries(NAMES, CONSTANTS, max_size=2)).items()))
            text = str(VariantKey(name, GFX942, tuple(zip(parameters, chosen, strict=True)), tuple(options.items())))
            entry = object_entry(draw(st.sampled_from("abc")))
            objects[entry.digest] = entry
            variant = VariantEntry(text, Digest.of(text.encode()), entry.digest, draw(LAUNCHES), "")
            variants.append((variant, options))
    return Manifest.make(GFX942, draw(TEXTS), draw(TEXTS), kernels, objects, variants)


@given(manifests())
def test_reading_gives_back_what_was_written(manifest):
    data = manifest.to_bytes()
    again = Manifest.parse(data, "x")
    again.check("x", data)
    assert again == manifest
    assert again.to_bytes() == data
    assert list(again.by_text) == sorted(again.by_text)


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_another_version_is_refused_by_number(version):
    (problem,) = problems(changed(lambda value: value.update(version=version)))
    assert (
        problem == f"m.json: format: expected 'aotkern.manifest' version 1, found 'aotkern.manifest' version {version}"
    )


@pytest.mark.parametrize("data", [b"[]", b"3", b'"x"', b"null", b"{}", b'{"format":"other","version":1}'])
def test_what_is_no_manifest_is_refused(data):
    (problem,) = problems(data)
    assert problem.startswith("m.json: format: expected 'aotkern.manifest' version 1")


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ((), "m.json"),
        (("kernels", 0), "m.json.kernels[0]"),
        (("objects", 0), "m.json.objects[0]"),
        (("objects", 0, "code"), "m.json: object "),
        (("objects", 0, "code", "resources"), "m.json: object "),
        (("variants", 1), "m.json.variants[1]"),
        (("variants", 1, "launch"), "m.json.variants[1].launch"),
    ],
    ids=str,
)
def test_an_unknown_field_is_refused_wherever_it_stands(place, where):
    def add(value):
        for step in place:
            value = value[step]
        value["later"] = 1

    (problem,) = problems(changed(add))
    assert problem.startswith(where)
    assert "later" in problem


@pytest.mark.parametrize("name", ["target", "toolchain", "environment", "options", "kernels", "objects", "variants"])
def test_a_missing_field_is_refused(name):
    found = problems(changed(lambda value: value.pop(name)))
    assert found[0].startswith("m.json: expected exactly the fields format, version, target")


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [[]], {"a": []}, [{}], -1, True], ids=repr)
@pytest.mark.parametrize(
    "name", ["target", "toolchain", "environment", "options", "kernels", "objects", "variants", "parameters", "launch"]
)
def test_junk_in_the_place_of_any_part_is_refused(name, junk):
    def spoil(value):
        inner = {"parameters": value["kernels"][0], "launch": value["variants"][0]}.get(name, value)
        inner[name] = junk

    if name in ("toolchain", "environment") and junk == {}:
        Manifest.parse(changed(spoil), "m.json").check("m.json")  # nothing said is no contradiction
    else:
        assert all(problem.startswith("m.json") for problem in problems(changed(spoil)))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda v: v["variants"].reverse(), "variants sorted by key"),
        (lambda v: v["objects"].reverse(), "their objects in order of first use"),
        (lambda v: v["variants"].append(v["variants"][-1]), "each entry once, found copy[hip:gfx942]"),
        (lambda v: v["objects"].append(v["objects"][-1]), "each entry once, found sha256:"),
        (lambda v: v["kernels"].append(v["kernels"][-1]), "each entry once, found copy 2 times"),
        (lambda v: v["kernels"].pop(), "a kernel from the list, found 'copy'"),
        (
            lambda v: v["kernels"].append({**v["kernels"][0], "name": "other"}),
            "a variant of every kernel, found none of",
        ),
        (lambda v: v["options"].popitem(), "options from the table"),
        (lambda v: v["options"].update({"000000000000": {}}), "the name"),
        (lambda v: v["options"].update({options_name({}): {}}), "a variant with every set of options, found none with"),
        (lambda v: v["objects"].pop(), "their objects in order of first use"),
        (lambda v: v["variants"][0].update(object=str(Digest.of(b"elsewhere"))), "their objects in order of first use"),
        (lambda v: v.update(target="hip:gfx950"), "the target hip:gfx950, found hip:gfx942"),
        (lambda v: v["objects"][0]["code"].update(target="hip:gfx950"), "code for hip:gfx942, found hip:gfx950"),
        (lambda v: v["kernels"][1]["parameters"][0].__setitem__(0, "y"), "the parameters of its kernel in order"),
        (lambda v: v["variants"][2].update(key="copy[hip:gfx942](x:*bf99)"), "one of i1, u1"),
        (lambda v: v["variants"][2].update(key="../../x"), "expected"),
        (lambda v: v["variants"][2]["launch"].update(shared=-1), "an integer from 0 to 2^40-1, found -1"),
        (lambda v: v["variants"][2]["launch"].update(shared=1 << 60), "an integer from 0 to 2^40-1"),
        (lambda v: v["objects"][0].update(size=1 << 50), "an integer from 0 to 2^48-1"),
        (lambda v: v["objects"][0].update(code=[]), "exactly the fields target, symbol"),
        (
            lambda v: v["objects"][0]["code"]["sections"].update({".text": ["code", 64]}),
            "exactly the fields 0, 1, 2, 3",
        ),
        (lambda v: v["objects"][0]["code"]["sections"][".text"].__setitem__(0, "soul"), "one of code, descriptor"),
    ],
    ids=range(23),
)
def test_parts_that_do_not_fit_together_are_refused(spoil, expected):
    found = problems(changed(spoil))
    assert any(expected in problem for problem in found), found
    assert all(problem.startswith("m.json") for problem in found), found


def test_all_problems_are_told_at_once():
    def spoil(value):
        value["objects"][0]["code"]["e_flags"] = -1
        value["objects"][1]["code"]["symbol"] = ""
        value["variants"][0]["options"] = "nowhere"

    assert len(problems(changed(spoil))) == 3


def test_another_spelling_of_the_same_manifest_is_refused():
    data = changed(lambda value: None)
    with pytest.raises(IntegrityError, match="the canonical spelling of this manifest"):
        Manifest.parse(data, "m.json").check("m.json", data)


def test_a_bare_target_is_another_spelling():
    data = hand_made().to_bytes().replace(b'"target":"hip:gfx942",\n', b'"target":"gfx942",\n', 1)
    with pytest.raises(IntegrityError, match="the canonical spelling of this manifest"):
        Manifest.parse(data, "m.json").check("m.json", data)


def test_a_manifest_too_large_to_be_one_is_not_read(monkeypatch):
    monkeypatch.setattr(canonical, "MAX_BYTES", 100)
    with pytest.raises(IntegrityError, match=r"m\.json: expected JSON of at most 100 bytes"):
        Manifest.parse(hand_made().to_bytes(), "m.json")


def test_look_ups_name_what_is_there():
    manifest = hand_made()
    assert manifest.kernel("add").parameters[1].type == "i64"
    with pytest.raises(InputError, match="kernel: expected one of add, copy, found 'other'"):
        manifest.kernel("other")
    with pytest.raises(InputError, match="the digest of one of its code objects"):
        manifest.object(Digest.of(b"elsewhere"))


def test_facts_of_a_code_object_come_back_as_they_were():
    (entry, *_) = hand_made().objects
    assert entry.code == CodeObject.from_json(json.loads(json.dumps(entry.facts)), "x")
    assert entry.code.symbol == "first"


@pytest.mark.parametrize("item", fields(Launch), ids=lambda item: item.name)
def test_every_launch_fact_is_stored(item):
    plain = Launch(0, 4)
    other = replace(plain, **{item.name: True if isinstance(getattr(plain, item.name), bool) else 77})
    whole = hand_made()
    rows = [(replace(v, launch=other), whole.options[v.options]) for v in whole.variants]
    objects = {entry.digest: entry for entry in whole.objects}
    manifest = Manifest.make(GFX942, {}, {}, whole.kernels, objects, rows)
    assert Manifest.parse(manifest.to_bytes(), "x").variants[0].launch == other
    assert manifest.digest != replace(manifest, target=GFX950).digest
