"""The null driver: devices that exist on paper, launches that are written down. For tests, and for planning.

It behaves as a real driver does where that can be seen from above: shared memory and grids have their limits, every
load gives another handle, and a captured stream says so. Whether the code fits the device is the loader's question.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from aotkern.drivers.protocol import Device, Entry, Function, Launch, Load
from aotkern.errors import DriverError, InputError
from aotkern.target import Backend, Target

DEFAULT_TARGETS = ("gfx942", "gfx950", "cuda:90")
"""One device of each of these is there unless others are asked for."""
UNITS = {"gfx942": 304, "gfx950": 256, "90": 132}
"""Compute units of the usual part of an architecture (MI300X, MI355X, H100 and H200); 1 for any other."""
_FIRST_HANDLE = 0x1000
_FIRST_ADDRESS = 0x7000_0000_0000
_PAGE = 0x1000


@dataclass(slots=True)
class NullDriver:
    """A driver without hardware.

    Attributes:
        targets: The device that has each number.
        launches: Every launch, in order.
        loads: Device and symbol of every load.
        unloads: Every function that was unloaded.
        allocations: Size of each allocation that was not given back, by address.
        captured: Streams that are being captured.
    """

    targets: tuple[Target, ...]
    launches: list[Launch] = field(default_factory=list)
    loads: list[tuple[int, str]] = field(default_factory=list)
    unloads: list[Function] = field(default_factory=list)
    allocations: dict[int, int] = field(default_factory=dict)
    captured: set[int] = field(default_factory=set)
    _handles: itertools.count[int] = field(default_factory=lambda: itertools.count(_FIRST_HANDLE))
    _pages: itertools.count[int] = field(default_factory=lambda: itertools.count(_FIRST_ADDRESS, _PAGE))

    name = "null"
    backend: Backend | None = None
    reads_host = True
    library = ""

    def devices(self) -> tuple[Device, ...]:
        """One device for each target."""
        return tuple(
            Device(
                index=index,
                name="no hardware",
                arch=str(target).partition(":")[2],
                target=target,
                units=UNITS.get(target.arch, 1),
                shared_bytes=target.limits.lds_bytes,
                max_grid=(2**31 - 1, 65_535, 65_535),
                max_threads_x=2**32 - 1 if target.backend is Backend.HIP else 2**42,
            )
            for index, target in enumerate(self.targets)
        )

    def current_device(self) -> int:
        """The first."""
        return 0

    def capturing(self, device: int, stream: int) -> bool:
        """Whether the test said so."""
        return stream in self.captured

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        """Write the load down.

        Raises:
            InputError: The shared memory is more than the architecture has.
        """
        limit = self.targets[device].limits.lds_bytes
        if shared > limit:
            raise InputError.one(f"{symbol}: shared memory", f"at most {limit} bytes on device {device}", str(shared))
        self.loads.append((device, symbol))
        return Function(device, symbol, next(self._handles), next(self._handles))

    @contextmanager
    def loading(self, device: int) -> Iterator[Load]:
        """There is nothing to prepare."""
        yield partial(self.load, device)

    def unload(self, function: Function) -> None:
        """Write the unload down."""
        self.unloads.append(function)

    def launch(self, launch: Launch) -> None:
        """Write the launch down."""
        self.launches.append(launch)

    def allocate(self, device: int, size: int, stream: int) -> int:
        """An address that nothing else has."""
        pages = -(-size // _PAGE)
        address = next(self._pages)
        self._pages = itertools.count(address + pages * _PAGE, _PAGE)
        self.allocations[address] = size
        return address

    def release(self, device: int, address: int, stream: int) -> None:
        """Forget an address that was handed out."""
        del self.allocations[address]

    def entry(self, device: int) -> Entry | None:
        """None: there is no function to call."""
        return None

    def launch_error(self, code: int, function: Function) -> DriverError:
        """Never asked for, since there is no entry."""
        return DriverError(self.name, "launch", code, "unknown", function.symbol, "")


def open_driver() -> NullDriver:
    """A null driver with one device for each of `DEFAULT_TARGETS`."""
    return NullDriver(tuple(Target.parse(text) for text in DEFAULT_TARGETS))
