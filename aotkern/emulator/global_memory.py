"""Vector memory instructions: global, flat, scratch, buffer, and loads that go to LDS.

Cache hints (`sc0`, `sc1`, `nt`) have no effect here, except that `sc0` on an atomic asks for the old value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aotkern.emulator.access import (
    STORES,
    TRANSFERS,
    Atomic,
    Transfer,
    active,
    atomics,
    deliver,
    gather,
    read,
    read_lds,
    scatter,
    update,
    write,
    write_lds,
)
from aotkern.emulator.arena import AccessError, Region, UnmodelledError
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import PRIVATE_BASE, SHARED_BASE, OperandError, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.waves import LANES, M0, Array, Mask, Waves

U32, U64, I64 = np.uint32, np.uint64, np.int64
MEMORY_MODIFIERS = frozenset(("offset", "offen", "lds", "sc0", "sc1", "nt"))
Address = Callable[[Waves], Array]
_LOW = U64(0xFFFFFFFF)


def _global_address(instruction: Instruction, operands: Operands, vector: str, scalar: str | None) -> Address:
    """A 64-bit vector address, or a scalar base with a 32-bit vector offset; plus the constant offset."""
    offset = np.array(instruction.number("offset"), I64).view(U64)
    if scalar in (None, "off"):
        base = operands.fetch(vector, "u64")
        return lambda w: base(w) + offset
    pair = operands.fetch(str(scalar), "u64")
    lane = operands.fetch(vector, "u32")
    return lambda w: (pair(w) + offset) + lane(w)


def _scratch_address(instruction: Instruction, operands: Operands, vector: str, scalar: str) -> Address:
    """An offset into each lane's own scratch."""
    offset = instruction.number("offset")
    lane = None if vector == "off" else operands.fetch(vector, "u32")
    base = None if scalar == "off" else operands.fetch(scalar, "u32")

    def address(w: Waves) -> Array:
        place: Array = np.full((w.count, LANES), offset, I64)
        for part in (lane, base):
            if part is not None:
                place += part(w)
        return place

    return address


def in_bounds(w: Waves, region: Region, base: Array, offset: Array, size: int, limit: int, mask: Mask) -> Array:
    """Offsets into LDS or scratch as offsets into the region, after checking them against the part that is the lane's.

    Raises:
        AccessError: Some active lane's access does not lie in its part.
    """
    wrong = (offset < 0) | (offset > limit - size)
    if not isinstance(mask, bool):
        wrong = wrong & mask
    if wrong.any():
        first = int(np.flatnonzero(np.broadcast_to(wrong, (w.count, LANES)))[0])
        bad = int(np.broadcast_to(offset, (w.count, LANES)).reshape(-1)[first])
        raise AccessError(f"access of {size} bytes outside the {limit} bytes of {region.name}", first % LANES, bad)
    return active(np.broadcast_to(base + offset, (w.count, LANES)), mask)


def _scratch_offsets(w: Waves, place: Array, size: int) -> Array:
    return in_bounds(w, w.arena.scratch, w.scratch, place, size, w.arena.scratch_size, w.mask)


def lds_offsets(w: Waves, place: Array, size: int) -> Array:
    """Byte addresses in a workgroup's LDS as offsets into the arena's LDS, for the active lanes."""
    return in_bounds(w, w.arena.lds, w.lds, place, size, w.arena.lds_size, w.mask)


def _values(w: Waves, source: int, count: int) -> Array:
    return w.vector[source : source + count]


def _global_load(transfer: Transfer, *, flat: bool) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], transfer.count)
        scalar = None if flat else instruction.operands[2]
        address = _global_address(instruction, operands, instruction.operands[1], scalar)

        def step(w: Waves) -> None:
            deliver(w, target, transfer, gather(w.arena, full_lanes(address(w), w), w.mask, transfer))

        def step_flat(w: Waves) -> None:
            place = full_lanes(address(w), w)
            window = aperture(w, place, transfer.size)
            if window is None:
                values = gather(w.arena, place, w.mask, transfer)
            elif window[0] is w.arena.lds:
                values = read_lds(w, window[1], transfer)
            else:
                values = read(*window, transfer)
            deliver(w, target, transfer, values)

        return step_flat if flat else step

    return bind


def full_lanes(address: Array, w: Waves) -> Array:
    """An address for every lane, also where it is the same for all."""
    return address if address.shape == (w.count, LANES) else np.broadcast_to(address, (w.count, LANES))


def aperture(w: Waves, address: Array, size: int) -> tuple[Region, Array] | None:
    """LDS or scratch and the offsets there, when flat addresses point into an aperture; None for global memory.

    Raises:
        AccessError: Some lanes point into an aperture and others do not.
    """
    window = active(address, w.mask) & ~_LOW
    found = [base for base in (SHARED_BASE, PRIVATE_BASE) if (window == U64(base)).any()]
    if not found:
        return None
    if not (window == U64(found[0])).all():
        raise UnmodelledError("flat access to several kinds of memory at once")
    place = (address & _LOW).view(I64)
    if found[0] == SHARED_BASE:
        return w.arena.lds, lds_offsets(w, place, size)
    return w.arena.scratch, _scratch_offsets(w, place, size)


