"""Machine code side by side."""

from __future__ import annotations

from hand_made import GFX942, SM90
from hypothesis import given
from hypothesis import strategies as st

from aotkern.audit import listing
from aotkern.errors import MissingToolError

NOP, END = (0xBF800000).to_bytes(4, "little"), (0xBF810000).to_bytes(4, "little")
WAIT = (0xBF8C0000).to_bytes(4, "little")


def test_code_is_compared_instruction_by_instruction():
    found = listing.compare(NOP * 9 + END, NOP * 9 + WAIT + END, GFX942)
    assert found == [
        [None, None],
        *[["s_nop 0", "s_nop 0"]] * 3,
        [None, "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)"],
        ["s_endpgm", "s_endpgm"],
    ]


def test_what_is_far_from_every_change_is_left_out_once():
    lines = [str(n) for n in range(40)]
    found = listing.pairs(lines, [*lines[:10], "x", *lines[11:30], *lines[31:]])
    assert [None, None] not in found[1:4]
    assert [place for place, pair in enumerate(found) if pair == [None, None]] == [0, 8, 16]
    assert [pair for pair in found if pair[0] != pair[1]] == [["10", "x"], ["30", None]]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_lines_keep_their_order_and_equal_code_has_no_pairs(old, new):
    found = [pair for pair in listing.pairs(old, new) if pair != [None, None]]

    def inside(part, whole):
        rest = iter(whole)
        return all(line in rest for line in part)

    assert inside([before for before, _ in found if before], old)
    assert inside([after for _, after in found if after], new)
    assert bool(found) == (old != new)


def test_long_comparisons_are_cut():
    found = listing.pairs(["a"] * 1000, ["b"] * 1000)
    assert len(found) == listing.MOST_PAIRS + 1
    assert found[-1] == [None, None]


def test_an_audit_compares_each_pair_once_and_not_too_many(monkeypatch):
    calls = []
    monkeypatch.setattr(listing, "compare", lambda old, new, target: calls.append((old, new)) or [[None, "x"]])
    listings = listing.Listings(GFX942)
    assert listings.details(b"a", b"b") == listings.details(b"a", b"b") == {"instructions": [[None, "x"]]}
    assert calls == [(b"a", b"b")]
    for number in range(listing.MOST_LISTINGS - 1):
        assert "instructions" in listings.details(b"a", str(number).encode())
    assert "left out" in listings.details(b"more", b"code")["no_listing"]


def test_why_there_is_no_listing(monkeypatch):
    assert listing.Listings(SM90).details(b"a", b"b") == {}
    assert "instruction" in listing.Listings(GFX942).details(b"\xff" * 4, NOP)["no_listing"]

    def absent(*_):
        raise MissingToolError("rocm-llvm-python", "to decode", "install it")

    monkeypatch.setattr(listing, "compare", absent)
    answer = listing.Listings(GFX942).details(NOP, END)
    assert answer == {"no_listing": "rocm-llvm-python is needed to decode: install it"}
