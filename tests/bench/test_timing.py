import itertools

import pytest

from aotkern.bench import interleaved, ratios, timed
from aotkern.errors import InputError


def test_alternatives_take_turns_and_the_warm_up_is_thrown_away():
    turns, clock, waited = [], itertools.count(), []

    def sampler(name):
        def sample():
            turns.append(name)
            return next(clock)

        return sample

    found = interleaved({name: sampler(name) for name in "abc"}, rounds=4, warm_up=2, before=lambda: waited.append(1))
    rounds = ["".join(turns[place : place + 3]) for place in range(0, 18, 3)]
    assert rounds == ["abc", "acb", "cab", "cba", "bca", "bac"]
    assert [len(samples) for samples in found.values()] == [4, 4, 4]
    assert min(min(samples) for samples in found.values()) == 6  # samples 0 to 5 were the warm-up
    assert len(waited) == 18


def test_each_follows_each_other_one():
    turns = []
    interleaved({name: lambda name=name: turns.append(name) or 0.0 for name in "abc"}, rounds=12)
    followers = {pair for pair in itertools.pairwise(turns) if pair[0] != pair[1]}
    assert followers == set(itertools.permutations("abc", 2))


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