def _global_store(transfer: Transfer, *, flat: bool) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        source = operands.vector(instruction.operands[1], transfer.count)
        scalar = None if flat else instruction.operands[2]
        address = _global_address(instruction, operands, instruction.operands[0], scalar)

        def step(w: Waves) -> None:
            place = full_lanes(address(w), w)
            window = aperture(w, place, transfer.size) if flat else None
            data = _values(w, source, transfer.count)
            if window is None:
                scatter(w.arena, place, w.mask, transfer, data)
                return
            given = data if w.mask is True else data[:, w.lanes()]
            if window[0] is w.arena.lds:
                write_lds(w, window[1], transfer, given)
            else:
                write(*window, transfer, given)

        return step

    return bind


def _scratch_load(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], transfer.count)
        address = _scratch_address(instruction, operands, *instruction.operands[1:3])

        def step(w: Waves) -> None:
            offsets = _scratch_offsets(w, address(w), transfer.size)
            deliver(w, target, transfer, read(w.arena.scratch, offsets, transfer))

        return step

    return bind


def _scratch_store(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        vector, data, scalar = instruction.operands[:3]
        source = operands.vector(data, transfer.count)
        address = _scratch_address(instruction, operands, vector, scalar)

        def step(w: Waves) -> None:
            offsets = _scratch_offsets(w, address(w), transfer.size)
            values = _values(w, source, transfer.count)
            write(w.arena.scratch, offsets, transfer, values if w.mask is True else values[:, w.lanes()])

        return step

    return bind


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A bound buffer access: where each lane's element is, and which lanes are in range."""

    descriptor: int
    lane: Callable[[Waves], Array] | None
    scalar: Callable[[Waves], Array]
    offset: int

    @classmethod
    def bind(cls, instruction: Instruction, operands: Operands, texts: tuple[str, ...]) -> _Buffer:
        """From the operands after the data: a vector offset or `off`, four scalar registers, a scalar offset."""
        vector, resource, scalar = texts
        has_lane = instruction.modifier("offen") is not None
        if has_lane == (vector == "off"):
            raise OperandError(f"buffer address {vector} with {'' if has_lane else 'no '}offen")
        return cls(
            operands.scalar(resource, 4),
            operands.fetch(vector, "u32") if has_lane else None,
            operands.fetch(scalar, "u32"),
            instruction.number("offset"),
        )

    def lanes(self, w: Waves, size: int) -> tuple[Array, Mask]:
        """Addresses `(waves, 64)`, and the lanes that are active and in range.

        Raises:
            AccessError: A descriptor of a kind that is not modelled, or an access that straddles the end.
        """
        pair = self.descriptor // 2
        low, high = w.scalar_u64[pair], w.scalar_u64[pair + 1]
        if ((low >> U64(48)) & U64(0xBFFF)).any() or (high >> U64(55) & U64(1)).any():
            raise UnmodelledError("buffer descriptor with a stride, swizzle or added lane number")
        offset = self.scalar(w).astype(U64) + U64(self.offset)
        if self.lane is not None:
            offset = offset + self.lane(w)
        records = (high & _LOW)[:, None]
        offset = full_lanes(offset, w)
        inside = offset < records
        if (inside & (offset + U64(size) > records)).any():
            raise AccessError("buffer access across the end of its records")
        address = (low & U64(0xFFFF_FFFF_FFFF))[:, None] + offset
        chosen = inside if isinstance(w.mask, bool) else inside & w.mask
        return address, True if chosen.all() else chosen


def _buffer_load(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        if instruction.modifier("lds") is not None:
            return _buffer_to_lds(instruction, operands, transfer)
        target = operands.vector(instruction.operands[0], transfer.count)
        buffer = _Buffer.bind(instruction, operands, instruction.operands[1:])

        def step(w: Waves) -> None:
            address, inside = buffer.lanes(w, transfer.size)
            values = gather(w.arena, address, inside, transfer)
            if not isinstance(inside, bool):
                values = _spread(values, inside)
                values = values if isinstance(w.mask, bool) else values[:, w.mask]
            deliver(w, target, transfer, values)

        return step

    return bind


def _spread(values: Array, inside: Array) -> Array:
    """Values of some lanes as values of all, zero elsewhere: what a load beyond a buffer's records gives."""
    everywhere: Array = np.zeros((len(values), *inside.shape), U32)
    everywhere[:, inside] = values
    return everywhere


def _buffer_store(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        source = operands.vector(instruction.operands[0], transfer.count)
        buffer = _Buffer.bind(instruction, operands, instruction.operands[1:])

        def step(w: Waves) -> None:
            address, inside = buffer.lanes(w, transfer.size)
            scatter(w.arena, address, inside, transfer, _values(w, source, transfer.count))

        return step

    return bind


def _into_lds(w: Waves, values: Array, transfer: Transfer, offset: int) -> None:
    """Store loaded values where M0 says, one lane's after another's: `values` is for all lanes."""
    base = w.scalar[M0 // 2, :, 0].astype(I64)[:, None]
    step = max(transfer.size, 4)
    place = base + offset + np.arange(LANES) * step
    whole = Transfer(4, transfer.count)
    offsets = lds_offsets(w, place, step)
    write_lds(w, offsets, whole, values if isinstance(w.mask, bool) else values[:, w.mask])


def _buffer_to_lds(instruction: Instruction, operands: Operands, transfer: Transfer) -> Step:
    buffer = _Buffer.bind(instruction, operands, instruction.operands)
    offset = instruction.number("offset")

    def step(w: Waves) -> None:
        address, inside = buffer.lanes(w, transfer.size)
        values = gather(w.arena, address, inside, transfer)
        _into_lds(w, values if isinstance(inside, bool) else _spread(values, inside), transfer, offset)

    return step


def _global_to_lds(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        address = _global_address(instruction, operands, *instruction.operands)
        offset = instruction.number("offset")

        def step(w: Waves) -> None:
            values = gather(w.arena, full_lanes(address(w), w), w.mask, transfer)
            _into_lds(w, values if isinstance(w.mask, bool) else _spread(values, w.mask), transfer, offset)

        return step

    return bind


def _atomic_step(atomic: Atomic, source: int, target: int | None, place: Callable[[Waves], tuple[Array, Mask]]) -> Step:
    words = atomic.size // 4

    def data(w: Waves, first: int, mask: Mask) -> Array:
        parts = np.stack([active(w.vector[first + index], mask).reshape(-1) for index in range(words)], axis=-1)
        return np.ascontiguousarray(parts).view(atomic.dtype)[:, 0]

    def step(w: Waves) -> None:
        address, mask = place(w)
        chosen = active(address, mask).reshape(-1)
        given = data(w, source, mask)
        expected = None
        if atomic.compares:
            expected = data(w, source + words, mask)
        old: Array = np.zeros(chosen.size, {4: U32, 8: U64}[atomic.size])
        for region, where in w.arena.runs(chosen, atomic.size, rounded=True):
            if not region.writable:
                raise AccessError(f"atomic on {region.name}, which is read-only", None, int(chosen[where[0]]))
            offsets = (chosen[where] - U64(region.address)).view(I64)
            if w.arena.watch is not None:
                w.arena.watch.atomics(region, offsets, mask, atomic.size, where)
            old[where] = update(region, offsets, atomic, given[where], None if expected is None else expected[where])
        if target is not None:
            lanes = np.ones((w.count, LANES), np.bool_) if isinstance(mask, bool) else mask
            halves = old.view(U32).reshape(-1, words)
            for index in range(words):
                w.vector[target + index][lanes] = halves[:, index]

    return step


def _global_atomic(atomic: Atomic, *, flat: bool) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        texts = list(instruction.operands)
        words = atomic.size // 4
        target = operands.vector(texts.pop(0), words) if instruction.modifier("sc0") is not None else None
        source = operands.vector(texts[1], words * (2 if atomic.compares else 1))
        address = _global_address(instruction, operands, texts[0], None if flat else texts[2])
        return _atomic_step(atomic, source, target, lambda w: (full_lanes(address(w), w), w.mask))

    return bind


def _buffer_atomic(atomic: Atomic) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        words = atomic.size // 4
        source = operands.vector(instruction.operands[0], words * (2 if atomic.compares else 1))
        buffer = _Buffer.bind(instruction, operands, instruction.operands[1:])
        target = source if instruction.modifier("sc0") is not None else None
        return _atomic_step(atomic, source, target, lambda w: buffer.lanes(w, atomic.size))

    return bind


_TO_LDS = ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4")


def _all() -> dict[str, Bind]:
    table: dict[str, Bind] = {}
    for name, transfer in TRANSFERS.items():
        table[f"global_load_{name}"] = _global_load(transfer, flat=False)
        table[f"flat_load_{name}"] = _global_load(transfer, flat=True)
        table[f"scratch_load_{name}"] = _scratch_load(transfer)
        table[f"buffer_load_{name}"] = _buffer_load(transfer)
        if name in _TO_LDS:
            table[f"global_load_lds_{name}"] = _global_to_lds(transfer)
    for name, transfer in STORES.items():
        table[f"global_store_{name}"] = _global_store(transfer, flat=False)
        table[f"flat_store_{name}"] = _global_store(transfer, flat=True)
        table[f"scratch_store_{name}"] = _scratch_store(transfer)
        table[f"buffer_store_{name}"] = _buffer_store(transfer)
    for name, atomic in atomics().items():
        table[f"global_atomic_{name}"] = _global_atomic(atomic, flat=False)
        table[f"flat_atomic_{name}"] = _global_atomic(atomic, flat=True)
        table[f"buffer_atomic_{name}"] = _buffer_atomic(atomic)
    return table


GLOBAL_MEMORY: dict[str, Bind] = _all()
"""Mnemonic, to how it is bound."""
