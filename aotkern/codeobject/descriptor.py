"""The 64-byte kernel descriptor of AMD's gfx90a family (gfx942, gfx950), as values.

Source: LLVM's "User Guide for AMDGPU Backend", tables "Kernel Descriptor" and "compute_pgm_rsrc1/2/3 for GFX90A,
GFX942". The numbers say how a wave starts and what it is given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aotkern.errors import IntegrityError

BYTES = 64

_LAYOUT = struct.Struct("<3I4sq20s3IHH4s")


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """A kernel descriptor.

    Attributes:
        group_bytes: LDS of a workgroup that the kernel itself asks for.
        private_bytes: Scratch of a lane.
        kernarg_bytes: Size of the argument buffer.
        entry_offset: From the descriptor's address to the first instruction; may be negative.
        rsrc3: `compute_pgm_rsrc3`: accumulation registers, thread-group split.
        rsrc1: `compute_pgm_rsrc1`: registers, float modes.
        rsrc2: `compute_pgm_rsrc2`: user SGPRs, workgroup ids, traps.
        properties: `kernel_code_properties`: which values the user SGPRs begin with.
        preload: `kernarg_preload`: length and offset in dwords.
    """

    group_bytes: int
    private_bytes: int
    kernarg_bytes: int
    entry_offset: int
    rsrc3: int
    rsrc1: int
    rsrc2: int
    properties: int
    preload: int

    @classmethod
    def parse(cls, data: bytes, where: str) -> KernelDescriptor:
        """Read the 64 bytes.

        Raises:
            IntegrityError: Not 64 bytes, or reserved bytes in use.
        """
        if len(data) != BYTES:
            raise IntegrityError.one(where, f"{BYTES} bytes", f"{len(data)} bytes")
        group, private, kernarg, gap, entry, hole, rsrc3, rsrc1, rsrc2, properties, preload, tail = _LAYOUT.unpack(data)
        if any(gap + hole + tail):
            raise IntegrityError.one(f"{where}/reserved", "zeros", (gap + hole + tail).hex())
        return cls(group, private, kernarg, entry, rsrc3, rsrc1, rsrc2, properties, preload)

    @property
    def vgprs(self) -> int:
        """Vector registers allocated to a lane, accumulation registers included: granules of 8."""
        return ((self.rsrc1 & 0x3F) + 1) * 8

    @property
    def accum_offset(self) -> int:
        """The first accumulation register's place in the unified register file: granules of 4."""
        return ((self.rsrc3 & 0x3F) + 1) * 4

    @property
    def sgprs(self) -> int:
        """Scalar registers allocated to a wave: granules of 16, counted in halves."""
        return ((self.rsrc1 >> 6 & 0xF) // 2 + 1) * 16

    @property
    def wave(self) -> int:
        """Lanes of a wave."""
        return 32 if self.properties >> 10 & 1 else 64

    @property
    def user_sgprs(self) -> int:
        """Scalar registers set before the wave starts, preloaded arguments included."""
        return self.rsrc2 >> 1 & 0x1F

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        """Which workgroup ids (x, y, z) follow the user SGPRs."""
        return bool(self.rsrc2 >> 7 & 1), bool(self.rsrc2 >> 8 & 1), bool(self.rsrc2 >> 9 & 1)

    @property
    def workitem_ids(self) -> int:
        """How many dimensions of the work-item id are set up, less one."""
        return self.rsrc2 >> 11 & 3

    @property
    def uses_scratch(self) -> bool:
        """Whether a wave is given a private segment."""
        return bool(self.rsrc2 & 1)

    @property
    def flushes_denormals(self) -> bool:
        """Whether the kernel starts with denormal numbers of 32 bits flushed, in sources or results."""
        return self.rsrc1 >> 16 & 3 != 3

    @property
    def splits_threadgroup(self) -> bool:
        """Whether the waves of a workgroup may be spread over the halves of a compute unit (tg_split)."""
        return bool(self.rsrc3 >> 16 & 1)

    @property
    def preload_dwords(self) -> int:
        """How many dwords of the arguments are loaded into user SGPRs; then the entry is 256 bytes further on."""
        return self.preload & 0x7F

    @property
    def preload_offset(self) -> int:
        """The first of them, in dwords from the start of the argument buffer."""
        return self.preload >> 7
