"""How fast the emulator runs: wave instructions a second, for each way of taking turns.

    python -m benchmarks emulator

The kernel is a sparse attention with 16 heads, 128 dims and 128 entries a row, bf16, 4 waves a workgroup, as Triton
compiles it for each target. `forward` runs one wave at a time, which is what numpy over 64 lanes alone gives; in
`lockstep` all waves of a batch of workgroups that stand at the same place execute together. Seconds are of processor
time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from aotkern.bench import Measurement, Row, Run, Table, interleaved, observed
from benchmarks import common
from benchmarks.common import Options

sys.path.insert(0, str(common.ROOT / "tests" / "emulator"))

HEADS, DIM, LENGTH, SLOTS = 16, 128, 128, 200
CASES = (("forward", 1), ("lockstep", 1), ("lockstep", 4), ("lockstep", 16))


def measure(options: Options) -> Run:
    common.needs("triton", "torch", "numpy", "rocm")
    observation = observed("emulator", common.command("emulator", options), ("rocm-llvm-python",))
    cases = CASES[:2] if options.quick else CASES
    instructions: dict[str, int] = {}
    samplers = {
        f"{arch}, {order}, {rows} workgroups": attention(arch, order, rows, instructions)
        for arch in ("gfx942", "gfx950")
        for order, rows in cases
    }
    times = interleaved(samplers, 2 if options.quick else 5, 1)
    made = []
    for name, samples in times.items():
        count = instructions[name]
        rate = Measurement.of("1/s", (count / sample for sample in samples))
        made.append(Row(name, (str(count), Measurement.of("s", samples), rate)))
    columns = ("target, order, size", "wave instructions", "processor time", "wave instructions a second")
    return observation.run((Table("sparse attention in the emulator", columns, tuple(made)),))


def attention(arch: str, order: str, rows: int, instructions: dict[str, int]) -> Callable[[], float]:
    """A sampler of one launch, which also notes how many wave instructions it has."""
    import emulated_kernels
    import torch
    from emulated import EmulatorLauncher

    rng = torch.manual_seed(0)
    q = torch.randn(rows, HEADS, DIM, generator=rng).bfloat16()
    kv = torch.randn(SLOTS, DIM, generator=rng).bfloat16()
    codes = torch.zeros(SLOTS, dtype=torch.uint8)
    indices = torch.randint(0, SLOTS, (rows, LENGTH), generator=rng, dtype=torch.int32)
    out = torch.zeros(rows, HEADS, DIM, dtype=torch.bfloat16)
    device = EmulatorLauncher.of(arch, emulated_kernels, wave_order=order)
    how = {"H": HEADS, "D": DIM, "T": 32, "FP8": False, "num_warps": 4}

    def sample() -> float:
        begin = time.process_time()
        statistics = device["attend"][(rows,)](q, kv, codes, indices, out, LENGTH, **how)
        instructions[f"{arch}, {order}, {rows} workgroups"] = statistics.wave_instructions
        return time.process_time() - begin

    return sample
