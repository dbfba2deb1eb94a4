"""How fast the emulator runs: wave instructions a second, for each way of taking turns.

    python benchmarks/emulator_speed.py OUT.json

The kernel is a sparse attention with 16 heads, 128 dims and 128 entries a row, bf16, 4 waves a workgroup, as Triton
compiles it for each target. `forward` runs one wave at a time, which is what numpy over 64 lanes alone gives; in
`lockstep` all waves of a batch of workgroups that stand at the same place execute together. Every figure is the best of
three runs after one that decodes, in seconds of processor time.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "emulator"))

import sample_kernels
from emulated import EmulatorLauncher

HEADS, DIM, LENGTH, SLOTS = 16, 128, 128, 200


def measured(arch: str, order: str, rows: int) -> dict[str, object]:
    """Best of three: wave instructions and seconds."""
    rng = torch.manual_seed(0)
    q = torch.randn(rows, HEADS, DIM, generator=rng).bfloat16()
    kv = torch.randn(SLOTS, DIM, generator=rng).bfloat16()
    codes = torch.zeros(SLOTS, dtype=torch.uint8)
    indices = torch.randint(0, SLOTS, (rows, LENGTH), generator=rng, dtype=torch.int32)
    out = torch.zeros(rows, HEADS, DIM, dtype=torch.bfloat16)
    device = EmulatorLauncher.of(arch, sample_kernels, wave_order=order)
    seconds = []
    for _ in range(4):
        begin = time.process_time()
        how = {"H": HEADS, "D": DIM, "T": 32, "FP8": False, "num_warps": 4}
        statistics = device["attend"][(rows,)](q, kv, codes, indices, out, LENGTH, **how)
        seconds.append(time.process_time() - begin)
    best = min(seconds[1:])
    return {
        "target": arch,
        "order": order,
        "workgroups": rows,
        "wave_instructions": statistics.wave_instructions,
        "seconds": round(best, 4),
        "per_second": round(statistics.wave_instructions / best),
    }


def main() -> None:
    """Measure and write."""
    rows = [
        measured(arch, order, count)
        for arch in ("gfx942", "gfx950")
        for order, count in (("forward", 1), ("lockstep", 1), ("lockstep", 4), ("lockstep", 16))
    ]
    for row in rows:
        print(*(f"{name}={value}" for name, value in row.items()))
    facts = {"python": platform.python_version(), "numpy": np.__version__, "processors": os.cpu_count()}
    Path(sys.argv[1]).write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
