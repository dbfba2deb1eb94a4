"""What runs the cases of a numerics audit: the emulator, or an NVIDIA GPU; both through the loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotkern.arguments import Pointer
from aotkern.audit.cases import Array, Case, Sparse, Typed
from aotkern.audit.execution import PAGE, Execution, data_of, pages_of
from aotkern.drivers.emulator import EmulatorDriver
from aotkern.emulator import Statistics
from aotkern.errors import MissingToolError
from aotkern.loader import LoadedBundle
from aotkern.loader.choosing import load_one
from aotkern.loader.kernel import Kernel
from aotkern.manifest import VariantEntry

ORDERS: Mapping[str, Mapping[str, Any]] = {
    "lockstep": {},
    "forward": {"wave_order": "forward"},
    "reverse": {"wave_order": "reverse", "preload": False},
    "random": {"wave_order": "random"},
    "races": {"detect_races": True},
    "latest": {"latest": True},
}
"""Ways to run the waves of a launch, as options of the emulator. `races` is lockstep in which waves that touch the same
memory without an order between them are a fault; in `latest` memory instructions take effect as late as the waits
allow. `reverse` also enters the code where a loader does
that preloads no arguments, so that both beginnings of a kernel are executed."""
USUAL_ORDERS = ("lockstep", "reverse")
"""One in which waves go together, and one in which each goes as far as it can before the others begin."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a launch in the emulator may take before it is given up.

    Attributes:
        instructions: Most wave instructions.
        seconds: Most seconds; None for as long as it takes.
    """

    instructions: int = 1 << 32
    seconds: float | None = None


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
        order: Its name among `ORDERS`; by default the driver's own.
    """

    def __init__(self, path: Path, target: str, driver: EmulatorDriver | None = None, order: str = "") -> None:
        self._driver = driver or EmulatorDriver()
        self._launching = _Launching(load_one(path, driver=self._driver, device=target))
        self.order = order or self._driver.wave_order

    on = "emulator"

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> Execution:
        """Launch once."""
        self._driver.last = None
        self._launching.launch(variant, case, {name: _host(value) for name, value in values.items()})
        return _told(self._driver.last, values)


def _told(last: Statistics | None, values: Mapping[str, Any]) -> Execution:
    """What is known of a launch; without statistics the grid was empty."""
    stored: dict[str, frozenset[int]] = {}
    for name, value in values.items():
        data = data_of(value)
        if last is None or data is None:
            continue
        for stores in last.stores:
            if stores.address <= data.ctypes.data < stores.address + stores.size:
                stored[name] = stores.pages
    return Execution(stored, frozenset(last.addresses if last else ()))


def emulated(
    path: Path, target: str, orders: Sequence[str] = USUAL_ORDERS, limits: Limits | None = None, seed: int = 0
) -> tuple[Emulated, ...]:
    """One executor for each order, as named in `ORDERS`."""
    limits = limits or Limits()
    return tuple(
        Emulated(
            path,
            target,
            EmulatorDriver(seed=seed, limit=limits.instructions, timeout=limits.seconds, **ORDERS[order]),
            order,
        )
        for order in orders
    )


def _host(value: Any) -> Any:
    data = data_of(value)
    if data is None:
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

    order = ""

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

    def run(self, variant: VariantEntry, case: Case, values: Mapping[str, Any]) -> Execution:
        """Copy the arrays to the GPU, launch once, and copy them back."""
        torch = self._torch
        held: dict[str, tuple[Array, Any]] = {}
        passed: dict[str, Any] = {}
        for name, value in values.items():
            data = data_of(value)
            if data is None:
                passed[name] = value
                continue
            there = self._copied(data, case.arguments.get(name))
            held[name] = (data, there)
            passed[name] = Pointer(there.data_ptr(), _element(value), data.nbytes, there.device.index)
        self._launching.launch(variant, case, passed)
        torch.cuda.synchronize()
        stored = {name: self._back(*pair, case.arguments.get(name)) for name, pair in held.items()}
        return Execution({name: pages for name, pages in stored.items() if pages is not None})

    def _copied(self, data: Array, given: Any) -> Any:
        """The array on the GPU; of a sparse one only the pieces travel."""
        torch = self._torch
        flat = data.reshape(-1).view(np.uint8)
        if not isinstance(given, Sparse):
            return torch.from_numpy(flat).cuda()
        there = torch.zeros(flat.size, dtype=torch.uint8, device="cuda")
        for offset, piece in given.pieces.items():
            there[offset : offset + piece.nbytes] = torch.from_numpy(flat[offset : offset + piece.nbytes]).cuda()
        return there

    def _back(self, data: Array, there: Any, given: Any) -> frozenset[int] | None:
        """Copy back, and tell whether anything changed: the pages of a sparse array that hold anything."""
        flat = data.reshape(-1).view(np.uint8)
        if not isinstance(given, Sparse):
            after = there.cpu().numpy()
            same = np.array_equal(after, flat)
            flat[...] = after
            return None if same else frozenset()
        held = set(pages_of(given))
        for start in range(0, flat.size, _CHUNK):
            part = there[start : start + _CHUNK]
            used = self._torch.nonzero(part).cpu().numpy() // PAGE
            held.update((np.unique(used) + start // PAGE).tolist())
        for page in held:
            flat[page * PAGE : (page + 1) * PAGE] = there[page * PAGE : (page + 1) * PAGE].cpu().numpy()
        return frozenset(held)


_CHUNK = 1 << 28  # bytes of sparse memory that are searched at a time
