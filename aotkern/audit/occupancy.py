"""How many waves of a kernel fit on one SIMD, from the registers and LDS that it takes.

Sources: AMD CDNA 3 and CDNA 4 ISA guides and LLVM's AMDGPU usage guide (register and LDS allocation granularity). The
figures are arithmetic about the hardware, not measurements on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotkern.target import Target


@dataclass(frozen=True, slots=True)
class Unit:
    """One compute unit.

    Attributes:
        simds: SIMDs of a compute unit.
        max_waves: Most waves of one SIMD.
        vgprs: Vector registers of a lane, accumulation registers included; shared by the waves of a SIMD.
        vgpr_granule: Vector registers are handed out in multiples of this.
        sgprs: Scalar registers of a SIMD.
        sgpr_granule: Scalar registers are handed out in multiples of this.
        lds_bytes: LDS of a compute unit.
        lds_granule: LDS is handed out in multiples of this, in bytes.
    """

    simds: int
    max_waves: int
    vgprs: int
    vgpr_granule: int
    sgprs: int
    sgpr_granule: int
    lds_bytes: int
    lds_granule: int


_UNITS = {
    "gfx942": Unit(4, 8, 512, 8, 800, 16, 65_536, 512),
    "gfx950": Unit(4, 8, 512, 8, 800, 16, 163_840, 1_280),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Waves of a SIMD, and what limits them: `vgprs`, `sgprs`, `lds` or `waves` (the hardware's own limit)."""

    waves: int
    limit: str


def occupancy(target: Target, *, vgprs: int, sgprs: int, lds_bytes: int, num_warps: int) -> Occupancy | None:
    """Waves that one SIMD can hold of a kernel, or None where the hardware's granularity is not known here.

    Args:
        target: AMD targets only.
        vgprs: Vector registers of a lane, accumulation registers included.
        sgprs: Scalar registers of a wave.
        lds_bytes: LDS of a workgroup.
        num_warps: Waves of a workgroup.
    """
    unit = _UNITS.get(target.arch)
    if unit is None:
        return None
    groups = unit.lds_bytes // _rounded(lds_bytes, unit.lds_granule) if lds_bytes else unit.max_waves * unit.simds
    by_lds = groups * num_warps // unit.simds or int(groups > 0)
    candidates = {
        "waves": unit.max_waves,
        "vgprs": unit.vgprs // _rounded(max(vgprs, 1), unit.vgpr_granule),
        "sgprs": unit.sgprs // _rounded(max(sgprs, 1), unit.sgpr_granule),
        "lds": by_lds,
    }
    limit = min(candidates, key=lambda name: candidates[name])
    return Occupancy(candidates[limit], limit)


def _rounded(value: int, granule: int) -> int:
    return -(-value // granule) * granule
