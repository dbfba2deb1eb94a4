"""Ranks that would not be served the same stop before they start, all of them."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from making import GFX942, GFX950, hand_made

from aotkern.errors import IntegrityError
from aotkern.loader import agree


def bundle(target=GFX942, where="b.aotk"):
    """As much of a bundle as ranks compare."""
    return SimpleNamespace(where=where, manifest=replace(hand_made(), target=target))


def all_ranks(given: list[list]) -> list[Exception | None]:
    """What each rank, a thread here, comes to."""
    texts, outcomes = [""] * len(given), [None] * len(given)
    barrier = threading.Barrier(len(given), timeout=20)

    def rank(number: int) -> None:
        def gather(text: str) -> list[str]:
            texts[number] = text
            barrier.wait()
            return list(texts)

        try:
            agree(given[number], gather)
        except IntegrityError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_the_same_bundles_agree_in_any_order_and_wherever_they_were_built():
    one, two = bundle(GFX942, "here"), bundle(GFX950)
    assert all_ranks([[one, two], [two, bundle(GFX942, "elsewhere")], [one, two]]) == [None] * 3
    assert all_ranks([[], []]) == [None, None]


def test_every_rank_is_told_which_one_differs():
    one, other = bundle(GFX942), bundle(GFX950)
    outcomes = all_ranks([[one], [one], [other], []])
    assert len({str(outcome) for outcome in outcomes}) == 1
    problems = outcomes[0].problems
    assert [problem.where for problem in problems] == ["bundles of rank 2", "bundles of rank 3"]
    assert f"hip:gfx942 {one.manifest.digest.hex[:12]}" in problems[0].expected
    assert f"hip:gfx950 {other.manifest.digest.hex[:12]}" in problems[0].found
    assert problems[1].found == "none"


@pytest.mark.parametrize("texts", [[], ["[]"]])
def test_an_exchange_that_lost_this_rank_is_no_agreement(texts):
    with pytest.raises(IntegrityError, match="this one's among them"):
        agree([bundle()], lambda _: texts)


def _process(pipe, target) -> None:
    def gather(text: str) -> list[str]:
        pipe.send(text)
        return pipe.recv()

    try:
        agree([bundle(target)], gather)
        pipe.send("agreed")
    except IntegrityError as error:
        pipe.send(str(error.problems[0].where))


def received(pipe):
    assert pipe.poll(20), "the process sent nothing"
    return pipe.recv()


def test_two_processes_with_a_variant_missing_on_one_fail_fast_on_both():
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(2)]
    jobs = [
        context.Process(target=_process, args=(theirs, target))
        for (_, theirs), target in zip(pipes, (GFX942, GFX950), strict=True)
    ]
    for job in jobs:
        job.start()
    texts = [received(ours) for ours, _ in pipes]
    for ours, _ in pipes:
        ours.send(texts)
    assert [received(ours) for ours, _ in pipes] == ["bundles of rank 1"] * 2
    for job in jobs:
        job.join(20)
