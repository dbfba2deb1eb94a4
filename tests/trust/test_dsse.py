"""Envelopes: the encoding of the DSSE specification, round trips, and every spelling that is refused."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.digest import Digest
from aotkern.errors import TrustError
from aotkern.trust import dsse
from aotkern.trust.dsse import Envelope, Signature

ONE = Envelope("text/plain", b"payload", (Signature(Digest.of(b"a key"), b"\x01" * 64),))

envelopes = st.builds(
    Envelope,
    st.from_regex(r"[!-~]{1,40}", fullmatch=True),
    st.binary(min_size=1, max_size=60),
    st.lists(
        st.builds(Signature, st.binary(max_size=4).map(Digest.of), st.binary(min_size=1, max_size=70)),
        min_size=1,
        max_size=4,
        unique_by=lambda item: item.key,
    ).map(tuple),
)


def test_the_encoding_is_that_of_the_specification() -> None:
    # The example of the DSSE protocol text, version 1.
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == expected


def test_type_and_payload_cannot_trade_bytes() -> None:
    assert dsse.pae("a", b"b 1 c") != dsse.pae("a 5 b", b"c")
    assert dsse.pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 ", "lengths count bytes"


@given(st.lists(envelopes, min_size=1, max_size=3, unique_by=lambda item: (item.payload_type, item.payload)))
def test_a_file_reads_back(given_envelopes: list[Envelope]) -> None:
    assert dsse.parse(dsse.to_bytes(given_envelopes), "x.sig") == tuple(given_envelopes)


def test_files_put_behind_each_other_are_one_statement_with_all_signatures() -> None:
    other = Envelope(ONE.payload_type, ONE.payload, (Signature(Digest.of(b"another key"), b"\x02" * 64),))
    (merged,) = dsse.parse(ONE.to_line() + other.to_line(), "x.sig")
    assert merged.signatures == ONE.signatures + other.signatures


def changed(**fields: object) -> bytes:
    value = {**json.loads(ONE.to_line()), **fields}
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


SIGNATURE = {"keyid": str(Digest.of(b"a key")), "sig": base64.b64encode(b"\x01" * 64).decode()}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "1 to 32 lines"),
        (ONE.to_line()[:-1], "line feed"),
        (ONE.to_line() + b"\n", "JSON"),
        (ONE.to_line() * 33, "1 to 32 lines"),
        (b" " + ONE.to_line(), "canonical JSON"),
        (ONE.to_line().replace(b":", b": ", 1), "canonical JSON"),
        (b"[]\n", "exactly the fields"),
        (b"\xff\n", "JSON"),
        (b"\x80\x04N.\n", "JSON"),
        (b"[" * 100_000 + b"\n", "JSON"),
        (b'{"payload":' + b"9" * 5_000 + b"}\n", "at most 24 digits"),
        (b'{"payload":1,"payload":1}\n', "each key once"),
        (b'{"payload":NaN}\n', "integers only"),
        (changed(extra=1), "exactly the fields"),
        (changed(payload=""), "not empty"),
        (changed(payload="YQ"), "base64"),
        (changed(payload="YR=="), "base64"),
        (changed(payload="Y Q=="), "base64"),
        (changed(payload="-_-_"), "base64"),
        (changed(payload=["YQ=="]), "a text"),
        (changed(payloadType=""), "a media type"),
        (changed(payloadType="a b"), "a media type"),
        (changed(payloadType="a\ud800"), "a media type|UTF-8"),
        (changed(payloadType=7), "a text"),
        (changed(signatures=[]), "1 to 32 signatures"),
        (changed(signatures=[SIGNATURE, SIGNATURE]), "each key once"),
        (changed(signatures=[SIGNATURE] * 33), "1 to 32 signatures"),
        (changed(signatures={"0": SIGNATURE}), "a list"),
        (changed(signatures=[{"sig": SIGNATURE["sig"]}]), "exactly the fields keyid, sig"),
        (changed(signatures=[{**SIGNATURE, "keyid": ""}]), "not empty"),
        (changed(signatures=[{**SIGNATURE, "keyid": "SHA256:00"}]), "64 lower-case hex digits"),
        (b"x" * (dsse.MAX_BYTES + 1), "at most"),
    ],
)
def test_anything_else_is_refused_by_name(data: bytes, expected: str) -> None:
    with pytest.raises(TrustError, match=expected) as caught:
        dsse.parse(data, "x.sig")
    assert all(problem.where.startswith("x.sig") for problem in caught.value.problems)
