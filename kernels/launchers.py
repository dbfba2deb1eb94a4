"""What the host code launches through, and the launcher that is Triton's JIT.

A launcher maps a kernel's name to something that is indexed by a grid and then called, as a `@triton.jit` function is:

    launcher["decode_reduce"][(rows, heads)](part_m, ..., NUM_SPLITS=8, num_warps=4)

A loaded bundle offers the same call. Which kernels a device should get is not the launcher's business but that of the
`Platform` that the host code is given.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from aotkern.errors import InputError

Design = Literal["gfx942", "gfx950"]
"""Which of the two families of attention kernels: the one as it was for gfx942, or the one made for gfx950."""

KERNEL_MODULES: Final = (
    "compressed_writer",
    "compressor_state",
    "gather",
    "gfx950_partial",
    "indexer_writer",
    "legacy_partial",
    "main_writer",
    "monolithic",
    "ragged_pack",
    "reducer",
)
"""The modules of this package that declare kernels."""

LAUNCH_OPTIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "decode_partial_gfx950": {"num_warps": 4},
    "decode_partial_legacy": {"num_warps": 4},
    "decode_monolithic": {"num_warps": 8},
    "decode_reduce": {"num_warps": 4},
    "pack_ragged": {"num_warps": 4},
}
"""Compile options of each attention kernel, for its declaration and for its launches alike.

No kernel hints at waves per execution unit, and pipeline stages are arguments of the loops.
"""


_NVIDIA: Final = re.compile(r"(sm_?)?\d{2,3}[af]?")


class Launcher(Protocol):
    """Whatever launches kernels by name."""

    def __getitem__(self, kernel: str, /) -> Any:
        """What `[grid](*arguments, **constants)` launches."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The facts of a device that decode depends on.

    Attributes:
        design: Which attention kernels to use.
        fnuz_main: Whether the main cache holds E4M3 FNUZ bytes. Compressed caches are OCP everywhere.
        compute_units: Compute units (multiprocessors) of the device that holds the tensors.
    """

    design: Design
    fnuz_main: bool
    compute_units: int

    @classmethod
    def of(cls, arch: str, compute_units: int) -> Platform:
        """The platform of an architecture: gfx942, whose main cache is FNUZ; gfx950 and NVIDIA GPUs, which are OCP.

        Other architectures are refused: nothing here was compiled or compared for them. Who means to try states a
        `Platform` of his own.

        Args:
            arch: As `design_of` takes it.
            compute_units: Of the very device: parts of one architecture differ.

        Raises:
            InputError: No kernels of this family are made for the architecture.
        """
        design = design_of(arch)
        return cls(design, fnuz_main=design == "gfx942", compute_units=compute_units)


def design_of(arch: str) -> Design:
    """The design of an architecture: gfx942's for gfx942, gfx950's for gfx950 and for NVIDIA GPUs.

    Args:
        arch: Architecture as in a target's name, or as a driver calls it: `gfx942`, `gfx942:sramecc+:xnack-`, `90`,
            `90a`, `sm_90`. Features behind a colon make no difference.

    Raises:
        InputError: No kernels of this family are made for it.
    """
    name = arch.removeprefix("hip:").removeprefix("cuda:").partition(":")[0]
    if name == "gfx942" or name == "gfx950":
        return name
    if _NVIDIA.fullmatch(name):
        return "gfx950"
    raise InputError.one("architecture of the decode kernels", "gfx942, gfx950, or that of an NVIDIA GPU", repr(arch))


class JitLauncher:
    """Launches through Triton's JIT; kernels are looked up in the `KERNELS` of modules, which import Triton.

    Args:
        modules: Module names inside this package.
    """

    def __init__(self, modules: tuple[str, ...] = KERNEL_MODULES) -> None:
        loaded = [importlib.import_module(f".{name}", __package__) for name in modules]
        self._kernels = {kernel.name: kernel.function for module in loaded for kernel in module.KERNELS}

    def __getitem__(self, kernel: str, /) -> Any:
        """The JIT function of `kernel`."""
        return self._kernels[kernel]
