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

    In each round everyone has one turn. Each round begins with another one, and every second one goes backwards, so
    that no alternative always runs after the same other one.

    Args:
        alternatives: By name.
        rounds: Samples of each.
        warm_up: Rounds before those, whose samples are thrown away.
        before: Called before each turn, outside of what is measured: a device is made idle, say.
    """
    names = list(alternatives)
    found: dict[str, list[float]] = {name: [] for name in names}
    for index in range(warm_up + rounds):
        first = index % len(names) if names else 0
        order = names[first:] + names[:first]
        for name in order[::-1] if index % 2 else order:
            before()
            sample = alternatives[name]()
            if index >= warm_up:
                found[name].append(sample)
    return {name: tuple(samples) for name, samples in found.items()}


def ratios(over: Sequence[float], under: Sequence[float]) -> Measurement:
    """`over` divided by `under`, round by round: what two alternatives of the same rounds say of each other.

    Raises:
        InputError: They are not from the same rounds.
    """
    if len(over) != len(under):
        raise InputError.one("ratios", "as many samples of one as of the other", f"{len(over)} and {len(under)}")
    return Measurement.of("x", (one / other for one, other in zip(over, under, strict=True)))
