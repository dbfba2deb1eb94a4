"""Two pieces of AMD machine code side by side, as disassembled lines: what changed, with a few lines around it.

For people who look into a difference; nothing is judged by it. Without a disassembler, or where the bytes are no
instructions that it knows, a comparison goes on and says why there is no listing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from aotkern.errors import EmulatorError, MissingToolError
from aotkern.target import Backend, Target

Pair = list[str | None]
"""`[before, after]`: None on one side where it has no such line, None on both where equal lines are left out."""

CONTEXT = 3
"""Equal lines that are kept around each change."""

MOST_PAIRS = 400
"""Pairs of one comparison; what follows is left out."""

MOST_LISTINGS = 40
"""Different pairs of code that one audit lists; lining up two long listings takes a second or so."""


class Listings:
    """The listings of one audit, each pair of code compared once however many variants share it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[tuple[bytes, bytes], dict[str, Any]] = {}

    def details(self, before: bytes, after: bytes) -> dict[str, Any]:
        """`instructions`, the pairs; or `no_listing`, why there are none; empty for targets without a disassembler."""
        if self._target.backend is not Backend.HIP:
            return {}
        if (before, after) not in self._known:
            if len(self._known) == MOST_LISTINGS:
                return {"no_listing": f"{MOST_LISTINGS} different listings are shown, more are left out"}
            self._known[before, after] = self._compare(before, after)
        return self._known[before, after]

    def _compare(self, before: bytes, after: bytes) -> dict[str, Any]:
        try:
            return {"instructions": compare(before, after, self._target)}
        except (EmulatorError, MissingToolError) as error:
            return {"no_listing": str(error)}


def compare(before: bytes, after: bytes, target: Target) -> list[Pair]:
    """The differences of two `.text` sections.

    Raises:
        EmulatorError: Something in them is no instruction of the target.
        MissingToolError: The disassembler is not installed.
    """
    from aotkern.emulator.disassembler import disassemble  # noqa: PLC0415 - an optional extra

    old, new = ([instruction.text for instruction in disassemble(text, target)] for text in (before, after))
    return pairs(old, new)


def pairs(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """The differences of two listings, at most `MOST_PAIRS` and a mark for the rest."""
    found = list(_pairs(old, new))
    return found if len(found) <= MOST_PAIRS else [*found[:MOST_PAIRS], [None, None]]


def _pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[Pair]:
    at = 0
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        if group[0][1] > at:
            yield [None, None]
        for _, first, last, begin, end in group:
            yield from (list(pair) for pair in zip_longest(old[first:last], new[begin:end]))
        at = group[-1][2]
    if at < len(old):
        yield [None, None]
