"""Statements: one byte sequence for one content, in the form of in-toto."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st
from vouching import GFX942, GFX950, bundle

from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.trust.statement import Audit, Statement, Words

END = datetime(2027, 1, 31, tzinfo=timezone.utc)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
digests = st.binary(max_size=4).map(Digest.of)
tables = st.dictionaries(words, words, max_size=3)
moments = st.datetimes(datetime(2000, 1, 1), timezones=st.just(timezone.utc)).map(
    lambda moment: moment.replace(microsecond=0)
)
audits = st.lists(st.builds(Audit, words, words, digests), max_size=3).map(tuple)


@given(
    st.builds(
        Statement,
        words,
        digests,
        words,
        st.sampled_from((GFX942, GFX950)),
        st.integers(0, (1 << 48) - 1),
        st.none() | moments,
        st.dictionaries(words, digests, max_size=3),
        digests,
        tables,
        tables,
        tables,
        audits,
    )
)
def test_parse_and_to_bytes_are_inverses(statement: Statement) -> None:
    assert Statement.parse(statement.to_bytes(), "x") == statement


def test_the_form_is_that_of_in_toto() -> None:
    data = bundle()
    report = Audit("identity", "clean", Digest.of(b"r"))
    opened = Bundle.decode(data, "x")
    other = Digest.of(b"the other target")
    said = Words(7, (report, report), END, {"pack.gfx950.aotk": other})
    value = json.loads(Statement.about(opened, "pack.gfx942.aotk", said).to_bytes())
    assert value == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "pack.gfx942.aotk", "digest": {"sha256": Digest.of(data).hex}}],
        "predicateType": "https://aotkern.dev/bundle/v2",
        "predicate": {
            "name": "pack",
            "target": "hip:gfx942",
            "sequence": 7,
            "expires": "2027-01-31T00:00:00Z",
            "release": {"pack.gfx942.aotk": str(Digest.of(data)), "pack.gfx950.aotk": str(other)},
            "manifest": str(opened.manifest.digest),
            "toolchain": {"triton": "one"},
            "sources": {},
            "provenance": {"revision": "0" * 40},
            "audits": [["identity", "clean", str(Digest.of(b"r"))]],
        },
    }


def test_a_statement_that_is_so_has_no_mismatch() -> None:
    opened = Bundle.decode(bundle(), "x")
    statement = Statement.about(opened, "pack.gfx942.aotk", Words(7))
    assert not list(statement.mismatches(opened, "x"))
    assert list(statement.mismatches(Bundle.decode(bundle("two"), "x"), "x"))
