"""The state in which waves start: LLVM's "initial kernel execution state" for code object version 5 and gfx94x/gfx95x.

User SGPRs come in the order of the descriptor's property bits, then preloaded kernel arguments, then the enabled
workgroup ids. Scratch needs no register: both architectures address it directly.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from aotkern.emulator.arena import Arena, Region
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.waves import LANES, POISON, Array, Waves
from aotkern.errors import EmulatorError

# Property bits of the descriptor, with the SGPRs that each brings; those that Triton's code never asks for are refused.
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
        skips = self.preload and self.kernel.descriptor.preload & 0x7F
        return self.kernel.entry + (_PRELOAD_ENTRY if skips else 0)

    def start(self, arena: Arena, groups: Array, kernarg: bytes) -> Waves:
        """All waves of some workgroups, `groups` being their `(n, 3)` ids."""
        count = len(groups)
        number = np.arange(count * self.waves)
        waves = Waves.fresh(arena, number, np.repeat(np.arange(count), self.waves), self.kernel.descriptor.registers)
        waves.pc = self.entry
        waves.overflow = bool(self.kernel.descriptor.rsrc1 >> 26 & 1)
        self._set_scalars(waves, np.repeat(groups, self.waves, axis=0), kernarg)
        lane = np.arange(LANES) + LANES * (number % self.waves)[:, None]
        waves.vector[0] = lane
        return waves

    def _set_scalars(self, waves: Waves, groups: Array, kernarg: bytes) -> None:
        for register, value in enumerate(self._user_scalars(kernarg)):
            waves.scalar[register // 2, :, register % 2] = value
        register = self.kernel.descriptor.rsrc2 >> 1 & 0x1F
        for axis in range(3):
            if self.kernel.descriptor.rsrc2 >> (7 + axis) & 1:
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
                values.append(descriptor.scratch)
            elif bit in addresses:
                values.extend((addresses[bit] & 0xFFFFFFFF, addresses[bit] >> 32))
            elif bit == _DISPATCH_ID:
                values.extend((0, 0))
            else:
                raise EmulatorError(f"kernel descriptor asks for user registers of kind {bit}")
        length, first = descriptor.preload & 0x7F, descriptor.preload >> 7
        words = struct.unpack_from(f"<{length}I", kernarg.ljust(4 * (first + length), b"\0"), 4 * first)
        values.extend(words if self.preload else (POISON,) * length)
        if len(values) > descriptor.rsrc2 >> 1 & 0x1F:
            raise EmulatorError(f"kernel descriptor has {descriptor.rsrc2 >> 1 & 0x1F} user registers for {len(values)}")
        return values


def check_modes(kernel: Kernel) -> None:
    """Refuse a kernel that starts in a mode which is not modelled.

    Raises:
        EmulatorError: It rounds otherwise than to nearest even, or flushes denormals, or packs work-item ids.
    """
    mode = kernel.descriptor.rsrc1 >> 12 & 0xFF
    if mode != 0xF0:
        raise EmulatorError(f"float mode {mode:#x}: only rounding to nearest even with denormals is modelled")
    if kernel.descriptor.properties >> 10 & 1:
        raise EmulatorError("waves of 32 lanes")


def dispatch_packet(grid: tuple[int, int, int], threads: int, scratch: int, lds: int, kernarg: int) -> bytes:
    """The HSA packet that a dispatch pointer leads to; grid sizes there are in work-items."""
    sizes = (grid[0] * threads, grid[1], grid[2])
    return struct.pack("<6H5IQQQQ", 0, 3, threads, 1, 1, 0, *sizes, scratch, lds, 0, kernarg, 0, 0)
