"""What the run-time half takes from the environment: the one place below the command line that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HIP_LIBRARY = "AOTKERN_HIP_LIBRARY"
"""Path of the libamdhip64.so to use, before every other place."""
CUDA_LIBRARY = "AOTKERN_CUDA_LIBRARY"
"""Path of the libcuda.so to use, before every other place."""
BUNDLE_PATH = "AOTKERN_BUNDLE_PATH"
"""Folders in which bundles are looked for by name, separated like PATH."""
OTHERS = "AOTKERN_OTHERS"
"""Set to "accept", bundle files that anybody may have written are used; see `aotkern.loader.owners`."""
DENY = "AOTKERN_DENY"
"""Binaries that are out of service; see `aotkern.deny`."""
PURE_PYTHON = "AOTKERN_PURE_PYTHON"
"""Set to 1, the C extension is left out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process.

    Attributes:
        hip_library: Where libamdhip64.so is, if the user says so.
        cuda_library: Where libcuda.so is, if the user says so.
        rocm: Root folders of ROCm installations (ROCM_PATH, HIP_PATH).
        bundle_path: Folders in which bundles are looked for by name.
        pure_python: Leave the C extension out.
        accept_others: Use bundle files that anybody may have written.
        deny: Binaries that are out of service, as the user wrote it.
    """

    hip_library: Path | None = None
    cuda_library: Path | None = None
    rocm: tuple[Path, ...] = ()
    bundle_path: tuple[Path, ...] = ()
    pure_python: bool = False
    accept_others: bool = False
    deny: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings in an environment; this process's own unless another is given."""
        given = os.environ if environment is None else environment
        return cls(
            hip_library=Path(given[HIP_LIBRARY]) if given.get(HIP_LIBRARY) else None,
            cuda_library=Path(given[CUDA_LIBRARY]) if given.get(CUDA_LIBRARY) else None,
            rocm=tuple(Path(given[name]) for name in ("ROCM_PATH", "HIP_PATH") if given.get(name)),
            bundle_path=tuple(Path(part) for part in given.get(BUNDLE_PATH, "").split(os.pathsep) if part),
            pure_python=given.get(PURE_PYTHON, "") not in ("", "0"),
            accept_others=given.get(OTHERS, "") == "accept",
            deny=given.get(DENY, ""),
        )
