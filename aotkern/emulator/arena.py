"""The memory of a launch: the buffers that it was given, its code, its kernel arguments, LDS and scratch.

Global addresses are the buffers' real addresses in this process, but nothing is reached through a pointer: an address
is first found in one of the regions, then an element of that region's array is read or written. An access that does
not lie wholly in one region raises `AccessError`, which the machine turns into an `EmulatorError` with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_UNITS: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class AccessError(Exception):
    """An access that no memory of the launch can serve; the machine adds where it happened."""

    def __init__(self, reason: str, lane: int | None = None, address: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.lane, self.address = reason, lane, address


class UnmodelledError(AccessError):
    """An access of a kind that is not modelled: nothing is said about the code."""


PAGE = 4096
"""Bytes of a page, by which it is noted where something was stored in large memory."""
LARGE = 1 << 26
"""Bytes from which memory counts as large: it is never read as a whole."""
_DWORD = 4
_BEYOND = np.array([0xC1, 0xFF, 0xC1, 0xFF], np.uint8)
"""What the bytes of a dword hold that are beyond a region: `waves.POISON`."""


class Region:
    """A stretch of memory: an array of bytes and the address of its first one.

    Attributes:
        address: Where it begins.
        size: Bytes.
        name: For messages.
        changes: How often something was written; an atomic that leaves its cell as it was does not count.
        shadow: Who touched it, when races are to be found.
        stored: Whether anything was stored here.
        pages: Of large memory, the numbers of the pages in which something was stored; else empty.
        lead: Bytes of the first byte's dword that come before it.
        ragged: Whether it begins or ends inside a dword.
    """

    __slots__ = (
        *("_data", "_views", "address", "changes", "lead", "name", "pages", "ragged", "shadow", "size", "stored"),
        "writable",
    )

    def __init__(self, name: str, address: int, data: Array, writable: bool) -> None:
        self.name, self.address, self.size, self.writable = name, address, len(data), writable
        self._data = data
        self.lead = address % _DWORD
        self.ragged = bool(self.lead or (address + self.size) % _DWORD)
        self.changes = 0
        self.shadow: Any = None
        self.stored = False
        self.pages: set[int] = set()
        self._views: dict[int, Array] = {}
        aligned = data.ctypes.data % 8 == 0
        for width, unit in _UNITS.items():
            whole = len(data) // width * width
            if aligned:
                self._views[width] = data[:whole].view(unit)

    def holds(self, lowest: int, highest: int, size: int) -> bool:
        """Whether `size` bytes at every address from `lowest` to `highest` lie inside."""
        return self.address <= lowest and highest + size <= self.address + self.size

    def inside(self, addresses: Array, size: int, *, rounded: bool) -> Array:
        """Which accesses of `size` bytes lie inside; with `rounded`, aligned dwords count that lie there in part."""
        found: Array = np.zeros(addresses.shape, np.bool_)
        if self.size >= size:
            found = np.asarray(addresses - np.uint64(self.address) <= np.uint64(self.size - size))
        if not (rounded and self.ragged and size % _DWORD == 0 and self.size):
            return found
        first = self.address - self.lead
        last = -(-(self.address + self.size) // _DWORD) * _DWORD - size
        if last < first:
            return found
        aligned = addresses & np.uint64(_DWORD - 1) == 0
        return np.asarray(found | aligned & (addresses - np.uint64(first) <= np.uint64(last - first)))

    def beyond(self, offsets: Array, size: int) -> Array:
        """Which bytes of accesses lie beyond, `(n, size)`."""
        each = offsets[..., None] + np.arange(size)
        return np.asarray((each < 0) | (each >= self.size))

    def _leaves(self, offsets: Array, width: int) -> bool:
        return bool(offsets.size) and (int(offsets.min()) < 0 or int(offsets.max()) + width > self.size)

    def _read_ends(self, offsets: Array, width: int) -> Array:
        """`read` where some bytes lie beyond."""
        each = offsets[..., None] + np.arange(width)
        there = self._data.take(each.clip(0, self.size - 1))
        values = np.where(self.beyond(offsets, width), _BEYOND[(each + self.lead) % _DWORD], there)
        return np.ascontiguousarray(values).view(_UNITS[width])[..., 0]

    def _write_ends(self, offsets: Array, values: Array, width: int) -> None:
        """`write` where some bytes lie beyond: those are left alone, since whoever writes has made sure of that."""
        each = offsets[..., None] + np.arange(width)
        kept = ~self.beyond(offsets, width)
        self._data[each[kept]] = np.ascontiguousarray(values).view(np.uint8).reshape(each.shape)[kept]

    def read(self, offsets: Array, width: int) -> Array:
        """Units of `width` bytes at byte offsets, as unsigned integers of that width and the offsets' shape."""
        if self.ragged and self._leaves(offsets, width):
            return self._read_ends(offsets, width)
        view = self._views.get(width)
        if view is not None and (width == 1 or not int(np.bitwise_or.reduce(offsets, axis=None)) & (width - 1)):
            return view.take(offsets // width if width > 1 else offsets)
        each = offsets[..., None] + np.arange(width)
        return self._data.take(each).view(_UNITS[width])[..., 0]

    def bytes_at(self, offsets: Array, size: int) -> Array:
        """`size` bytes at each of some byte offsets, `(n, size)`."""
        return np.asarray(self._data[offsets[:, None] + np.arange(size)])

    def write(self, offsets: Array, values: Array, width: int) -> None:
        """Set units of `width` bytes at byte offsets; of several writes to one place the last lane's stays."""
        self.changes += 1
        self.stored = True
        if self.size >= LARGE:
            last = (self.size - 1) // PAGE
            self.pages.update(np.unique((offsets // PAGE).clip(0)).tolist())
            self.pages.update(np.unique(((offsets + width - 1) // PAGE).clip(None, last)).tolist())
        if self.ragged and self._leaves(offsets, width):
            self._write_ends(offsets, values, width)
            return
        view = self._views.get(width)
        if view is not None and (width == 1 or not int(np.bitwise_or.reduce(offsets, axis=None)) & (width - 1)):
            view[offsets // width] = values
            return
        each = offsets[..., None] + np.arange(width)
        self._data[each] = np.ascontiguousarray(values).view(np.uint8).reshape(each.shape)


class Watch(Protocol):
    """Who is told what waves do to memory.

    Offsets are flat; `mask` says which lanes they belong to, and `where` which of those.
    """

    def barrier(self, groups: Array) -> None:
        """All waves of some workgroups, by their numbers in the launch, have passed a barrier."""

    def loads(self, region: Region, offsets: Array, mask: Array | bool, size: int, where: Array | None = None) -> None:
        """Lanes read."""

    def stores(
        self,
        region: Region,
        offsets: Array,
        mask: Array | bool,
        transfer: Any,
        data: Array,
        perform: Callable[[], None],
        where: Array | None = None,
    ) -> None:
        """Lanes write, when `perform` is called."""

    def atomics(
        self, region: Region, offsets: Array, mask: Array | bool, size: int, where: Array | None = None
    ) -> None:
        """Lanes read and write."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Everything that the waves of one launch can reach.

    Attributes:
        regions: Global memory, in no particular order; regions do not overlap.
        lds: LDS of all workgroups of the batch, one after another.
        lds_stride: Bytes from one workgroup's LDS to the next.
        lds_size: Bytes that one workgroup may touch.
        scratch: Scratch of all lanes of the batch, one after another.
        scratch_stride: Bytes from one lane's scratch to the next.
        scratch_size: Bytes that one lane may touch.
        first_group: The number of the batch's first workgroup in the launch.
        first_wave: The number of the batch's first wave in the launch.
        watch: Who is told of every access, when races are to be found.
    """

    regions: tuple[Region, ...]
    lds: Region
    lds_stride: int
    lds_size: int
    scratch: Region
    scratch_stride: int
    scratch_size: int
    first_group: int = 0
    first_wave: int = 0
    watch: Watch | None = None

    def region(self, lowest: int, highest: int, size: int) -> Region | None:
        """The region that holds every access of `size` bytes from `lowest` to `highest`, if one does."""
        for region in self.regions:
            if region.holds(lowest, highest, size):
                return region
        return None

    def runs(self, addresses: Array, size: int, *, rounded: bool = False) -> Sequence[tuple[Region, Array]]:
        """Flat addresses sorted out by region: pairs of a region and the positions in `addresses` that lie in it.

        Args:
            addresses: `(n,)` where the accesses begin.
            size: Bytes of each.
            rounded: Whether aligned dwords count as inside that a region fills in part.

        Raises:
            AccessError: Some address lies in no region; it names the first one. `lane` is the position.
        """
        left = np.ones(len(addresses), np.bool_)
        found: list[tuple[Region, Array]] = []
        for whole in (False, True) if rounded else (False,):  # memory of its own before what another one leaves over
            for region in self.regions:
                inside = left & region.inside(addresses, size, rounded=whole)
                if inside.any():
                    found.append((region, np.flatnonzero(inside)))
                    left &= ~inside
            if not left.any():
                break
        if left.any():
            first = int(np.flatnonzero(left)[0])
            raise AccessError(f"access of {size} bytes outside the given buffers", first, int(addresses[first]))
        return found
