"""Waves of a SIMD: hand-computed cases, and the compiler's own count for the registers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

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


@pytest.mark.parametrize("target", [GFX942, GFX950], ids=str)
@pytest.mark.parametrize("size", [64, 4096, 8192])
def test_the_compiler_counts_the_same_waves_for_the_registers(
    target: Target, size: int, pinned_process: None, tmp_path: Path
) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    source = tmp_path / "wide.py"
    source.write_text(WIDE, "utf-8")
    spec = importlib.util.spec_from_file_location("wide", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = triton.compiler.ASTSource(module.wide, {"x": "*fp32", "SIZE": "constexpr"}, {(1,): size}, {})
    text = triton.compile(kernel, GPUTarget("hip", target.arch, 64), {"num_warps": 1, "enable_fp_fusion": True}).asm[
        "amdgcn"
    ]
    said = {
        name: int(value)
        for name, value in re.findall(r"^; (TotalNumVgprs|TotalNumSgprs|Occupancy): (\d+)$", text, re.M)
    }
    found = occupancy(target, vgprs=said["TotalNumVgprs"], sgprs=said["TotalNumSgprs"], lds_bytes=0, num_warps=1)
    assert found is not None
    assert found.waves == said["Occupancy"]


WIDE = """\
import triton
import triton.language as tl


@triton.jit
def wide(x, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    values = tl.load(x + place)
    tl.store(x + place, values / tl.sum(values))
"""
