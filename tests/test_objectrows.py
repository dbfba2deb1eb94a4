import pickle
from dataclasses import replace

import pytest
from making import hand_made, object_entry

from aotkern import objectrows
from aotkern.bundle import Bundle, encode
from aotkern.digest import Digest
from aotkern.errors import IntegrityError
from aotkern.loader.modules import check_image
from aotkern.manifest import Manifest
from aotkern.objectrows import StoredFacts, cut

DATA = hand_made().to_bytes()
FLAGS = b'"e_flags":1356,'


def lazily(data):
    return Manifest.parse(data, "m.json", lazily=True)


def test_the_rows_are_those_of_the_manifest():
    rest, rows = cut(DATA, "m.json")
    whole = hand_made()
    assert [(digest, size, dict(facts)) for digest, size, facts in rows] == [
        (entry.digest, entry.size, entry.facts) for entry in whole.objects
    ]
    assert b'"objects":[\n],\n"variants":' in rest
    assert b"e_flags" not in rest


def test_a_manifest_read_lazily_is_the_same_manifest():
    manifest = lazily(DATA)
    assert all(isinstance(entry.facts, StoredFacts) for entry in manifest.objects)
    assert manifest == hand_made()
    assert manifest.to_bytes() == DATA
    assert [entry.code for entry in manifest.objects] == [entry.code for entry in hand_made().objects]
    manifest.check("m.json", DATA)
    assert pickle.loads(pickle.dumps(manifest)) == manifest


def test_loading_decodes_nothing(monkeypatch):
    entries = lazily(DATA).objects

    def decode(data, where):
        raise AssertionError(where)

    monkeypatch.setattr(objectrows, "loads", decode)
    assert [entry.loading for entry in entries] == [(0x54C, "first"), (0x54C, "second")]
    with pytest.raises(AssertionError, match=r"m\.json\.objects\[0\]\.code"):
        entries[0].facts["symbol"]


@pytest.mark.parametrize("arguments", [(), hand_made().objects[0].code.arguments], ids=["none", "two"])
@pytest.mark.parametrize("symbol", ["_ZN1a.b$c", 'a"b', "a\\b", "ключ", 'x},"symbol":"y'], ids=repr)
def test_what_loading_takes_is_what_the_facts_say(symbol, arguments):
    entry = object_entry("first", symbol=symbol, arguments=arguments, e_flags=7)
    manifest = replace(hand_made(), objects=(entry, *hand_made().objects[1:]))
    assert lazily(manifest.to_bytes()).objects[0].loading == (7, symbol) == entry.loading


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (FLAGS + FLAGS, "each key once"),
        (b'"e_flags":1356.0,', "integers only"),
        (b'"e_flags":NaN,', "integers only"),
        (b'"e_flags":' + b"1" * 30 + b",", "integers of at most 24 digits"),
        (b'"e_flags":"\\ud800",', "text that UTF-8 can hold"),
        (b'"e_flags":"\xff",', "a JSON document"),
        (b'"e_flags":,', "a JSON document"),
        (b'"e_flags":' + b"[" * 100_000 + b",", "a JSON document"),
        (b'"e_flags":1},"code":{', "a JSON document"),
        (b'"e_flags":1},"digest":"sha256:0","size":0},{"code":{', "a JSON document"),
    ],
    ids=range(10),
)
def test_a_damaged_row_is_refused_when_it_is_looked_at(new, message):
    data = DATA.replace(FLAGS, new, 1)
    manifest = lazily(data)
    for look in (lambda entry: entry.code, lambda entry: entry.arguments, lambda entry: dict(entry.facts)):
        with pytest.raises(IntegrityError, match=message) as refused:
            look(manifest.objects[0])
        assert refused.value.problems[0].where == "m.json.objects[0].code"
    with pytest.raises(IntegrityError, match=message):
        manifest.check("m.json", data)
    with pytest.raises(IntegrityError, match=message):
        manifest.to_bytes()
    assert manifest.objects[1].code.symbol == "second"


