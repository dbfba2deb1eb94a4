"""Reading and writing memory for all active lanes at once, and atomics.

Addresses are `(waves, 64)` uint64. A load returns its values for the active lanes only: `(count, waves, 64)` when every
lane is active, else `(count, active)`, in the order of `array[mask]`; `deliver` puts either into registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from aotkern.emulator.arena import AccessError, Arena, Region
from aotkern.emulator.formats import bf16_bits, bf16_values
from aotkern.emulator.waves import LANES, Array, Mask, Waves

U16, U32, U64, I64 = np.uint16, np.uint32, np.uint64, np.int64
Half = Literal["whole", "low", "high"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one memory instruction moves per lane.

    Attributes:
        unit: Bytes of one element: 1, 2 or 4.
        count: Elements; more than one only for units of 4.
        signed: A smaller element is extended by its sign when loaded.
        half: Whether an element of 2 bytes (or 1) takes the whole register, or one half of it (`d16`).
    """

    unit: int
    count: int = 1
    signed: bool = False
    half: Half = "whole"

    @property
    def size(self) -> int:
        """Bytes per lane."""
        return self.unit * self.count


TRANSFERS: dict[str, Transfer] = {
    "ubyte": Transfer(1),
    "sbyte": Transfer(1, signed=True),
    "ushort": Transfer(2),
    "sshort": Transfer(2, signed=True),
    "dword": Transfer(4),
    "dwordx2": Transfer(4, 2),
    "dwordx3": Transfer(4, 3),
    "dwordx4": Transfer(4, 4),
    "ubyte_d16": Transfer(1, half="low"),
    "ubyte_d16_hi": Transfer(1, half="high"),
    "sbyte_d16": Transfer(1, signed=True, half="low"),
    "sbyte_d16_hi": Transfer(1, signed=True, half="high"),
    "short_d16": Transfer(2, half="low"),
    "short_d16_hi": Transfer(2, half="high"),
}
"""The element names of loads from global memory and scratch."""
STORES: dict[str, Transfer] = {
    "byte": Transfer(1),
    "byte_d16_hi": Transfer(1, half="high"),
    "short": Transfer(2),
    "short_d16_hi": Transfer(2, half="high"),
    **{name: TRANSFERS[name] for name in ("dword", "dwordx2", "dwordx3", "dwordx4")},
}
"""The element names of stores."""


def active(values: Array, mask: Mask) -> Array:
    """The active lanes' values."""
    return values if isinstance(mask, bool) else values[mask]


def _at_lane(error: AccessError, mask: Mask) -> AccessError:
    if error.lane is None:
        return error
    lane = error.lane if isinstance(mask, bool) else int(np.flatnonzero(mask)[error.lane])
    return AccessError(str(error), lane % LANES, error.address)


def gather(arena: Arena, addresses: Array, mask: Mask, transfer: Transfer) -> Array:
    """Load from global memory.

    Raises:
        AccessError: Some active lane's access lies in no region.
    """
    chosen = active(addresses, mask)
    if chosen.size == 0:
        return np.empty((transfer.count, 0), U32)
    region = arena.region(int(chosen.min()), int(chosen.max()), transfer.size)
    watch = arena.watch
    if region is not None:
        offsets = (chosen - U64(region.address)).view(I64)
        if watch is not None:
            watch.loads(region, offsets.reshape(-1), mask, transfer.size)
        return read(region, offsets, transfer)
    flat = chosen.reshape(-1)
    values: Array = np.empty((transfer.count, flat.size), U32)
    try:
        for part, where in arena.runs(flat, transfer.size, rounded=True):
            offsets = (flat[where] - U64(part.address)).view(I64)
            if watch is not None:
                watch.loads(part, offsets, mask, transfer.size, where)
            values[:, where] = read(part, offsets, transfer)
    except AccessError as error:
        raise _at_lane(error, mask) from None
    return values.reshape(transfer.count, *chosen.shape)


