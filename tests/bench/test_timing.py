import itertools
from collections import Counter

import pytest

from aotkern.bench import interleaved, ratios, timed
from aotkern.bench.timing import turns
from aotkern.errors import InputError


def test_alternatives_take_turns_and_the_warm_up_is_thrown_away():
    taken, clock, waited = [], itertools.count(), []

    def sampler(name):
        def sample():
            taken.append(name)
            return next(clock)

        return sample

    found = interleaved({name: sampler(name) for name in "abc"}, rounds=6, warm_up=2, before=lambda: waited.append(1))
    rounds = ["".join(taken[place : place + 3]) for place in range(0, 24, 3)]
    assert rounds == ["cab", "bac", "abc", "cba", "bca", "acb", "cab", "bac"]
    assert [len(samples) for samples in found.values()] == [6, 6, 6]
    assert min(min(samples) for samples in found.values()) == 6  # samples 0 to 5 were the warm-up
    assert len(waited) == 24


@pytest.mark.parametrize("count", range(2, 10))
def test_each_follows_each_other_and_the_begin_of_a_round_equally_often(count):
    """No alternative runs on what another one left behind more often than its rivals do."""
    taken = []

    def turn(name):
        taken[-1].append(name)
        return 0.0

    names = [str(number) for number in range(count)]
    rounds = 2 * len(turns(count))
    state = iter(range(10**6))

    def before():
        if next(state) % count == 0:
            taken.append([])

    interleaved({name: lambda name=name: turn(name) for name in names}, rounds, before=before)
    assert all(sorted(order) == sorted(names) for order in taken)
    firsts = Counter(order[0] for order in taken)
    assert set(firsts.values()) == {rounds // count}
    pairs = Counter(pair for order in taken for pair in itertools.pairwise(order))
    assert set(pairs) == set(itertools.permutations(names, 2))
    assert len(set(pairs.values())) == 1


@pytest.mark.parametrize("count", [0, 1])
def test_one_alternative_has_every_turn(count):
    assert turns(count) == (tuple(range(count)),)


def test_a_sample_is_the_time_of_one_call(monkeypatch):
    now = iter([10.0, 14.0])
    monkeypatch.setattr("aotkern.bench.timing.time.perf_counter", lambda: next(now))
    calls = []
    assert timed(lambda: calls.append(1), times=8, scale=1e6)() == 0.5e6
    assert len(calls) == 8


def test_ratios_are_made_round_by_round():
    assert ratios([2, 6], [1, 2]).samples == (2, 3)
    with pytest.raises(InputError, match="as many samples"):
        ratios([1], [1, 2])
