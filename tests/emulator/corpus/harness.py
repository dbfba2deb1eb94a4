"""What a configuration of the corpus is, and how one is compiled, run and compared.

prepared = prepare(configuration, "gfx942", seed=0)
statistics = prepared.run(wave_order="reverse")
complaint = prepared.complaint()   # None when the numbers are right
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from emulated import EmulatorLauncher, buffers, packed

from aotkern.emulator import Buffer, Statistics, run

ARCHS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Near:
    """An expected result with its tolerance, against the result as float64.

    Attributes:
        value: Expected, of the shape of the argument.
        relative: Allowed difference as a part of the expected size.
        absolute: Allowed difference besides.
    """

    value: Any
    relative: float = 0.0
    absolute: float = 0.0


Expected = Near | np.ndarray | Callable[[torch.Tensor], "str | None"]
"""A tolerance, exact bits, or a function that complains."""


@dataclass(frozen=True)
class Case:
    """Arguments of one launch and what it must leave in them.

    Attributes:
        arguments: In the order of the kernel's parameters, constants left out.
        expected: By position of the argument.
    """

    arguments: tuple[Any, ...]
    expected: Mapping[int, Expected]


@dataclass(frozen=True)
class Configuration:
    """One kernel with its constants, and how its case is made.

    Attributes:
        kind: Row of the coverage table.
        name: Unique among all.
        kernel: The JIT function.
        grid: Workgroups.
        constants: Compile-time parameters and options such as `num_warps`.
        make: The case for a generator of random numbers and a target.
        archs: Targets that it is meant for.
        refused: Targets on which Triton 3.9 itself does not compile it, with a part of its message.
        order_shows: The results depend on the order of programs, rightly (old values of atomics).
        explained: Targets on which Triton 3.9's code is wrong, with the section of docs/triton-faults.md.
    """

    kind: str
    name: str
    kernel: Any
    grid: tuple[int, ...]
    constants: Mapping[str, Any]
    make: Callable[[np.random.Generator, str], Case]
    archs: tuple[str, ...] = ARCHS
    refused: Mapping[str, str] = field(default_factory=dict)
    order_shows: bool = False
    explained: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A compiled configuration with the arguments of its case.

    Attributes:
        configuration: Which.
        code: The HSACO.
        how: `grid`, `threads`, `kernarg` and `dynamic_lds` for `aotkern.emulator.run`.
        passed: Types and values of the run-time arguments.
        case: The case; its tensors are changed by `run`.
    """

    configuration: Configuration
    code: bytes
    how: Mapping[str, Any]
    passed: list[Any]
    case: Case

    @property
    def buffers(self) -> list[Buffer]:
        """The memory that the launch may touch."""
        return buffers(self.passed)

    def run(self, **further: Any) -> Statistics:
        """Run once; further arguments are those of `aotkern.emulator.run`."""
        return run(self.code, **self.how, buffers=self.buffers, **further)

    def complaint(self) -> str | None:
        """What is wrong with the results."""
        for position, expected in self.case.expected.items():
            found = _against(self.case.arguments[position], expected)
            if found is not None:
                return f"argument {position}: {found}"
        return None


def prepare(configuration: Configuration, arch: str, seed: int = 0) -> Prepared:
    """Compile for a target and make the case.

    Raises:
        Exception: Whatever Triton raises where it cannot compile.
    """
    rng = np.random.default_rng(seed)
    case = configuration.make(rng, arch)
    device = EmulatorLauncher(arch, {})
    compiled, passed = device.compiled(configuration.kernel, case.arguments, dict(configuration.constants))
    how = {
        "grid": (*configuration.grid, 1, 1)[:3],
        "threads": 64 * compiled.metadata.num_warps,
        "kernarg": packed(passed),
        "dynamic_lds": compiled.metadata.shared,
    }
    return Prepared(configuration, compiled.asm["hsaco"], how, passed, case)


def _against(found: torch.Tensor, expected: Expected) -> str | None:
    if callable(expected):
        return expected(found)
    if isinstance(expected, np.ndarray):
        return _exact(found, expected)
    value = np.asarray(expected.value, np.float64)
    got = wide(found).reshape(value.shape)
    both = np.isnan(value) & np.isnan(got) | (value == got)
    with np.errstate(invalid="ignore"):
        allowed = np.abs(value) * expected.relative + expected.absolute
        wrong = ~both & ~(np.abs(got - value) <= allowed)
    return _first(wrong, got, value)


def _exact(found: torch.Tensor, expected: np.ndarray) -> str | None:
    size = found.element_size()
    got = found.contiguous().view(-1).view(torch.uint8).numpy().view(f"u{size}")
    want = np.ascontiguousarray(expected).reshape(-1).view(f"u{size}")
    return _first(got != want, got, want)


def _first(wrong: np.ndarray, got: np.ndarray, want: np.ndarray) -> str | None:
    if not wrong.any():
        return None
    at = int(np.flatnonzero(wrong)[0])
    flat = got.reshape(-1)[at], want.reshape(-1)[at]
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {at}: found {flat[0]}, expected {flat[1]}"


def wide(tensor: torch.Tensor) -> np.ndarray:
    """A tensor of any type as float64."""
    return tensor.contiguous().to(torch.float64).numpy()


TYPES: Mapping[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e5m2": torch.float8_e5m2,
    "e4m3": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "u16": torch.uint16,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i64": torch.int64,
    "u64": torch.uint64,
}


def floats(rng: np.random.Generator, kind: str, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers of a type."""
    return torch.from_numpy(rng.standard_normal(shape) * scale).to(TYPES[kind])


def integers(rng: np.random.Generator, kind: str, *shape: int, low: int | None = None, high: int | None = None) -> Any:
    """Random integers of a type, over its whole range unless told otherwise."""
    limits = np.iinfo(kind.replace("u", "uint").replace("i", "int") if kind[0] == "i" else f"uint{kind[1:]}")
    dtype = limits.dtype
    least, most = limits.min if low is None else low, limits.max if high is None else high
    return torch.from_numpy(rng.integers(least, most, shape, dtype=dtype, endpoint=True))


def zeros(kind: str, *shape: int) -> torch.Tensor:
    """Where a result goes."""
    return torch.zeros(shape, dtype=TYPES[kind])


def rounded(value: np.ndarray, kind: str) -> np.ndarray:
    """float64 rounded to a type and back."""
    return wide(torch.from_numpy(np.asarray(value, np.float64)).to(TYPES[kind]))
