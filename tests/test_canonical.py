import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern import canonical
from aotkern.errors import IntegrityError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_reading_gives_back_what_was_written(value):
    text = canonical.dumps(value)
    assert canonical.loads(text.encode(), "x") == value
    assert canonical.dumps(json.loads(text)) == text


def test_there_is_one_text_for_one_value():
    assert canonical.dumps({"b": [1, None, True], "a": "é"}) == '{"a":"é","b":[1,null,true]}'


@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (b'{"a":1,"b":2,"a":3}', "each key once", "'a' more than once"),
        (b'[{"x":{"k":1,"k":1}}]', "each key once", "'k' more than once"),
        (b"[NaN]", "integers only", "NaN"),
        (b"[-Infinity]", "integers only", "-Infinity"),
        (b"[1.0]", "integers only", "1.0"),
        (b"[1e400]", "integers only", "1e400"),
        (b"[" + b"9" * 25 + b"]", "integers of at most 24 digits", "25 digits"),
        (b"9" * 100_000, "integers of at most 24 digits", "100000 digits"),
        (b"", "a JSON document", "JSONDecodeError"),
        (b"{} {}", "a JSON document", "JSONDecodeError"),
        (b"\xff\xfe", "a JSON document", "UnicodeDecodeError"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00.", "a JSON document", "UnicodeDecodeError"),
        (b"[" * 1_000_000, "a JSON document", "RecursionError"),
        (b'{"a":' * 200_000, "a JSON document", "RecursionError"),
        (b'["\\ud800"]', "text that UTF-8 can hold", "a lone surrogate"),
        (b'{"\\udfff":1}', "text that UTF-8 can hold", "a lone surrogate"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_not_plain_json_is_refused(data, expected, found):
    with pytest.raises(IntegrityError) as refused:
        canonical.loads(data, "file.json")
    (problem,) = refused.value.problems
    assert problem.where == "file.json"
    assert problem.expected == expected
    assert problem.found.startswith(found)


def test_size_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(canonical, "MAX_BYTES", 10)
    with pytest.raises(IntegrityError, match="JSON of at most 10 bytes, found 11 bytes"):
        canonical.loads(b'"123456789"', "x")


def test_many_different_keys_before_a_repeated_one_are_no_trap():
    # A search that is quadratic in the number of keys would not come back from this one.
    rows = ",".join(f'"{number}":0' for number in range(400_000))
    with pytest.raises(IntegrityError, match="'399999' more than once"):
        canonical.loads(f'{{{rows},"399999":1}}'.encode(), "x")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_writer_refuses_what_the_reader_would(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical.dumps(value)
