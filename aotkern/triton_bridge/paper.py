"""A device on paper: Triton's whole JIT path on a machine without a GPU, up to the launch, which does nothing.

Triton asks a driver for the target, the device and the stream, and tensors for an address, a dtype and the size of
their storage. Both can be made up. What is compiled is real code for the target; only loading and launching are not.

It imports Triton by itself, for those who simulate a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from aotkern.errors import MissingToolError
from aotkern.target import Backend, Target


@dataclass(frozen=True)
class PaperTensor:
    """A tensor without memory, as far as a kernel launch looks at one.

    Attributes:
        dtype: Triton's or torch's name of the element type, such as `float32`.
        address: The address it claims.
        storage: Bytes of the storage behind it.
        shape: Its extents.
    """

    dtype: str
    address: int = 4096
    storage: int = 1 << 20
    shape: tuple[int, ...] = (1,)

    def data_ptr(self) -> int:
        """The address."""
        return self.address

    def ptr_range(self) -> int:
        """Bytes of the storage, which Triton asks for on AMD targets."""
        return self.storage


class InventedTimes(list[float]):
    """Times of a benchmark on a device that does not exist: a choice that is made by them says nothing."""


class _Utils:
    """The part of a driver that loads binaries: accepts all, loads none.

    Args:
        target: What the device is; its limits are those of the real one.
    """

    def __init__(self, target: Target) -> None:
        self._limits = target.limits

    def load_binary(self, *_: Any) -> tuple[None, int, int, int, int]:
        # No module, so that nothing is unloaded later, when another driver may be active.
        return None, 0, 0, 0, 1024

    def get_device_properties(self, _: int) -> dict[str, int]:
        limits = self._limits
        return {
            "max_shared_mem": limits.lds_bytes,
            "multiprocessor_count": limits.units,
            "warpSize": limits.wave,
            "max_num_regs": 65536,
            # What a roofline model asks for; of a device on paper it says nothing.
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 4096,
        }


class PaperDriver:
    """A Triton driver for one device that does not exist.

    Args:
        target: What the device is.
        launched: Called for each launch with the grid.
    """

    def __init__(self, target: Target, launched: Callable[[tuple[int, int, int]], None] | None = None) -> None:
        from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - the program may not have Triton

        arch: int | str = int(target.arch) if target.backend is Backend.CUDA else target.arch
        self._target = GPUTarget(target.backend.value, arch, target.limits.wave)
        self._launched = launched
        self.utils = _Utils(target)

    @staticmethod
    def is_active() -> bool:
        """A driver of Triton says so of its device."""
        return True

    def get_active_torch_device(self) -> Any:
        """The device by torch's name; torch need not have been built for it."""
        import torch  # noqa: PLC0415 - the program's own

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """What Triton's benchmarks ask for events."""
        import torch  # noqa: PLC0415 - the program's own

        return torch.cuda

    def get_current_target(self) -> Any:
        """Triton's target object."""
        return self._target

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        """The default stream."""
        del device
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What Triton calls to launch a compiled kernel."""
        del source, metadata

        def launch(x: int, y: int, z: int, *_: Any) -> None:
            if self._launched is not None:
                self._launched((x, y, z))

        return launch

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Benchmarks for autotuning: each candidate runs once, and the later ones are slower."""
        times = iter(range(1, 1 << 30))

        def bench(call: Callable[[], None], quantiles: Any = None) -> list[float]:
            del quantiles
            call()
            return InventedTimes([float(next(times))] * 3)

        return bench


@contextmanager
def paper_device(
    target: Target, launched: Callable[[tuple[int, int, int]], None] | None = None
) -> Iterator[PaperDriver]:
    """Make a device on paper Triton's active one for the duration of a block.

    Raises:
        MissingToolError: Triton is not installed.
    """
    try:
        from triton.backends import backends  # noqa: PLC0415 - the program may not have Triton
        from triton.runtime.driver import driver as active  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError("triton", "to follow its JIT", "pip install aotkern[build]") from error
    before = active._active
    device = PaperDriver(target, launched)
    active.set_active(device)
    try:
        with ExitStack() as stack:
            for name, backend in backends.items():
                stack.enter_context(_said_active(backend.driver, name == _BACKENDS[target.backend]))
            yield device
    finally:
        active._active = before


_BACKENDS = {Backend.HIP: "amd", Backend.CUDA: "nvidia"}


@contextmanager
def _said_active(driver: Any, active: bool) -> Iterator[None]:
    """Libraries ask each of Triton's drivers whether it has a device, and do without Triton where none says so."""
    own = vars(driver).get("is_active")
    driver.is_active = staticmethod(lambda: active)
    try:
        yield
    finally:
        if own is None:
            del driver.is_active
        else:
            driver.is_active = own
