import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.bench import Measurement
from aotkern.bench.measurement import KEPT, median_interval, percentile
from aotkern.errors import InputError

NUMBERS = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)


def test_what_samples_say():
    found = Measurement.of("s", [4, 1, 3, 2, 5], percentiles=(90, 99.9))
    assert (found.count, found.median, found.least, found.most) == (5, 3, 1, 5)
    assert (found.quartiles, found.spread) == ((2, 4), 2)
    assert found.percentiles == ((90, 4.6), (99.9, 4.996))
    assert found.samples == (4, 1, 3, 2, 5)  # as they were taken


@given(st.lists(NUMBERS, min_size=1, max_size=200))
def test_the_median_is_that_of_the_samples(samples):
    found = Measurement.of("s", samples)
    largest = max(map(abs, samples))  # the middle of two samples may be much smaller than what was rounded of each
    assert found.median == pytest.approx(statistics.median(samples), rel=1e-5, abs=1e-9 + 1e-5 * largest)
    assert found.least <= found.quartiles[0] <= found.median <= found.quartiles[1] <= found.most
    assert (len(found.samples) == len(samples)) == (len(samples) <= KEPT)


@given(st.lists(NUMBERS, min_size=1, max_size=100), st.sampled_from([(), (90,), (50, 99.9)]))
def test_json_is_an_inverse(samples, percentiles):
    found = Measurement.of("us", samples, percentiles)
    problems = []
    assert Measurement.from_json(json.loads(json.dumps(found.to_json())), "m", problems) == found
    assert not problems


@pytest.mark.parametrize("samples", [[], [1, math.nan], [math.inf]])
def test_samples_that_say_nothing_are_refused(samples):
    with pytest.raises(InputError, match="finite numbers, at least one"):
        Measurement.of("s", samples)


@pytest.mark.parametrize("field", ["median", "least", "most", "count"])
def test_a_file_cannot_claim_what_its_samples_do_not_say(field):
    document = Measurement.of("s", [1, 2, 3]).to_json()
    document[field] += 1
    problems = []
    Measurement.from_json(document, "m", problems)
    assert [problem.expected for problem in problems] == ["what its samples say"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("median", "3"), ("median", True), ("quartiles", [1]), ("interval", 3), ("samples", [None]), ("unit", "")],
)
def test_wrong_fields_are_named(field, value):
    problems = []
    Measurement.from_json({**Measurement.of("s", [1, 2, 3]).to_json(), field: value}, "m", problems)
    assert problems
    assert all(problem.where.startswith(f"m.{field}") for problem in problems)


def test_percentiles_lie_between_neighbours():
    assert percentile([1, 2], 50) == 1.5
    assert percentile([7], 99) == 7
    assert percentile([1, 2, 3], 0) == 1
    assert percentile([1, 2, 3], 100) == 3


def test_the_interval_is_that_of_the_tables():
    # Published order statistics for a 95 % interval of the median: n = 6: 1 and 6; n = 10: 2 and 9; n = 20: 6 and 15.
    for count, low, high in ((6, 1, 6), (10, 2, 9), (20, 6, 15)):
        assert median_interval(range(1, count + 1)) == (low, high)
    assert median_interval([1, 2, 3, 4, 5]) is None


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = random.Random(0)
    held = 0
    for _ in range(2000):
        low, high = median_interval(sorted(rng.expovariate(1) for _ in range(31)))
        held += low <= math.log(2) <= high
    assert 0.94 < held / 2000 < 0.985