@pytest.mark.parametrize("flags", [b'"e_flags":1.5,', b'"e_flags":"1356",', b'"e_flags":[],', b"", b'"e_flags":1e3,'])
def test_the_loader_refuses_a_row_whose_flags_it_cannot_use(flags):
    (entry, _) = lazily(DATA.replace(FLAGS, flags, 1)).objects
    image = b"\x7fELF" + bytes(60)
    with pytest.raises(IntegrityError):
        check_image(entry, image, "b.aotk")


def test_the_loader_refuses_a_row_without_a_symbol():
    (entry, _) = lazily(DATA.replace(b'"symbol":"first"', b'"symbol":3', 1)).objects
    image = b"\x7fELF" + bytes(44) + (0x54C).to_bytes(4, "little")
    with pytest.raises(
        IntegrityError, match=r"b\.aotk: object a7937b64b8ca: symbol: expected a text in the manifest, found 3"
    ):
        check_image(entry, image, "b.aotk")


def test_every_prefix_is_refused_and_nothing_but_refused():
    for size in range(len(DATA) - 1):
        with pytest.raises(IntegrityError):
            lazily(DATA[:size])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"code":{', b'{ "code":{'),
        (b'"size":5}', b'"size":005}'),
        (b'"size":5}', b'"size":5.0}'),
        (b'"size":5}', b'"size":-5}'),
        (b'"size":5}', b'"size":5,"later":1}'),
        (b'"size":5}', b'"size":999999999999999}'),
        (b'"digest":"sha256:', b'"digest":"SHA256:'),
        (b'],\n"variants"', b'] ,\n"variants"'),
        (b'],\n"variants"', b'],\n "variants"'),
        (b'"objects":[\n', b'"objects": [\n'),
        (b'"objects":[\n', b'"objects":[\n\n'),
    ],
    ids=range(11),
)
def test_another_layout_is_read_in_full(old, new):
    at = DATA.index(old, 0 if b'"objects"' in old else DATA.index(b'"objects"'))
    data = DATA[:at] + new + DATA[at + len(old) :]
    assert cut(data, "m.json") == (data, ())
    with pytest.raises(IntegrityError) as lazy:
        lazily(data).check("m.json", data)
    with pytest.raises(IntegrityError) as full:
        Manifest.parse(data, "m.json").check("m.json", data)
    assert lazy.value.problems == full.value.problems


def test_two_rows_in_a_line_are_refused():
    manifest = lazily(DATA.replace(b'},\n{"code"', b'},{"code"', 1))
    with pytest.raises(IntegrityError, match="a JSON document"):
        manifest.check("m.json")


def test_lines_that_stand_elsewhere_are_not_taken_for_code_objects():
    start, end = DATA.index(b'\n"objects":[\n'), DATA.index(b'"variants":[\n')
    planted = DATA[start:end] + b'"variants":[]'
    for place in (b'"toolchain":{', b'"environment":{', b'"options":{'):
        for rest in (DATA, DATA[:start] + b'\n"objects":[],' + DATA[end:]):
            at = rest.index(place) + len(place)
            data = rest[:at] + planted + b"," + rest[at:]
            assert cut(data, "m.json")[1]
            with pytest.raises(IntegrityError):
                lazily(data)


def test_a_manifest_without_code_objects_has_no_rows():
    data = replace(hand_made(), objects=()).to_bytes()
    assert cut(data, "m.json") == (data, ())
    assert lazily(data).objects == ()


def test_a_bundle_whose_rows_are_damaged_opens_and_does_not_verify(monkeypatch):
    image = b"first"
    entry = replace(object_entry("first"), digest=Digest.of(image))
    whole = hand_made()
    variants = tuple(replace(variant, object=entry.digest) for variant in whole.variants)
    manifest = replace(whole, objects=(entry,), variants=variants)
    damaged = manifest.to_bytes().replace(FLAGS, FLAGS + FLAGS, 1)
    monkeypatch.setattr(Manifest, "to_bytes", lambda self: damaged)
    bundle = Bundle.decode(encode(manifest, {entry.digest: image}, {}), "b.aotk")
    assert bundle.object(entry.digest) == image
    with pytest.raises(IntegrityError, match=r"b\.aotk: manifest.*each key once"):
        bundle.verify()
