"""Samples of one quantity: median, extremes, quartiles, and an interval for the median that assumes no distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern.errors import InputError, Problem
from aotkern.fields import Fields

KEPT = 64
"""Most samples that a measurement keeps; of more, only what is said of them is kept."""

_DIGITS = 6
_FIELDS = ("unit", "count", "median", "least", "most", "quartiles", "interval", "percentiles", "samples")


def rounded(value: float) -> float:
    """A number with six significant digits, which is more than any clock here can tell."""
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What samples of one quantity say.

    Attributes:
        unit: Of all numbers: "s", "us", "B", "MB/s", "x" for a ratio, ...
        count: How many samples there were.
        median: Their median.
        least: The smallest.
        most: The largest.
        quartiles: The first and the third.
        interval: Where the median of what was sampled lies with a confidence of at least 95 %, by order statistics;
            None for fewer than 6 samples, which cannot say.
        percentiles: Further ones that were asked for, as (percent, value).
        samples: In the order in which they were taken; empty where there were more than `KEPT`.
    """

    unit: str
    count: int
    median: float
    least: float
    most: float
    quartiles: tuple[float, float]
    interval: tuple[float, float] | None = None
    percentiles: tuple[tuple[float, float], ...] = ()
    samples: tuple[float, ...] = ()

    @classmethod
    def of(cls, unit: str, samples: Iterable[float], percentiles: Sequence[float] = ()) -> Measurement:
        """What these samples say.

        Args:
            unit: Of the samples.
            samples: At least one.
            percentiles: Which others to keep, in percent: `(90, 99, 99.9)`.

        Raises:
            InputError: There are no samples, or one is not a finite number.
        """
        values = [float(sample) for sample in samples]
        if not values or not all(map(math.isfinite, values)):
            raise InputError.one(f"samples in {unit}", "finite numbers, at least one", repr(values)[:100])
        taken = tuple(map(rounded, values))
        ordered = sorted(taken)
        return cls(
            unit,
            len(taken),
            rounded(statistics.median(ordered)),
            ordered[0],
            ordered[-1],
            (percentile(ordered, 25), percentile(ordered, 75)),
            median_interval(ordered),
            tuple((float(percent), percentile(ordered, percent)) for percent in percentiles),
            taken if len(taken) <= KEPT else (),
        )

    @classmethod
    def single(cls, unit: str, value: float) -> Measurement:
        """One number: a size, a count, a ratio of medians."""
        return cls.of(unit, [value])

    @property
    def spread(self) -> float:
        """The distance between the quartiles, in the unit of the samples."""
        return rounded(self.quartiles[1] - self.quartiles[0])

    def to_json(self) -> dict[str, Any]:
        """Plain values (schema `bench`)."""
        return {
            "unit": self.unit,
            "count": self.count,
            "median": self.median,
            "least": self.least,
            "most": self.most,
            "quartiles": list(self.quartiles),
            "interval": list(self.interval) if self.interval else None,
            "percentiles": [list(pair) for pair in self.percentiles],
            "samples": list(self.samples),
        }

    @classmethod
    def from_json(cls, value: object, where: str, problems: list[Problem]) -> Measurement:
        """The inverse of `to_json`; what is wrong is added to `problems`, also numbers that samples contradict."""
        noted = len(problems)
        form = Fields(value, where, _FIELDS, problems)
        pairs = form.rows("percentiles", 2)
        found = cls(
            form.text("unit"),
            form.count("count"),
            form.number("median"),
            form.number("least"),
            form.number("most"),
            _pair(form.row("quartiles", 2)),
            None if form.get("interval") is None else _pair(form.row("interval", 2)),
            tuple(_pair(pair) for pair in pairs),
            form.numbers("samples"),
        )
        if len(problems) == noted and found.samples:
            again = cls.of(found.unit, found.samples, [percent for percent, _ in found.percentiles])
            if again != found:
                problems.append(Problem(where, "what its samples say", f"median {found.median} and the rest of it"))
        return found


def _pair(form: Fields) -> tuple[float, float]:
    return form.number("0"), form.number("1")


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which so many percent of sorted values lie, between neighbours by proportion."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return rounded(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest pair of order statistics, the same number from each end, that holds the median with 95 %.

    The number of samples below the true median is binomial, whatever the distribution is; so the chance that the k-th
    smallest of n lies above it is the sum of C(n, i) / 2^n over i < k.
    """
    count, below, inside = len(ordered), 0, None
    for place in range(count // 2):
        below += math.comb(count, place)
        if 40 * below > 1 << count:
            break
        inside = (ordered[place], ordered[count - 1 - place])
    return inside
