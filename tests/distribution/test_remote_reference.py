"""References: one spelling, and nothing implied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.digest import Digest
from aotkern.distribution.reference import Reference
from aotkern.errors import InputError

DIGEST = Digest.of(b"x")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost/a:1", ("localhost", "a", "1")),
        ("localhost:5000/team/pack:v1.2_3-x", ("localhost:5000", "team/pack", "v1.2_3-x")),
        ("box:5000/a:1", ("box:5000", "a", "1")),
        ("10.0.0.1/a/b/c:latest", ("10.0.0.1", "a/b/c", "latest")),
        ("[::1]:5000/a:1", ("[::1]:5000", "a", "1")),
        (f"registry.example/a_b/c--d.e@{DIGEST}", ("registry.example", "a_b/c--d.e", DIGEST)),
    ],
)
def test_parse_and_str_are_inverses(text: str, parts: tuple[object, ...]) -> None:
    parsed = Reference.parse(text)
    assert (parsed.registry, parsed.repository, parsed.name) == parts
    assert str(parsed) == text
    assert str(parsed.at(DIGEST)).endswith(f"/{parsed.repository}@{DIGEST}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:1",
        "team/pack:1",  # no default registry
        "registry.example/a",  # no default tag
        "registry.example/a:1@" + str(DIGEST),
        "registry.example/a@sha256:00",
        "registry.example/A:1",
        "registry.example/a//b:1",
        "registry.example/../b:1",
        "registry.example/a:1/../../x",
        "registry.example/a:-1",
        "user@registry.example/a:1",
        "http://registry.example/a:1",
        "registry.example:99999999/a:1",
        "registry.example/a:1\n",
        "registry.example/" + "a" * 600 + ":1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="HOST"):
        Reference.parse(text)


@given(st.text(alphabet="a:/@.-_1[]", max_size=30))
def test_no_text_crashes_it(text: str) -> None:
    try:
        parsed = Reference.parse(text)
    except InputError:
        return
    assert str(parsed) == text
