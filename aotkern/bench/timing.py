"""Alternatives that take turns: what disturbs a machine for a while then disturbs all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from aotkern.bench.measurement import Measurement
from aotkern.errors import InputError

Sampler = Callable[[], float]
"""Does its work once and returns one sample: seconds, microseconds of a launch, or whatever is measured."""


def timed(call: Callable[[], object], times: int = 1, scale: float = 1.0) -> Sampler:
    """A sampler of the wall time of one call, over `times` calls in a row, in seconds times `scale`."""

    def sample() -> float:
        begin = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - begin) / times * scale

    return sample


def interleaved(
    alternatives: Mapping[str, Sampler],
    rounds: int,
    warm_up: int = 0,
    before: Callable[[], object] = lambda: None,
) -> dict[str, tuple[float, ...]]:
    """The samples of each alternative, in the order of the rounds.

    In each round everyone has one turn, in the order that `turns` says: over a whole cycle of rounds everyone begins as
    often as everyone else, and follows everyone else equally often. What an alternative leaves behind (a cache that is
    full of its data, a clock that it raised) then meets all of them alike. Where even that would tell them apart,
    `before` puts the machine into the same state.

    Args:
        alternatives: By name.
        rounds: Samples of each; a multiple of `len(turns(len(alternatives)))` for a balanced order.
        warm_up: Rounds before those, whose samples are thrown away.
        before: Called before each turn, outside of what is measured: a device is made idle, its cache overwritten.
    """
    names = list(alternatives)
    cycle = turns(len(names))
    found: dict[str, list[float]] = {name: [] for name in names}
    for index in range(-warm_up, rounds):
        for place in cycle[index % len(cycle)]:
            before()
            sample = alternatives[names[place]]()
            if index >= 0:
                found[names[place]].append(sample)
    return {name: tuple(samples) for name, samples in found.items()}


def turns(count: int) -> tuple[tuple[int, ...], ...]:
    """Orders of 0 to `count` - 1, in which each number follows each other one equally often, and begins equally often.

    A Latin square of Williams: `count` orders where that is even, twice as many, each also backwards, where it is odd.
    """
    if count < 2:
        return (tuple(range(count)),)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    square = [tuple((number + shift) % count for number in zigzag) for shift in range(count)]
    if count % 2 == 0:
        return tuple(square)
    return tuple(order for forward in square for order in (forward, forward[::-1]))


def ratios(over: Sequence[float], under: Sequence[float]) -> Measurement:
    """`over` divided by `under`, round by round: what two alternatives of the same rounds say of each other.

    Raises:
        InputError: They are not from the same rounds.
    """
    if len(over) != len(under):
        raise InputError.one("ratios", "as many samples of one as of the other", f"{len(over)} and {len(under)}")
    return Measurement.of("x", (one / other for one, other in zip(over, under, strict=True)))
