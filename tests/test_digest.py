import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.digest import Digest
from aotkern.errors import InputError

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(st.binary())
def test_parse_and_str_are_inverses(data):
    digest = Digest.of(data)
    assert Digest.parse(str(digest)) == digest
    assert bytes.fromhex(digest.hex) == digest.raw
    assert digest.hex.startswith(digest.short)


def test_it_is_sha256():
    assert str(Digest.of(b"")) == EMPTY
    assert Digest.of(memoryview(b"abc")) == Digest.of(bytearray(b"abc")) == Digest.of(b"abc")


@pytest.mark.parametrize(
    "text",
    [
        "",
        EMPTY[7:],
        EMPTY.upper(),
        EMPTY[:-1],
        EMPTY + "0",
        EMPTY + "\n",
        "md5:" + EMPTY[7:],
        "sha256:" + "g" * 64,
        None,
    ],
)
def test_there_is_one_spelling(text):
    with pytest.raises(InputError) as refused:
        Digest.parse(text, "file: field")
    assert refused.value.problems[0].where == "file: field"
