"""A part of the corpus: by a fixed seed, or by the one in AOTKERN_CORPUS_SEED. `make corpus` runs all of it."""

from __future__ import annotations

import os
import random

import pytest
from corpus import CONFIGURATIONS
from corpus.runner import outcome

SEED = int(os.environ.get("AOTKERN_CORPUS_SEED", "1"))
EACH_KIND = 2


def _chosen() -> list[tuple[int, str]]:
    """Some configurations of each kind, on one target each."""
    rng = random.Random(SEED)
    kinds: dict[str, list[int]] = {}
    for place, one in enumerate(CONFIGURATIONS):
        if not one.refused:
            kinds.setdefault(one.kind, []).append(place)
    return [
        (place, rng.choice(("gfx942", "gfx950")))
        for places in kinds.values()
        for place in rng.sample(places, min(EACH_KIND, len(places)))
    ]


def test_the_corpus_is_large() -> None:
    assert len(CONFIGURATIONS) >= 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "arch"), [pytest.param(*one, id=f"{CONFIGURATIONS[one[0]].name}, {one[1]}") for one in _chosen()]
)
def test_a_part_of_the_corpus(place: int, arch: str) -> None:
    found = outcome(CONFIGURATIONS[place], arch, SEED)
    assert (found.state, found.detail, found.static) == ("right", "", ())
