"""What a driver does for the loader, and the values that pass between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from aotkern.errors import DriverError
from aotkern.grid import Grid
from aotkern.target import Backend, Target


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as its driver describes it.

    Attributes:
        index: Its number, as torch counts too.
        name: Its marketing name.
        arch: Architecture and features as the driver spells them: `gfx942:sramecc+:xnack-`, or `90`.
        target: The same as a target; None for an architecture that aotkern does not know.
        units: Compute units, or multiprocessors.
        shared_bytes: Most LDS (shared memory) that a workgroup can be given, in bytes.
        max_grid: Most workgroups in each dimension.
        max_threads_x: Most work-items along x of a whole grid.
    """

    index: int
    name: str
    arch: str
    target: Target | None
    units: int
    shared_bytes: int
    max_grid: Grid
    max_threads_x: int

    def __str__(self) -> str:
        return f"device {self.index} ({self.name}, {self.arch})"


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel that is loaded on one device.

    Attributes:
        device: The device's number.
        symbol: The kernel's name in the code object.
        module: The driver's handle of the module.
        handle: The driver's handle of the kernel.
    """

    device: int
    symbol: str
    module: int
    handle: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        function: What to launch.
        grid: Workgroups in each dimension (clusters, where `cluster` is more than 1).
        threads: Work-items of a workgroup.
        shared: Dynamic LDS (shared memory) of a workgroup, in bytes.
        stream: The driver's stream handle; 0 for the default stream.
        arguments: The argument buffer.
        offsets: Where each argument starts in it.
        cluster: Workgroups of a cluster.
        cooperative: All workgroups must be resident at once.
        overlap: The launch may start before the one before it has ended (programmatic dependent launch).
        memory: Start and size of each piece of host memory behind the pointers; only for a driver that reads it.
    """

    function: Function
    grid: Grid
    threads: int
    shared: int
    stream: int
    arguments: bytearray
    offsets: tuple[int, ...]
    cluster: int = 1
    cooperative: bool = False
    overlap: bool = False
    memory: tuple[tuple[int, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the driver's ordinary launch call does."""
        return self.cluster == 1 and not self.cooperative and not self.overlap


@dataclass(frozen=True, slots=True)
class Entry:
    """What the C extension needs to launch by itself.

    Attributes:
        launch: Address of `cuLaunchKernel` or `hipModuleLaunchKernel`, which have one signature.
        current: Address of `cuCtxGetCurrent` or `hipGetDevice`, which write what is current through their argument.
        expected: The value that `current` writes when the device is current.
        end: The value that ends the list of the launch call's `extra` parameter.
    """

    launch: int
    current: int
    expected: int
    end: int


Load = Callable[[bytes, str, int], Function]
"""`Driver.load` on a device that is settled: image, symbol and shared memory."""


class Driver(Protocol):
    """A driver. Every method restores the calling thread's current device; any may raise DriverError."""

    @property
    def name(self) -> str:
        """The driver's name in the table."""

    @property
    def backend(self) -> Backend | None:
        """The family of code objects that it loads; None for any."""

    @property
    def reads_host(self) -> bool:
        """Whether kernels run by it can read ordinary host memory."""

    @property
    def library(self) -> str:
        """The shared library that it calls; empty for a driver that needs none."""

    def devices(self) -> tuple[Device, ...]:
        """The devices of this machine."""

    def current_device(self) -> int:
        """Number of the calling thread's current device."""

    def capturing(self, device: int, stream: int) -> bool:
        """Whether a graph is being captured from this stream."""

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        """Load a code object and find its kernel.

        Args:
            device: The device's number.
            image: The code object.
            symbol: The kernel's name in it.
            shared: Most dynamic shared memory that launches of it will ask for, in bytes.

        Raises:
            InputError: `shared` is more than the device has.
        """

    def loading(self, device: int) -> AbstractContextManager[Load]:
        """Prepare the calling thread for many loads onto a device; the loads themselves are those of `load`."""

    def unload(self, function: Function) -> None:
        """Unload the module of a function; the loader does so only when a load failed half way."""

    def launch(self, launch: Launch) -> None:
        """Put a launch into its stream."""

    def allocate(self, device: int, size: int, stream: int) -> int:
        """Take device memory in stream order; the address is a multiple of 256."""

    def release(self, device: int, address: int, stream: int) -> None:
        """Give it back in stream order."""

    def entry(self, device: int) -> Entry | None:
        """How the C extension may launch on this device by itself; None when it may not."""

    def launch_error(self, code: int, function: Function) -> DriverError:
        """The error for a code that a launch by the C extension came back with."""
