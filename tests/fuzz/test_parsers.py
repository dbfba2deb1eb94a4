"""A part of each parser's fuzzing, the same in every run, and every input that once failed; see `parsers`."""

from __future__ import annotations

import random
import time

import pytest

pytest.importorskip("triton")
pytest.importorskip("cryptography")

import parsers
from mutations import damaged
from parsers import Parser
from seeds import Code

from aotkern.errors import InputError

INPUTS = 60
"""For each parser; `make fuzz` tries thousands."""
TABLE: tuple[str, ...] = (
    *("bundle bytes", "bundle header", "manifest verify", "manifest loader", "manifest eager and lazy", "HSACO"),
    *("cubin", "msgpack note", "trust file", "trust memory", "signature file", "signed payload", "audit report"),
    *("private key", "policy", "workload", "budget", "coverage domain", "lock", "trace", "OCI manifest", "OCI index"),
    *("OCI reference", "variant key", "constant", "target", "JIT events", "recorded rows", "deny list"),
    *("benchmark record", "decoder"),
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parser]:
    folder = tmp_path_factory.mktemp("parsers")
    return {parser.name: parser for parser in parsers.parsers(Code(folder / "code"), folder)}


def test_the_table_is_whole(known):
    assert tuple(known) == TABLE
    assert {slug for slug, _ in parsers.corpus()} <= {parser.slug for parser in known.values()}


@pytest.mark.parametrize("name", TABLE)
def test_no_input_ends_in_anything_but_an_answer(known, name):
    parser = known[name]
    outcomes = {parsers.judge(parser, seed) for seed in parser.seeds}
    assert outcomes == {"accepted"} or (not parser.accepts_seeds and outcomes == {"accepted", "refused"})
    tally = parsers.run(parser, 1, INPUTS, time.process_time() + 60)
    assert tally.inputs == INPUTS
    assert not tally.other, tally.other[:3]
    # Were everything accepted, or nothing looked at, nothing would have been tried.
    assert tally.refused or not parser.refusals


def test_what_once_failed_is_answered(known):
    by_slug = {parser.slug: parser for parser in known.values()}
    outcomes = {(slug, data): parsers.judge(by_slug[slug], data) for slug, data in parsers.corpus()}
    assert len(outcomes) >= 30
    assert set(outcomes.values()) <= {"accepted", "refused"}, outcomes


def _wrong(data: bytes) -> None:
    raise KeyError(data)


def _slow(data: bytes) -> None:
    time.sleep(5)


def _large(data: bytes) -> None:
    assert bytearray(b"x" * (300 << 20))


def _silent(data: bytes) -> None:
    raise InputError(())


def _flooding(data: bytes) -> None:
    raise InputError.one("x", "y", "z" * 100_000)


def _accepting(data: bytes) -> None:
    assert not data, "accepted what nobody signed"


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (_wrong, "KeyError"),
        (_slow, "no answer within"),
        (_large, "MiB more memory"),
        (_silent, "without a word"),
        (_flooding, "characters"),
        (_accepting, "what nobody signed"),
    ],
)
def test_what_is_no_proper_answer_is_found(monkeypatch, call, found):
    monkeypatch.setattr(parsers, "SECONDS", 0.5)
    assert found in parsers.judge(Parser("x", (b"x",), call, (InputError,)), b"x")


def test_equal_seeds_try_equal_inputs(known):
    def some(seed: int) -> list[bytes]:
        made = parsers.inputs(known["budget"], random.Random(seed))
        return [next(made) for _ in range(20)]

    assert some(1) == some(1) != some(2)
    assert damaged(b"x" * 50, random.Random(1)) == damaged(b"x" * 50, random.Random(1))


def test_the_command_prints_the_table(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["parsers", "--seconds", "0.2", "--only", "target", "--seed", "3"])
    assert parsers.main() == 0
    head, line, row = capsys.readouterr().out.splitlines()
    assert head == "| parser | inputs | accepted | refused properly | other |"
    assert row.startswith("| target | ")
    assert row.endswith(" | 0 |")