def scatter(arena: Arena, addresses: Array, mask: Mask, transfer: Transfer, values: Array) -> None:
    """Store to global memory; `values` is `(count, waves, 64)`.

    Raises:
        AccessError: Some active lane's access lies in no region, or in one that must not be written.
    """
    chosen = active(addresses, mask).reshape(-1)
    if chosen.size == 0:
        return
    data = values.reshape(transfer.count, -1) if isinstance(mask, bool) else values[:, mask]
    region = arena.region(int(chosen.min()), int(chosen.max()), transfer.size)
    try:
        parts = [(region, np.arange(chosen.size))] if region is not None else arena.runs(chosen, transfer.size)
        for part, where in parts:
            if not part.writable:
                raise AccessError(f"store into {part.name}, which is read-only", int(where[0]), int(chosen[where[0]]))
            offsets = (chosen[where] - U64(part.address)).view(I64)
            given = data if part is region else data[:, where]
            if arena.watch is None:
                write(part, offsets, transfer, given)
            else:
                perform = partial(write, part, offsets, transfer, given)
                among = None if part is region else where
                arena.watch.stores(part, offsets, mask, transfer, given, perform, among)
    except AccessError as error:
        raise _at_lane(error, mask) from None


def read(region: Region, offsets: Array, transfer: Transfer) -> Array:
    """Load elements at byte offsets of a region: `(count, *offsets.shape)` uint32."""
    if transfer.count > 1:
        steps = (np.arange(transfer.count) * 4).reshape(-1, *(1,) * offsets.ndim)
        return region.read(offsets + steps, 4)
    values = region.read(offsets, transfer.unit)
    if transfer.signed:
        values = values.view(np.int8 if transfer.unit == 1 else np.int16).astype(np.int32).view(U32)
    return (values if values.dtype == U32 else values.astype(U32))[None]


def write(region: Region, offsets: Array, transfer: Transfer, data: Array) -> None:
    """Store `(count, *offsets.shape)` uint32 at byte offsets of a region."""
    if transfer.unit == 4:
        for index in range(transfer.count):
            region.write(offsets + 4 * index if index else offsets, data[index], 4)
        return
    region.write(offsets, narrow(transfer, data)[0], transfer.unit)


def narrow(transfer: Transfer, data: Array) -> list[Array]:
    """What is stored of registers `(count, ...)`, element by element, each as wide as in memory."""
    if transfer.unit == 4:
        return list(data)
    element = data[0] >> U32(16) if transfer.half == "high" else data[0]
    return [element.astype(np.uint8 if transfer.unit == 1 else U16)]


def read_lds(w: Waves, offsets: Array, transfer: Transfer) -> Array:
    """`read` from the LDS, for the lanes of the waves' mask."""
    if w.arena.watch is not None:
        w.arena.watch.loads(w.arena.lds, offsets.reshape(-1), w.mask, transfer.size)
    return read(w.arena.lds, offsets, transfer)


def write_lds(w: Waves, offsets: Array, transfer: Transfer, data: Array) -> None:
    """`write` to the LDS, for the lanes of the waves' mask."""
    if w.arena.watch is None:
        write(w.arena.lds, offsets, transfer, data)
        return
    perform = partial(write, w.arena.lds, offsets, transfer, data)
    flat = data.reshape(len(data), -1)
    w.arena.watch.stores(w.arena.lds, offsets.reshape(-1), w.mask, transfer, flat, perform)


def deliver(w: Waves, target: int, transfer: Transfer, values: Array) -> None:
    """Put loaded values into registers of the active lanes."""
    mask = w.mask
    for index in range(transfer.count):
        bits, register = values[index], w.vector[target + index]
        if transfer.half != "whole":
            old = active(register, mask)
            shift = U32(16 if transfer.half == "high" else 0)
            bits = (old & U32(0xFFFF0000 >> int(shift))) | ((bits & U32(0xFFFF)) << shift)
        if isinstance(mask, bool):
            register[...] = bits
        else:
            register[mask] = bits


Combine = Callable[[Array, Array], Any]


@dataclass(frozen=True, slots=True)
class Atomic:
    """A read-modify-write operation.

    Attributes:
        dtype: Type of the memory cell and of the data.
        combine: New value from the old one and the data.
        compares: The data are two values: the new one, then the one that must be there.
    """

    dtype: type[np.generic]
    combine: Combine
    compares: bool = False

    @property
    def size(self) -> int:
        """Bytes of the memory cell."""
        return np.dtype(self.dtype).itemsize


def _wrap_up(old: Array, limit: Array) -> Array:
    return np.asarray(np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)))


