"""The state of waves that execute together: registers, masks and where they stand.

A `Waves` object holds one or more waves that are at the same program counter, so that one numpy operation serves all
lanes of all of them. Vector registers are `(register, wave, lane)`, scalar registers `(pair, wave, half)`: that makes a
64-bit scalar one contiguous value. LDS and scratch belong to the launch and are shared by reference; `split` and
`merged` copy registers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aotkern.emulator.arena import Arena
from aotkern.emulator.disassembler import Instruction

LANES = 64
POISON = 0xFFC1FFC1
"""What registers, LDS and scratch hold until they are written: a NaN as f32, as two f16 and as two bf16, and in its
upper byte as fp8 and bf8; as an address it lies in no buffer."""

VCC, M0, EXEC = 106, 124, 126
SCALARS = 128
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

Array = npt.NDArray[Any]
Mask = Array | bool


class Waves:
    """Some waves at one program counter.

    Attributes:
        vector: `(registers, waves, 64)` uint32; AGPRs follow the architectural VGPRs.
        vector_f32: The same memory as float32.
        vector_i32: The same memory as int32.
        scalar: `(64, waves, 2)` uint32; register n is `[n // 2, :, n % 2]`.
        scalar_f32: The same memory as float32.
        scalar_i32: The same memory as int32.
        scalar_u64: `(64, waves)` uint64, the same memory.
        scc: `(waves,)` bool.
        mask: `(waves, 64)` bool, or True when every lane of every wave is active. `exec_changed` renews it.
        pc: Where all of these waves stand.
        arena: The memory of the launch.
        count: How many waves these are.
        number: `(waves,)` which wave of the launch each one is.
        group: `(waves,)` which workgroup of the launch each belongs to.
        lds: `(waves, 1)` where the LDS of each wave's workgroup begins in the arena's LDS.
        scratch: `(waves, 64)` where each lane's scratch begins in the arena's scratch.
        spent: Instructions that these waves ran since their turn began.
        turns: Turns that these waves had: who had fewer goes first.
        rank: Who goes first among waves that had as many turns.
        poll: The last instruction that may wait for another wave's store, since the turn began.
        spin: The instruction with which these waves polled when they last came back to a loop.
        worked: Whether the last turn was used up without polling.
        queue: What is outstanding, where memory instructions take effect late.
        overflow: Whether f16 and fp8 conversions clamp instead of overflowing (bit 23 of MODE).
    """

    __slots__ = (
        "arena",
        "count",
        "group",
        "lds",
        "mask",
        "number",
        "overflow",
        "pc",
        "poll",
        "queue",
        "rank",
        "scalar",
        "scalar_f32",
        "scalar_i32",
        "scalar_u64",
        "scc",
        "scratch",
        "spent",
        "spin",
        "turns",
        "vector",
        "vector_f32",
        "vector_i32",
        "worked",
    )

    def __init__(self, arena: Arena, number: Array, group: Array, vector: Array, scalar: Array, scc: Array) -> None:
        self.arena, self.number, self.group = arena, number, group
        self.count = len(number)
        self.vector, self.vector_f32, self.vector_i32 = vector, vector.view(np.float32), vector.view(np.int32)
        self.scalar, self.scalar_f32, self.scalar_i32 = scalar, scalar.view(np.float32), scalar.view(np.int32)
        self.scalar_u64 = scalar.view(np.uint64)[:, :, 0]
        self.scc = scc
        self.pc = self.spent = self.turns = 0
        self.poll: Instruction | None = None
        self.spin: Instruction | None = None
        self.worked = False
        self.queue: Any = None
        self.rank: float = 0
        self.overflow = False
        self.lds = (group * arena.lds_stride).astype(np.int64)[:, None]
        lanes = number[:, None] * LANES + np.arange(LANES)
        self.scratch = (lanes * arena.scratch_stride).astype(np.int64)
        self.mask: Mask = True
        self.exec_changed()

    @classmethod
    def fresh(cls, arena: Arena, number: Array, group: Array, registers: int) -> Waves:
        """Waves at their start: every register poisoned, every lane active."""
        count = len(number)
        vector = np.full((registers, count, LANES), POISON, np.uint32)
        scalar = np.full((SCALARS // 2, count, 2), POISON, np.uint32)
        scalar[EXEC // 2] = 0xFFFFFFFF
        return cls(arena, number, group, vector, scalar, np.zeros(count, np.bool_))

    def exec_changed(self) -> None:
        """Renew `mask` from EXEC."""
        lanes = self.scalar_u64[EXEC // 2]
        self.mask = True if (lanes == _ALL).all() else unpacked(lanes)

    def lanes(self) -> Array:
        """`mask` as an array in any case."""
        if isinstance(self.mask, bool):
            return np.ones((self.count, LANES), np.bool_)
        return self.mask

    def flags(self, register: int) -> Array:
        """The bits of a scalar pair as `(waves, 64)` bool."""
        return unpacked(self.scalar_u64[register // 2])

    def write(self, register: int, value: Array) -> None:
        """Set a vector register in the active lanes; `value` is uint32 and broadcasts to `(waves, 64)`."""
        np.copyto(self.vector[register], value, where=self.mask)

    def write_pair(self, register: int, value: Array) -> None:
        """Set two vector registers from 64-bit values."""
        bits = value.view(np.uint64)
        self.write(register, (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        self.write(register + 1, (bits >> np.uint64(32)).astype(np.uint32))

    def write_mask(self, register: int, value: Array) -> None:
        """Set a scalar pair from one bit a lane; bits of inactive lanes become zero."""
        active = value if self.mask is True else value & self.mask
        if active.shape != (self.count, LANES):
            active = np.broadcast_to(active, (self.count, LANES))
        self.scalar_u64[register // 2] = packed(active)

    def part(self, which: Array) -> Waves:
        """A copy that holds only the waves with these indices."""
        made = Waves(
            self.arena,
            self.number[which],
            self.group[which],
            np.ascontiguousarray(self.vector[:, which]),
            np.ascontiguousarray(self.scalar[:, which]),
            self.scc[which],
        )
        made.pc, made.spent, made.overflow = self.pc, self.spent, self.overflow
        made.turns, made.poll, made.spin = self.turns, self.poll, self.spin
        made.worked = self.worked
        made.queue = None if self.queue is None else self.queue.part(which)
        return made

    def end_turn(self, *, worked: bool) -> None:
        """Let others go first; `worked` as the attribute."""
        self.turns += 1
        self.spent = 0
        self.spin, self.poll = self.poll or self.spin, None
        self.worked = worked

    def numbers(self) -> tuple[int, ...]:
        """The waves' numbers in the launch."""
        return tuple((self.number + self.arena.first_wave).tolist())


