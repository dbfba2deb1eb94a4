"""Caches whose pages lie beyond 2^31 and 2^32 elements, in memory that takes no room but for these pages.

A small cache is spread: page 0 stays where it is, the others go far apart, and slots and page numbers are told anew. An
offset that is computed in 32 bits then leaves the memory, or reads what nothing was stored to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aotkern.audit.cases import Array, Exact, Sparse
from aotkern.spec import Runtime, VariantKey
from aotkern.target import Backend

_BOUNDS: Final = (1 << 31, 1 << 32)
"""Elements beyond which an offset is negative in 32 bits, or too small."""


@dataclass(frozen=True, slots=True)
class Far:
    """Where the pages of a small cache went.

    Attributes:
        numbers: The new number of each page, ascending.
        stride: Elements between two pages.
    """

    numbers: tuple[int, ...]
    stride: int

    @classmethod
    def of(cls, pages: int, stride: int) -> Far:
        """A place for each page: 0, then beyond the first bound, and from the middle on beyond the second one.

        A single page goes beyond the second bound.
        """
        first, second = (bound // stride + 2 for bound in _BOUNDS)
        if pages == 1:
            return cls((second,), stride)
        half = (pages + 1) // 2
        lower = [first + page for page in range(1, half)]
        return cls((0, *lower, *(second + page for page in range(max(half, 1), pages))), stride)

    @property
    def count(self) -> int:
        """Pages of the large cache."""
        return self.numbers[-1] + 1

    def memory(self, pages: Array) -> Sparse:
        """The large cache with the contents of a small one [pages, stride]."""
        step = self.stride * pages.dtype.itemsize
        pieces = {number * step: page for number, page in zip(self.numbers, pages, strict=True)}
        return Sparse((self.count, self.stride), pages.dtype, pieces)

    def slots(self, slots: Array, block_size: int) -> Array:
        """Slots of the small cache in the large one; those outside lie outside of it by as much as before."""
        rows, far = len(self.numbers) * block_size, self.count * block_size
        wide = np.asarray(slots, np.int64)
        inside = (wide >= 0) & (wide < rows)
        known = np.where(inside, wide, 0)
        moved = np.array(self.numbers)[known // block_size] * block_size + known % block_size
        largest = np.iinfo(slots.dtype).max
        beyond = np.where(wide >= rows, np.minimum(wide + far - rows, largest), wide)
        return np.asarray(np.where(inside, moved, beyond).astype(slots.dtype))

    def pages(self, numbers: Array) -> Array:
        """Page numbers of the small cache in the large one; negative ones stay."""
        found = np.where(numbers >= 0, np.array(self.numbers)[np.maximum(numbers, 0)], numbers)
        return np.asarray(found.astype(numbers.dtype))


def may_be_large(key: VariantKey, name: str) -> bool:
    """Whether a variant of an AMD target serves memory of more than 2^31 bytes behind this pointer."""
    spec = dict(key.arguments).get(name)
    return key.target.backend is Backend.HIP and isinstance(spec, Runtime) and not spec.small


def spread_cache(key: VariantKey, arguments: dict[str, Any], after: Array, block_size: int) -> Exact:
    """What must stand in `cache`, which is spread together with `slots` where the variant serves large memory.

    Args:
        key: The variant.
        arguments: Of the case; changed in place.
        after: What must stand in the small cache.
        block_size: Slots of a page.
    """
    if not may_be_large(key, "cache"):
        return Exact(after)
    far = Far.of(*after.shape)
    arguments["cache"] = far.memory(arguments["cache"])
    arguments["slots"] = far.slots(arguments["slots"], block_size)
    return Exact(far.memory(after))
