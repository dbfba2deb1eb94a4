"""Random damage: no crash, no acceptance of what nobody signed."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("cryptography")

from mutations import damaged, in_time
from vouching import NOW, bundle, key, key_table, rule_table, sealed, statement, trust_text

from aotkern.errors import InputError, IntegrityError, TrustError
from aotkern.trust import require
from aotkern.trust.trustfile import Trust

FILE = "pack.gfx942.aotk"
DATA = bundle()
SIGNATURES = sealed(statement(DATA), key(1))
TRUST = trust_text(key_table("a", key(1)), rule_table("a")).encode()
ROUNDS = 10_000


def outcome(data: bytes, signatures: bytes, trust: bytes) -> str:
    try:
        with in_time(10):
            require(data, FILE, signatures, Trust.parse(trust, "trust.toml"), NOW)
    except (InputError, TrustError, IntegrityError) as error:
        return "refused" if str(error) else "refused without a word"
    return "accepted"


def test_what_is_damaged_is_sound_before() -> None:
    assert outcome(DATA, SIGNATURES, TRUST) == "accepted"


def test_mutations_of_a_bundle_are_never_accepted() -> None:
    chance = random.Random(1)
    trials = [changed for _ in range(ROUNDS) if (changed := damaged(DATA, chance)) != DATA]
    assert len(trials) > ROUNDS * 0.9
    assert {outcome(changed, SIGNATURES, TRUST) for changed in trials} == {"refused"}


def test_mutations_of_a_signature_file_are_never_accepted() -> None:
    """Canonical spelling: not even a change that leaves the meaning is overlooked, but for a line that stands twice."""
    chance = random.Random(2)
    trials = [changed for _ in range(ROUNDS) if (changed := damaged(SIGNATURES, chance)) != SIGNATURES]
    assert len(trials) > ROUNDS * 0.9
    assert {outcome(DATA, changed, TRUST) for changed in trials} == {"refused"}


def test_no_mutation_of_a_trust_file_lets_a_stranger_in() -> None:
    """A trust file may be changed into another sound one; none of them trusts a key that was never in it."""
    chance = random.Random(3)
    stranger = sealed(statement(DATA), key(2))
    parsed = 0
    for _ in range(ROUNDS):
        changed = damaged(TRUST, chance)
        assert outcome(DATA, stranger, changed) == "refused"
        try:
            Trust.parse(changed, "trust.toml")
            parsed += 1
        except InputError:
            continue
    assert parsed, "some changes must leave a sound trust file, or nothing was tried"


@pytest.mark.parametrize("seed", range(4, 8))
def test_everything_damaged_at_once_does_not_crash(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS // 20):
        outcome(damaged(DATA, chance), damaged(SIGNATURES, chance), damaged(TRUST, chance))
