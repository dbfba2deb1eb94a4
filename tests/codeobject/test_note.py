"""The metadata note of an HSACO: what is decoded, and every kind of document that is refused."""

import struct
import tracemalloc
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.codeobject import elf, note
from aotkern.errors import IntegrityError


@pytest.fixture(scope="module")
def image(build):
    return elf.parse(build("mixed", "hip:gfx950").binary, "file")


def noted(image, body):
    """What the note reader makes of this document."""
    data = struct.pack("<3I8s", 7, len(body), 32, b"AMDGPU") + body + bytes(-len(body) % 4)
    return note.metadata(image, replace(image.sections[0], name=".note", data=memoryview(data)))


PLAIN = st.recursive(
    st.integers(-(1 << 63), (1 << 64) - 1) | st.booleans() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=3), PLAIN, max_size=3))
def test_notes_of_plain_values_are_decoded(image, document):
    assert noted(image, msgpack.packb(document)) == document


@given(st.binary(max_size=64))
def test_notes_of_any_bytes(image, body):
    places = [None]
    try:
        found = noted(image, body)
    except IntegrityError as error:
        places = [problem.where for problem in error.problems]
    assert places == ["file: .note"] or isinstance(found, dict)


def nested(depth):
    document = 1
    for _ in range(depth):
        document = [document]
    return msgpack.packb({"a": document})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (msgpack.packb({"a": msgpack.ExtType(5, b"x")}), "exceeds max_ext_len"),
        (msgpack.packb({"a": msgpack.ExtType(5, b"")}), "ExtType"),
        (msgpack.packb({"a": msgpack.Timestamp(1, 0)}), "max_ext_len|Timestamp"),
        (msgpack.packb({"a": b"x"}), "exceeds max_bin_len"),
        (msgpack.packb({"a": b""}), "bytes"),
        (msgpack.packb({"a": 1.5}), "float"),
        (msgpack.packb({"a": None}), "NoneType"),
        (msgpack.packb({1: 1}), "ValueError"),
        (msgpack.packb([1]), "found list"),
        (b"\x82\xa1a\x01\xa1a\x02", "stands there twice"),
        (b"\x81\x90\x01", "ValueError"),
        (b"\x81\xa1a\xa1\xff", "UnicodeDecodeError"),
        (b"\xc1", "FormatError"),
        (b"\x81\xa1a\x01\x01", "ExtraData"),
        (b"\x81\xa1a", "ValueError"),
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "exceeds max_array_len"),
        (b"\x81\xa1a\xdf\xff\xff\xff\xff", "exceeds max_map_len"),
        (msgpack.packb({"a": "x" * 5000}), "exceeds max_str_len"),
        (nested(note.MAX_DEPTH), "at most 8 levels"),
        (nested(600), "at most 8 levels"),
        (b"\x91" * 100_000 + b"\x01", "StackError"),
    ],
)
def test_documents_outside_the_limits_are_refused(image, body, found):
    with pytest.raises(IntegrityError, match=found):
        noted(image, body)


def test_lists_that_promise_many_items_take_little_memory(image):
    body = struct.pack(">BH", 0xDC, note.MAX_ITEMS) * 100_000
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError):
            noted(image, body)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_note_that_is_too_large_or_not_the_right_one_is_refused(image, monkeypatch):
    whole = struct.pack("<3I8s", 7, 4, 32, b"AMDGPU") + b"\x81\xa1a\x01"

    def refused(data, where):
        with pytest.raises(IntegrityError, match=rf"file: {where}: "):
            note.metadata(image, replace(image.sections[0], name=".note", data=memoryview(data)))

    refused(b"", r"\.note")
    refused(whole[:11], r"\.note/owner")
    refused(whole.replace(b"AMDGPU", b"NVIDIA"), r"\.note/owner")
    refused(whole[:8] + b"\x21" + whole[9:], r"\.note")
    refused(whole + bytes(4), r"\.note/size")
    refused(whole[:-1], r"\.note/size")
    monkeypatch.setattr(note, "MAX_BYTES", 8)
    refused(whole, r"\.note")
