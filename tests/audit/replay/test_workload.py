"""Lengths, workloads and the scheduler: numbers alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.audit.replay.lengths import Stream
from aotkern.audit.replay.scheduler import Chunk, Step, steps
from aotkern.audit.replay.workload import Limits, Request, Workload
from aotkern.errors import InputError

CANONICAL = Path(__file__).parents[3] / "audits" / "workloads" / "8k-1k.toml"


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_lengths_are_numpys(seed):
    numpy = pytest.importorskip("numpy")
    stream, legacy = Stream(seed), numpy.random.RandomState(seed)
    for low, high in ((6553, 8193), (0, 2), (5, 6), (1, 1 << 20)):
        assert stream.integers(low, high, 50) == tuple(legacy.randint(low, high, size=50))


def test_the_canonical_workload_has_the_published_token_counts():
    workload = Workload.read(CANONICAL)
    scored = workload.requests.drawn(workload.requests.scored, workload.requests.seed)
    assert sum(request.prompt for request in scored) == 4_727_544
    assert sum(request.output for request in scored) == 589_927
    assert min(request.prompt for request in scored) >= 6553
    assert workload.limits.captured(41) == 48
    assert workload.limits.captured(513) is None
    assert [arm.name for arm in workload.arms] == ["legacy", "despecialised", "bundle"]


def test_a_prompt_that_does_not_fit_is_cut_and_generation_goes_first():
    served = list(steps([Request(10, 2), Request(3, 3)], Limits(8, 4, ()), concurrency=2))
    assert served == [
        Step((Chunk(0, 8),), ()),
        Step((Chunk(8, 2), Chunk(0, 3)), ()),
        Step((), (10, 3)),
        Step((), (4,)),
    ]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12)), min_size=1, max_size=25),
    tokens=st.integers(1, 40),
    sequences=st.integers(1, 8),
    concurrency=st.integers(1, 8),
)
def test_every_token_is_served_once_within_the_limits(lengths, tokens, sequences, concurrency):
    requests = [Request(*pair) for pair in lengths]
    served = list(steps(requests, Limits(tokens, sequences, ()), concurrency))
    assert sum(chunk.tokens for step in served for chunk in step.chunks) == sum(r.prompt for r in requests)
    # The first generated token comes out of the step that ends the prompt.
    assert sum(step.rows for step in served) == sum(r.output - 1 for r in requests)
    assert all(0 < step.tokens <= tokens for step in served)
    assert all(len(step.chunks) + step.rows <= min(sequences, concurrency) for step in served)
    starts = Counter(chunk.start for step in served for chunk in step.chunks)
    assert starts[0] == len(requests)


VALUES = {
    "version": 1,
    "name": "w",
    "server": "m",
    "requests": {"input": 8, "output": 2, "range_ratio": 1.0, "seed": 0, "warmup": 0, "scored": 1, "concurrency": 1},
    "scheduler": {"batched_tokens": 8, "sequences": 1, "captured_rows": [1, 2]},
    "settings": {"heads": 16, "design": "gfx950"},
    "arms": {"a": {"target": "gfx942", "kind": "jit", "settings": {"design": "gfx942"}}},
}


def test_an_arm_adds_its_settings_to_the_common_ones():
    workload = Workload.from_values(VALUES, "w.toml")
    assert workload.arm("a").settings == {"heads": 16, "design": "gfx942"}
    with pytest.raises(InputError, match="one of a"):
        workload.arm("b")


def test_every_problem_of_a_workload_is_said_at_once():
    bad = {
        **VALUES,
        "version": 2,
        "requests": {**VALUES["requests"], "range_ratio": 2, "scored": 0},
        "scheduler": {"batched_tokens": 0, "sequences": 1, "captured_rows": [2, 1]},
        "arms": {"a": {"target": "gfx1", "kind": "magic"}},
        "sweep": [{"prompts": []}],
    }
    with pytest.raises(InputError) as caught:
        Workload.from_values(bad, "w")
    places = {problem.where for problem in caught.value.problems}
    assert places == {
        "w: version",
        "w: requests.range_ratio",
        "w: requests.scored",
        "w: scheduler.captured_rows",
        "w: scheduler",
        "w: arms.a",
        "w: arms.a.target",
        "w: sweep 1",
    }


def test_a_workload_needs_something_to_serve():
    with pytest.raises(InputError, match="requests, or a sweep"):
        Workload.from_values({key: item for key, item in VALUES.items() if key != "requests"}, "w")
