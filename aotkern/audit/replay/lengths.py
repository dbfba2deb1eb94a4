"""Request lengths as serving benchmarks draw them: `numpy.random.seed(s)`, then `numpy.random.randint(low, high, n)`.

The stream is a Mersenne twister whose draws are masked to the next power of two and thrown away when they are too
large. Python has the same generator under another seeding, so that published length arrays come out to the token
without numpy.
"""

from __future__ import annotations

import random


class Stream:
    """The legacy generator of numpy, for bounded integers.

    Args:
        seed: As given to `numpy.random.seed`, from 0 to 2^32 - 1.
    """

    def __init__(self, seed: int) -> None:
        # Knuth's linear recurrence, by which the reference implementation fills its 624 words from one number.
        words = [seed & 0xFFFFFFFF]
        for place in range(1, 624):
            words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + place) & 0xFFFFFFFF)
        self._random = random.Random()  # noqa: S311 - a benchmark's lengths, not a secret
        self._random.setstate((3, (*words, 624), None))

    def integers(self, low: int, high: int, count: int) -> tuple[int, ...]:
        """`count` integers from `low` to `high` - 1."""
        span = high - low - 1
        bits = span.bit_length()
        mask = (1 << bits) - 1
        found: list[int] = []
        while len(found) < count:
            value = self._random.getrandbits(32) & mask if bits else 0
            if value <= span:
                found.append(low + value)
        return tuple(found)
