"""The 64-byte kernel descriptor of AMD's gfx90a family (gfx942, gfx950), as values.

Source: LLVM's "User Guide for AMDGPU Backend", tables "Kernel Descriptor" and "compute_pgm_rsrc1/2/3 for GFX90A,
GFX942". The numbers say how a wave starts and what it is given.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotkern.errors import IntegrityError

BYTES = 64

_LAYOUT = struct.Struct("<3I4sq20s3IHH4s")


@dataclass(frozen=True, slots=True)
class Bits:
    """One field of a register of the descriptor.

    Attributes:
        register: Attribute of `KernelDescriptor` that holds it.
        first: Its lowest bit.
        width: Its bits.
        name: LLVM's name of it, in small letters.
        meaning: What its value means, where that is not the number itself.
    """

    register: str
    first: int
    width: int
    name: str
    meaning: Callable[[int], str] = str

    def of(self, laid_out: KernelDescriptor) -> int:
        """Its value."""
        return int(getattr(laid_out, self.register)) >> self.first & ((1 << self.width) - 1)


_ROUND = ("to nearest even", "to plus infinity", "to minus infinity", "to zero")
_DENORM = ("flush in sources and results", "flush in results", "flush in sources", "keep")


def _of(words: tuple[str, ...]) -> Callable[[int], str]:
    return lambda value: f"{value} ({words[value]})"


def _rows(register: str, *fields: tuple[Any, ...]) -> tuple[Bits, ...]:
    """Fields one above the other, from bit 0 on: width, name and perhaps meaning."""
    rows: list[Bits] = []
    first = 0
    for width, name, *meaning in fields:
        rows.append(Bits(register, first, width, name, *meaning))
        first += width
    return tuple(rows)


FIELDS = (
    *_rows(
        "rsrc1",
        (6, "granulated_workitem_vgpr_count", lambda value: f"{value} ({(value + 1) * 8} VGPRs)"),
        (4, "granulated_wavefront_sgpr_count", lambda value: f"{value} ({(value // 2 + 1) * 16} SGPRs)"),
        (2, "priority"),
        (2, "float_round_mode_32", _of(_ROUND)),
        (2, "float_round_mode_16_64", _of(_ROUND)),
        (2, "float_denorm_mode_32", _of(_DENORM)),
        (2, "float_denorm_mode_16_64", _of(_DENORM)),
        (1, "priv"),
        (1, "enable_dx10_clamp"),
        (1, "debug_mode"),
        (1, "enable_ieee_mode"),
        (1, "bulky"),
        (1, "cdbg_user"),
        (1, "fp16_ovfl"),
        (5, "compute_pgm_rsrc1 reserved bits 27-31"),
    ),
    *_rows(
        "rsrc2",
        (1, "enable_private_segment"),
        (5, "user_sgpr_count"),
        (1, "enable_trap_handler"),
        (1, "enable_sgpr_workgroup_id_x"),
        (1, "enable_sgpr_workgroup_id_y"),
        (1, "enable_sgpr_workgroup_id_z"),
        (1, "enable_sgpr_workgroup_info"),
        (2, "enable_vgpr_workitem_id"),
        (1, "enable_exception_address_watch"),
        (1, "enable_exception_memory"),
        (9, "granulated_lds_size"),
        (1, "enable_exception_ieee_754_fp_invalid_operation"),
        (1, "enable_exception_fp_denormal_source"),
        (1, "enable_exception_ieee_754_fp_division_by_zero"),
        (1, "enable_exception_ieee_754_fp_overflow"),
        (1, "enable_exception_ieee_754_fp_underflow"),
        (1, "enable_exception_ieee_754_fp_inexact"),
        (1, "enable_exception_int_divide_by_zero"),
        (1, "compute_pgm_rsrc2 reserved bit 31"),
    ),
    *_rows(
        "rsrc3",
        (6, "accum_offset", lambda value: f"{value} (AGPRs from register {(value + 1) * 4} on)"),
        (10, "compute_pgm_rsrc3 reserved bits 6-15"),
        (1, "tg_split"),
        (15, "compute_pgm_rsrc3 reserved bits 17-31"),
    ),
    *_rows(
        "properties",
        (1, "enable_sgpr_private_segment_buffer"),
        (1, "enable_sgpr_dispatch_ptr"),
        (1, "enable_sgpr_queue_ptr"),
        (1, "enable_sgpr_kernarg_segment_ptr"),
        (1, "enable_sgpr_dispatch_id"),
        (1, "enable_sgpr_flat_scratch_init"),
        (1, "enable_sgpr_private_segment_size"),
        (3, "kernel_code_properties reserved bits 7-9"),
        (1, "enable_wavefront_size32"),
        (1, "uses_dynamic_stack"),
        (4, "kernel_code_properties reserved bits 12-15"),
    ),
    *_rows("preload", (7, "kernarg_preload_spec_length"), (9, "kernarg_preload_spec_offset")),
)
"""Every bit of the registers of a descriptor, by name."""


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


def fields(laid_out: KernelDescriptor) -> dict[str, int | str]:
    """Every field by LLVM's name: sizes as numbers of bytes, the fields of registers as texts with their meaning."""
    sizes: dict[str, int | str] = {
        "group_segment_fixed_size": laid_out.group_bytes,
        "private_segment_fixed_size": laid_out.private_bytes,
        "kernarg_size": laid_out.kernarg_bytes,
        "kernel_code_entry_byte_offset": laid_out.entry_offset,
    }
    return sizes | {item.name: item.meaning(item.of(laid_out)) for item in FIELDS}
