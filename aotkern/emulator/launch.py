"""The state in which waves start: LLVM's "initial kernel execution state" for code object version 5 and gfx94x/gfx95x.

User SGPRs come in the order of the descriptor's property bits, then preloaded kernel arguments, then the enabled
workgroup ids. Scratch needs no register: both architectures address it directly.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from aotkern.emulator.arena import Arena, Region
from aotkern.emulator.errors import UnsupportedError
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.waves import LANES, POISON, Array, Waves
from aotkern.errors import EmulatorError

# Property bits of the descriptor. There is no queue and no scratch buffer here: their registers hold poison.
_PRIVATE_BUFFER, _DISPATCH, _QUEUE, _KERNARG, _DISPATCH_ID, _SCRATCH_INIT, _PRIVATE_SIZE = range(7)
_PRELOAD_ENTRY = 256  # a loader that preloads enters so many bytes later, past the code that would load


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: What is launched.
        grid: Workgroups in x, y and z.
        threads: Work-items of a workgroup, a multiple of the wave size.
        kernarg: The region with the kernel arguments.
        packet: The region with the dispatch packet.
        preload: Whether the loader preloads kernel arguments.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    kernarg: Region
    packet: Region
    preload: bool

    @property
    def waves(self) -> int:
        """Waves of one workgroup."""
        return self.threads // LANES

    @property
    def entry(self) -> int:
        """Where waves start."""
        skips = self.preload and self.kernel.descriptor.preload_dwords
        return self.kernel.entry + (_PRELOAD_ENTRY if skips else 0)

    def start(self, arena: Arena, groups: Array, kernarg: bytes) -> Waves:
        """All waves of some workgroups, `groups` being their `(n, 3)` ids."""
        count = len(groups)
        number = np.arange(count * self.waves)
        waves = Waves.fresh(
            arena, number, np.repeat(np.arange(count), self.waves), self.kernel.vgprs + self.kernel.agprs
        )
        waves.pc = self.entry
        waves.overflow = bool(self.kernel.descriptor.rsrc1 >> 26 & 1)
        self._set_scalars(waves, np.repeat(groups, self.waves, axis=0), kernarg)
        # Packed work-item ids have y and z in higher bits; they are 0 in the one dimension that Triton launches.
        lane = np.arange(LANES) + LANES * (number % self.waves)[:, None]
        waves.vector[0] = lane
        return waves

    def _set_scalars(self, waves: Waves, groups: Array, kernarg: bytes) -> None:
        for register, value in enumerate(self._user_scalars(kernarg)):
            waves.scalar[register // 2, :, register % 2] = value
        register = self.kernel.descriptor.user_sgprs
        for axis, enabled in enumerate(self.kernel.descriptor.workgroup_ids):
            if enabled:
                waves.scalar[register // 2, :, register % 2] = groups[:, axis]
                register += 1

    def _user_scalars(self, kernarg: bytes) -> list[int]:
        """The user SGPRs in order; those that a loader leaves undefined hold poison."""
        descriptor = self.kernel.descriptor
        asked = [bit for bit in range(7) if descriptor.properties >> bit & 1]
        addresses = {_DISPATCH: self.packet.address, _KERNARG: self.kernarg.address}
        values: list[int] = []
        for bit in asked:
            if bit == _PRIVATE_SIZE:
                values.append(descriptor.private_bytes)
            elif bit in addresses:
                values.extend((addresses[bit] & 0xFFFFFFFF, addresses[bit] >> 32))
            elif bit == _DISPATCH_ID:
                values.extend((0, 0))
            else:
                values.extend((POISON,) * (4 if bit == _PRIVATE_BUFFER else 2))
        length, first = descriptor.preload_dwords, descriptor.preload_offset
        if self.preload:
            held = max(0, min(length, len(kernarg) // 4 - first))
            values.extend(struct.unpack_from(f"<{held}I", kernarg, 4 * first))
            values.extend((POISON,) * (length - held))
        else:
            values.extend((POISON,) * length)
        if len(values) > descriptor.user_sgprs:
            raise EmulatorError(f"kernel descriptor has {descriptor.user_sgprs} user registers for {len(values)}")
        return values


def check_modes(kernel: Kernel) -> None:
    """Refuse a kernel that starts in a mode which is not modelled.

    Raises:
        UnsupportedError: It rounds otherwise than to nearest even, or flushes denormals.
    """
    mode = kernel.descriptor.rsrc1 >> 12 & 0xFF
    if mode != 0xF0:
        raise UnsupportedError(f"float mode {mode:#x}: only rounding to nearest even with denormals is modelled")
    if kernel.descriptor.wave != LANES:
        raise UnsupportedError(f"waves of {kernel.descriptor.wave} lanes")


def dispatch_packet(grid: tuple[int, int, int], threads: int, scratch: int, lds: int, kernarg: int) -> bytes:
    """The HSA packet that a dispatch pointer leads to; grid sizes there are in work-items."""
    sizes = (grid[0] * threads, grid[1], grid[2])
    return struct.pack("<6H5IQQQQ", 0, 3, threads, 1, 1, 0, *sizes, scratch, lds, 0, kernarg, 0, 0)
