"""Trust files: what they say, and every way in which one is wrong."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

pytest.importorskip("cryptography")

from vouching import GFX942, key, key_table, rule_table, trust, trust_text

from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.target import Target
from aotkern.tomlfile import MAX_BYTES
from aotkern.trust.trustfile import Trust

A, B = key_table("a", key(1)), key_table("b", key(2))
GOOD = trust_text(
    A, B, rule_table("a b", threshold=2, sequence=7, audits='["identity"]'), revoked=["sha256:" + "0" * 64]
)


def test_every_field_is_read() -> None:
    read = Trust.parse(GOOD.encode(), "trust.toml")
    assert [item.name for item in read.keys.values()] == ["a", "b"]
    first = read.keys[key(1).public.id]
    assert (first.start, first.end) == tuple(datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2026, 2027))
    (rule,) = read.rules
    assert (rule.bundle, rule.target, rule.threshold, rule.sequence, rule.audits) == (
        "pack",
        "hip:*",
        2,
        7,
        ("identity",),
    )
    assert rule.keys == (key(1).public.id, key(2).public.id)
    assert read.revoked == {Digest("0" * 64)}


def test_the_first_rule_that_fits_decides() -> None:
    read = trust(
        A,
        rule_table("a", target='"hip:gfx942"', sequence=1),
        rule_table("a", target='"hip:*"', sequence=2),
        rule_table("a", bundle='"pa*"', target='"*"', sequence=3),
    )

    def chosen(name: str, target: str) -> int | None:
        rule = read.rule(name, Target.parse(target))
        return rule.sequence if rule else None

    assert chosen("pack", "gfx942") == 1
    assert chosen("pack", "gfx942:xnack-") == 2, "a pattern without a star fits one spelling only"
    assert chosen("pack", "gfx950") == 2
    assert chosen("pack", "cuda:90") == 3
    assert chosen("pages", "gfx942") == 3
    assert chosen("Pack", "gfx942") is None
    assert chosen("other", "gfx942") is None


def test_a_key_counts_from_its_first_moment_until_before_its_last() -> None:
    item = trust(A, rule_table("a")).keys[key(1).public.id]
    start, end = item.start, item.end
    assert item.refusal(start) is None
    assert "does not count before" in str(item.refusal(start.replace(year=2025)))
    assert "has not counted since" in str(item.refusal(end))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version = 1", "version = 2", "version = 1"),
        ("version = 1", "version = true", "version = 1"),
        ("version = 1", "", "version = 1"),
        ("version = 1", "version = 1\nsurprise = 1", "exactly the fields"),
        ("version = 1", "version = ", "TOML"),
        ("version = 1", "version = 1\nversion = 1", "TOML"),
        ("version = 1", "a = " + "[" * 5_000, "TOML"),
        ("revoked = [", "revoked = [7, ", "a list of texts"),
        ("revoked = [", 'revoked = ["sha256:00", ', "64 lower-case hex digits"),
        ('name = "a"', 'name = ""', "a text that is not empty"),
        ('name = "a"', 'name = "b"', "each name and each key once"),
        ('name = "a"', "", "exactly the fields"),
        ('id = "sha256:', 'id = "sha512:', "64 lower-case hex digits"),
        (str(key(1).public.id), str(key(3).public.id), "the digest of the key"),
        (str(key(1).public), "MCowBQYDK2VwAyEA", "an ed25519 public key"),
        ("from = 2026-01-01T00:00:00Z", "from = 2026-01-01T00:00:00", "with its offset"),
        ("from = 2026-01-01T00:00:00Z", "from = 2026-01-01", "with its offset"),
        ("from = 2026-01-01T00:00:00Z", 'from = "2026"', "with its offset"),
        ("from = 2026-01-01T00:00:00Z", "from = 2027-01-01T00:00:00Z", "a time after"),
        ('keys = ["a", "b"]', 'keys = ["a", "c"]', "names of keys of this file"),
        ('keys = ["a", "b"]', 'keys = ["a", "a"]', "each once"),
        ('keys = ["a", "b"]', "keys = 1", "a list of texts"),
        ("threshold = 2", "threshold = 0", "from 1 to the 2 keys"),
        ("threshold = 2", "threshold = 3", "from 1 to the 2 keys"),
        ("threshold = 2", "threshold = -1", "an integer from 0"),
        ("threshold = 2", "threshold = 2.0", "an integer from 0"),
        ("threshold = 2", "threshold = true", "an integer from 0"),
        ("threshold = 2", "", "exactly the fields"),
        ("sequence = 7", "sequence = 1e3", "an integer from 0"),
        ('target = "hip:*"', 'target = "h*p:*"', "at most one `[*]`"),
        ('target = "hip:*"', 'target = "hip:[g]*"', "at most one `[*]`"),
        ("[[rule]]", "[[rules]]", "exactly the fields"),
        ("[[key]]", "[key]", "TOML"),
    ],
)
def test_everything_that_is_wrong_is_named(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=expected):
        Trust.parse(GOOD.replace(old, new, 1).encode(), "trust.toml")


def test_the_same_key_under_two_names_is_refused() -> None:
    with pytest.raises(InputError, match="each name and each key once"):
        trust(A, key_table("alias", key(1)), rule_table("a alias", threshold=2))


def test_all_problems_come_at_once() -> None:
    text = GOOD.replace("threshold = 2", "threshold = 9").replace('name = "a"', 'name = ""').replace('"hip:*"', '"?"')
    with pytest.raises(InputError) as caught:
        Trust.parse(text.encode(), "trust.toml")
    assert len(caught.value.problems) >= 3


def test_size_encoding_and_absence(tmp_path: object) -> None:
    from pathlib import Path

    for data, expected in ((b"#" * (MAX_BYTES + 1), "at most"), (b"\xff", "TOML")):
        with pytest.raises(InputError, match=expected):
            Trust.parse(data, "trust.toml")
    with pytest.raises(InputError, match="can be read"):
        Trust.read(Path(str(tmp_path)) / "none.toml")
    assert Trust.parse(GOOD.encode(), "t").rule("pack", GFX942)
