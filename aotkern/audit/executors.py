"""What runs the cases of a numerics audit: the emulator, or an NVIDIA GPU; both through the loader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aotkern.arguments import Pointer
from aotkern.audit.cases import Array, Case, Typed
from aotkern.drivers.emulator import EmulatorDriver
from aotkern.errors import MissingToolError
from aotkern.loader import LoadedBundle
from aotkern.loader.choosing import load_one
from aotkern.loader.kernel import Kernel
from aotkern.manifest import VariantEntry


class _Launching:
    """Launches single variants of a loaded bundle."""

    def __init__(self, bundle: LoadedBundle) -> None:
        self._bundle = bundle
        self._kernels: dict[str, Kernel] = {}

    def launch(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> None:
        if variant.text not in self._kernels:
            self._kernels[variant.text] = self._bundle[variant.kernel].only(variant.text)
        self._kernels[variant.text][case.grid](**values)


class Emulated:
    """Runs cases in the emulator, over the arrays themselves.

    Args:
        path: The bundle.
        target: Its architecture, `gfx942` or `gfx950`.
        driver: An emulator with other settings than the ordinary ones.
    """

    def __init__(self, path: Path, target: str, driver: EmulatorDriver | None = None) -> None:
        self._launching = _Launching(load_one(path, driver=driver or EmulatorDriver(), device=target))

    on = "emulator"

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> None:
        """Launch once."""
        self._launching.launch(variant, case, {name: _host(value) for name, value in values.items()})


def _host(value: Any) -> Any:
    data = value.data if isinstance(value, Typed) else value
    if not isinstance(data, np.ndarray):
        return value
    return Pointer(data.ctypes.data, _element(value), data.nbytes, host=True)


def _element(value: Typed | Array) -> str:
    if isinstance(value, Typed):
        return value.element
    kind, size = value.dtype.kind, value.dtype.itemsize * 8
    return f"fp{size}" if kind == "f" else f"{kind}{size}"


class OnGpu:
    """Runs cases on the current NVIDIA GPU, whose memory torch manages.

    Raises:
        MissingToolError: torch is not installed, or sees no GPU.
    """

    def __init__(self, path: Path) -> None:
        try:
            import torch  # noqa: PLC0415 - only for this way of running
        except ImportError as error:
            raise MissingToolError("torch", "to run cases on a GPU", "pip install 'aotkern[torch]'") from error
        if not torch.cuda.is_available():
            raise MissingToolError("a GPU", "to run cases on it", "run them in the emulator: --on emulator")
        self._torch = torch
        self._launching = _Launching(load_one(path, driver="cuda"))
        self.on = f"cuda: {torch.cuda.get_device_name()}"

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> None:
        """Copy the arrays to the GPU, launch once, and copy them back."""
        torch = self._torch
        held: dict[str, tuple[Array, Any]] = {}
        passed: dict[str, Any] = {}
        for name, value in values.items():
            data = value.data if isinstance(value, Typed) else value
            if not isinstance(data, np.ndarray):
                passed[name] = value
                continue
            there = torch.from_numpy(data.reshape(-1).view(np.uint8)).cuda()
            held[name] = (data, there)
            passed[name] = Pointer(there.data_ptr(), _element(value), data.nbytes, there.device.index)
        self._launching.launch(variant, case, passed)
        torch.cuda.synchronize()
        for data, there in held.values():
            data.reshape(-1).view(np.uint8)[...] = there.cpu().numpy()
