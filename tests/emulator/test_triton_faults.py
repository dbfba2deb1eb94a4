"""What docs/triton-faults.md says of Triton 3.9's code, pinned: a new version that mends it fails here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from corpus.elementwise import convert, function
from corpus.harness import TYPES, wide, zeros
from emulated import EmulatorLauncher


def converted(arch: str, origin: torch.Tensor, result: str) -> np.ndarray:
    n = origin.numel()
    out = zeros(result, n)
    device = EmulatorLauncher(arch, {"convert": convert})
    device["convert"][(-(-n // 1024),)](origin, out, n, ROUNDING=None, BLOCK=1024)
    return wide(out)


def codes(kind: str, *values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(TYPES[kind])


def test_infinity_and_nan_of_fp8e5_become_numbers_in_bf16_on_gfx942() -> None:
    found = converted("gfx942", codes("e5m2", 0x7C, 0xFC, 0x7D, 0x7E, 0x7F), "bf16")
    assert found.tolist() == [65536, -65536, 81920, 98304, 114688]
    assert np.isnan(converted("gfx950", codes("e5m2", 0x7D, 0x7E), "bf16")).all()


def test_nan_of_fp8e4nv_becomes_480_in_bf16_on_gfx942() -> None:
    assert np.abs(converted("gfx942", codes("e4m3", 0x7F, 0xFF), "bf16")).tolist() == [480, 480]


def test_fp16_around_464_becomes_nan_in_fp8e4nv_on_gfx942() -> None:
    values = torch.tensor([448.0, 464.0, 464.25, 470.0, 479.75, 480.0, 1000.0], dtype=torch.float16)
    found = converted("gfx942", values, "e4m3")
    assert np.isnan(found).tolist() == [False, False, True, True, True, False, False]
    assert found[[0, 1, 5, 6]].tolist() == [448] * 4


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_roots_of_denormals_are_flushed(arch: str) -> None:
    x, out = torch.full((256,), 2.0**-140), zeros("fp32", 256)
    device = EmulatorLauncher(arch, {"function": function})
    results = []
    for operation in ("sqrt", "rsqrt"):
        device["function"][(1,)](x, x, out, 256, OP=operation, BLOCK=256)
        results.append(float(out[0]))
    assert results == [0.0, float("inf")]
