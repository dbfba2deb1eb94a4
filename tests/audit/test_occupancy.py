"""Waves of a SIMD: hand-computed cases, and the compiler's own count for the registers."""

from __future__ import annotations

import pytest
from hand_made import GFX942, GFX950, SM90

from aotkern.audit.occupancy import Occupancy, occupancy
from aotkern.target import Target


@pytest.mark.parametrize(
    ("target", "vgprs", "sgprs", "lds", "warps", "expected"),
    [
        (GFX942, 1, 1, 0, 4, Occupancy(8, "waves")),
        (GFX942, 64, 32, 0, 4, Occupancy(8, "waves")),
        (GFX942, 65, 32, 0, 4, Occupancy(7, "vgprs")),  # 72 of 512
        (GFX942, 128, 32, 0, 4, Occupancy(4, "vgprs")),
        (GFX942, 129, 32, 0, 4, Occupancy(3, "vgprs")),  # 136 of 512
        (GFX942, 512, 32, 0, 4, Occupancy(1, "vgprs")),
        (GFX942, 32, 32, 8192, 4, Occupancy(8, "waves")),  # eight workgroups of a wave on each SIMD
        (GFX942, 32, 32, 8193, 4, Occupancy(7, "lds")),  # 8,704 of 65,536
        (GFX942, 32, 32, 65_536, 4, Occupancy(1, "lds")),
        (GFX942, 32, 32, 65_536, 8, Occupancy(2, "lds")),
        (GFX942, 32, 32, 65_537, 4, Occupancy(0, "lds")),  # no workgroup fits
        (GFX950, 32, 32, 65_537, 4, Occupancy(2, "lds")),  # 66,560 of 163,840
        (GFX950, 32, 32, 20_480, 4, Occupancy(8, "waves")),
        (GFX950, 32, 32, 20_481, 4, Occupancy(7, "lds")),  # 21,760 of 163,840
        (GFX942, 32, 32, 30_000, 1, Occupancy(1, "lds")),  # two waves on a unit of four SIMDs: one on some
    ],
)
def test_what_limits_the_waves(
    target: Target, vgprs: int, sgprs: int, lds: int, warps: int, expected: Occupancy
) -> None:
    assert occupancy(target, vgprs=vgprs, sgprs=sgprs, lds_bytes=lds, num_warps=warps) == expected


def test_where_the_granularity_is_not_known_nothing_is_claimed() -> None:
    assert occupancy(SM90, vgprs=1, sgprs=1, lds_bytes=0, num_warps=4) is None
