"""One launch of a case: the arrays that it is given, who executes it, and what is known of it afterwards."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from aotkern.audit.cases import Array, Case, Sparse, Typed
from aotkern.manifest import VariantEntry

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0  # before Python 3.13 `mmap` does not name it
PAGE = 4096
"""Bytes of a page of sparse memory."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What an executor knows of a launch that ended.

    Attributes:
        stored: The arrays that the code stored to, by name; of sparse ones the numbers of the pages concerned.
        addresses: Offsets of the instructions that were executed, in the code object's image; None if not known.
    """

    stored: Mapping[str, frozenset[int]] = field(default_factory=dict)
    addresses: frozenset[int] | None = None


class Executor(Protocol):
    """What runs a case; see `executors`."""

    @property
    def on(self) -> str:
        """What executes the code, for the report."""

    @property
    def order(self) -> str:
        """In which order waves run, for the report; empty where nothing is known of it."""

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> Execution | None:
        """Launch once. `values` holds the arguments by name, arrays to be changed in place.

        Returns:
            What is known of the launch. Of None it is only known which arrays look different afterwards.
        """


def copied(value: Any) -> Any:
    """An argument for one launch: arrays are copied, sparse ones made."""
    if isinstance(value, Typed):
        return Typed(aligned(value.data), value.element)
    if isinstance(value, Sparse):
        return made(value)
    return aligned(value) if isinstance(value, np.ndarray) else value


def aligned(data: Array) -> Array:
    """A copy whose memory starts at a multiple of 16 bytes, which NumPy alone does not promise."""
    room = np.empty(data.nbytes + 16, np.uint8)
    start = -room.ctypes.data % 16
    copy = room[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
    copy[...] = data
    return copy


def made(memory: Sparse) -> Array:
    """The whole array. Pages that nothing touches take no room, and none is kept for them."""
    if hasattr(mmap, "MAP_PRIVATE"):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _NO_RESERVE)
        flat = np.frombuffer(mmap.mmap(-1, memory.nbytes, flags=flags), np.uint8)
    else:
        flat = aligned(np.zeros(memory.nbytes, np.uint8))
    for offset, piece in memory.pieces.items():
        flat[offset : offset + piece.nbytes] = _bytes(piece)
    return flat.view(memory.dtype).reshape(memory.shape)


def pages_of(memory: Sparse) -> frozenset[int]:
    """The pages in which a piece stands."""
    return frozenset(
        page
        for offset, piece in memory.pieces.items()
        for page in range(offset // PAGE, -(-(offset + piece.nbytes) // PAGE))
    )


def page_bytes(memory: Sparse, page: int) -> Array:
    """The bytes of one page; the last one may be short."""
    first, end = page * PAGE, min((page + 1) * PAGE, memory.nbytes)
    found = np.zeros(end - first, np.uint8)
    for offset, piece in memory.pieces.items():
        start, stop = max(first, offset), min(end, offset + piece.nbytes)
        if start < stop:
            found[start - first : stop - first] = _bytes(piece)[start - offset : stop - offset]
    return found


def _bytes(piece: Array) -> Array:
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def data_of(value: Any) -> Array | None:
    """The array of an argument, None if it is no array."""
    data = value.data if isinstance(value, Typed) else value
    return data if isinstance(data, np.ndarray) else None


def changed(values: Mapping[str, Any], case: Case) -> dict[str, frozenset[int]]:
    """The arrays that look different from the case's own; sparse ones only in their pieces."""
    found: dict[str, frozenset[int]] = {}
    for name, given in case.arguments.items():
        after = data_of(values[name])
        if after is None:
            continue
        if isinstance(given, Sparse):
            flat = after.reshape(-1).view(np.uint8)
            pages = [page for page in pages_of(given) if (_page(flat, page) != page_bytes(given, page)).any()]
            if pages:
                found[name] = frozenset(pages)
        elif (_bytes(after) != _bytes(np.asarray(data_of(given)))).any():
            found[name] = frozenset()
    return found


def _page(flat: Array, page: int) -> Array:
    return flat[page * PAGE : (page + 1) * PAGE]