def _wrap_down(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def _pairs_f16(old: Array, data: Array) -> Array:
    halves = [old.view(U16).view(np.float16), np.ascontiguousarray(data).view(U16).view(np.float16)]
    return np.asarray(halves[0] + halves[1]).view(U32)


def _pairs_bf16(old: Array, data: Array) -> Array:
    low = bf16_bits(bf16_values(old) + bf16_values(data))
    high = bf16_bits((old & U32(0xFFFF0000)).view(np.float32) + (data & U32(0xFFFF0000)).view(np.float32))
    return np.asarray(low | (high << U32(16)))


def atomics() -> dict[str, Atomic]:
    """Every atomic of global memory, by the part of the mnemonic after `atomic_`."""
    table: dict[str, Atomic] = {
        "add_f32": Atomic(np.float32, np.add),
        "add_f64": Atomic(np.float64, np.add),
        "min_f64": Atomic(np.float64, np.fmin),
        "max_f64": Atomic(np.float64, np.fmax),
        "pk_add_f16": Atomic(U32, _pairs_f16),
        "pk_add_bf16": Atomic(U32, _pairs_bf16),
    }
    for suffix, unsigned, signed in (("", U32, np.int32), ("_x2", U64, np.int64)):
        plain: dict[str, tuple[type[np.generic], Combine]] = {
            "swap": (unsigned, lambda _, data: data),
            "add": (unsigned, np.add),
            "sub": (unsigned, np.subtract),
            "smin": (signed, np.minimum),
            "smax": (signed, np.maximum),
            "umin": (unsigned, np.minimum),
            "umax": (unsigned, np.maximum),
            "and": (unsigned, np.bitwise_and),
            "or": (unsigned, np.bitwise_or),
            "xor": (unsigned, np.bitwise_xor),
            "inc": (unsigned, _wrap_up),
            "dec": (unsigned, _wrap_down),
        }
        table.update({name + suffix: Atomic(dtype, combine) for name, (dtype, combine) in plain.items()})
        table["cmpswap" + suffix] = Atomic(unsigned, lambda _, data: data, compares=True)
    return table


def update(region: Region, offsets: Array, atomic: Atomic, data: Array, expected: Array | None) -> Array:
    """Apply an atomic at byte offsets `(n,)`, in order where some are equal; returns the old values, `(n,)`.

    Raises:
        AccessError: An address is no multiple of the cell's size, or bytes change that lie beyond the region.
    """
    uneven = (offsets + region.address) % atomic.size
    if uneven.any():
        first = int(np.flatnonzero(uneven)[0])
        raise AccessError("misaligned atomic", first, region.address + int(offsets[first]))
    unit = {4: U32, 8: U64}[atomic.size]
    if region.ragged:
        _check_ends(region, offsets, atomic, data, expected)
    old: Array = np.empty(len(offsets), unit)
    left = np.arange(len(offsets))
    while left.size:  # one round for each further lane that meets an address again
        _, earliest = np.unique(offsets[left], return_index=True)
        now = left[np.sort(earliest)]
        before = region.read(offsets[now], atomic.size)
        after = np.asarray(atomic.combine(before.view(atomic.dtype), data[now])).view(unit)
        if expected is not None:
            after = np.where(before == expected[now], after, before)
        if not np.array_equal(before, after):
            region.write(offsets[now], after, atomic.size)
        old[now] = before
        left = np.setdiff1d(left, now, assume_unique=True)
    return old


_FILLS = np.array([0, 0x3C013C01_3C013C01], U64)
"""What could stand beyond a region: zeros, small numbers of each 16-bit type."""


def _check_ends(region: Region, offsets: Array, atomic: Atomic, data: Array, expected: Array | None) -> None:
    """Refuse an atomic that would change bytes beyond the region, whatever they hold.

    Raises:
        AccessError: It would.
    """
    beyond = region.beyond(offsets, atomic.size)
    places = np.flatnonzero(beyond.any(axis=1))
    if not places.size:
        return
    unit = {4: U32, 8: U64}[atomic.size]
    mask = np.ascontiguousarray(beyond[places] * np.uint8(0xFF)).view(unit)[:, 0]
    given, there = data[places], region.read(offsets[places], atomic.size)
    if expected is not None:
        changed = (given ^ expected[places]) & mask
    else:
        changed = np.zeros(len(places), unit)
        for fill in _FILLS.astype(unit):
            before = np.asarray(there & ~mask | fill & mask)
            after = np.asarray(atomic.combine(before.view(atomic.dtype), given)).view(unit)
            changed |= (before ^ after) & mask
    if changed.any():
        first = int(places[np.flatnonzero(changed)[0]])
        end = region.address + int(offsets[first])
        raise AccessError(f"atomic of {atomic.size} bytes that changes bytes beyond {region.name}", first, end)