def merged(parts: Sequence[Waves]) -> Waves:
    """One object for waves that stand at the same place, in the order of their numbers."""
    number = np.concatenate([part.number for part in parts])
    order = np.argsort(number, kind="stable")
    made = Waves(
        parts[0].arena,
        number[order],
        np.concatenate([part.group for part in parts])[order],
        np.ascontiguousarray(np.concatenate([part.vector for part in parts], axis=1)[:, order]),
        np.ascontiguousarray(np.concatenate([part.scalar for part in parts], axis=1)[:, order]),
        np.concatenate([part.scc for part in parts])[order],
    )
    queue = parts[0].queue
    if queue is not None:
        counts = [part.count for part in parts]
        made.queue = queue.merged([part.queue for part in parts], counts, order)
    made.pc, made.overflow = parts[0].pc, parts[0].overflow
    made.spent, made.turns = max(part.spent for part in parts), max(part.turns for part in parts)
    made.poll = next((part.poll for part in parts if part.poll is not None), None)
    made.spin = next((part.spin for part in parts if part.spin is not None), None)
    return made


def unpacked(lanes: Array) -> Array:
    """`(waves,)` uint64 as `(waves, 64)` bool, bit n to lane n."""
    return np.unpackbits(lanes.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").view(np.bool_)


def packed(flags: Array) -> Array:
    """The inverse of `unpacked`."""
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint64)[:, 0]
