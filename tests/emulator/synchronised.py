"""The kernels of `synchronised_kernels` with arguments, compiled for a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import synchronised_kernels as kernels
import torch
from emulated import EmulatorLauncher, buffers, packed

from aotkern.emulator import Statistics, run


@dataclass
class Subject:
    """A compiled kernel with its arguments.

    Attributes:
        name: Kernel and constants.
        code: The HSACO.
        how: Arguments of `run`.
        passed: Types and values of the run-time arguments; the outputs among them are changed.
        outputs: Which tensors are outputs.
    """

    name: str
    code: bytes
    how: Mapping[str, Any]
    passed: list[Any]
    outputs: tuple[torch.Tensor, ...]

    def run(self, code: bytes | None = None, **further: Any) -> Statistics:
        """Run the code, or a changed one, into fresh outputs."""
        for output in self.outputs:
            output.view(torch.uint8).fill_(0xA5)
        return run(code or self.code, **self.how, buffers=buffers(self.passed), **further)

    def results(self) -> bytes:
        """What the outputs hold."""
        return b"".join(output.contiguous().view(torch.uint8).numpy().tobytes() for output in self.outputs)


def subjects(arch: str, quick: bool = False) -> list[Subject]:
    """All kernels for a target, or those of a short test."""
    rng = torch.manual_seed(5)
    left = torch.randn(64, 128, generator=rng).half()
    right = torch.randn(128, 64, generator=rng).half()
    row = torch.randn(1024, generator=rng)
    square = torch.randn(64, 64, generator=rng)
    small = torch.randint(0, 64, (512,), generator=rng, dtype=torch.int32)
    q, k, v = (torch.randn(64, 64, generator=rng).bfloat16() for _ in range(3))
    tile, line = torch.zeros(64, 64), torch.zeros(1024)
    made = [
        _made(arch, kernels.multiply, (left, right, tile, 128), (tile,), num_stages=stages, num_warps=4)
        for stages in (1, 2, 3)
    ]
    made += [
        _made(arch, kernels.softmax, (row, line), (line,), B=1024, num_warps=4),
        _made(arch, kernels.cumulate, (row, line), (line,), B=1024, num_warps=4),
    ]
    if quick:
        return made
    few = torch.zeros(64, dtype=torch.int32)
    return [
        *made,
        _made(arch, kernels.transpose, (square, tile), (tile,), B=64, num_warps=4),
        _made(arch, kernels.order, (row, line), (line,), B=512, num_warps=4),
        _made(arch, kernels.count, (small, few), (few,), B=512, num_warps=4),
        _made(arch, kernels.attend, (q, k, v, tile, 64), (tile,), D=64, num_warps=4),
        _made(arch, kernels.attend, (q, k, v, tile, 64), (tile,), D=64, num_warps=2, num_stages=3),
    ]


def _made(arch: str, kernel: Any, arguments: Any, outputs: Any, **constants: Any) -> Subject:
    compiled, passed = EmulatorLauncher(arch, {}).compiled(kernel, arguments, constants)
    how = {
        "grid": (1, 1, 1),
        "threads": 64 * compiled.metadata.num_warps,
        "kernarg": packed(passed),
        "dynamic_lds": compiled.metadata.shared,
    }
    name = f"{kernel.fn.__name__} {constants}"
    return Subject(name, compiled.asm["hsaco"], how, passed, tuple(outputs))
