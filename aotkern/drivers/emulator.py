"""The emulator as a driver: gfx942 and gfx950 code objects, executed on the CPU over ordinary host memory.

It makes the whole way from a call to a result testable where there is no AMD GPU: dispatch, argument packing and the
very binary that ships. What is executed is the machine code; timing, hazards, the rounding inside MFMA and the last
place of transcendental functions are not modelled, so a right result is a statement about the code, not about hardware.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from aotkern.drivers.protocol import Device, Entry, Function, Launch, Load
from aotkern.emulator import Buffer, Statistics, WaveOrder, run
from aotkern.emulator.errors import RaceError
from aotkern.errors import DriverError, InputError
from aotkern.target import Backend, Target

TARGETS = ("gfx942", "gfx950")
"""The device that has each number."""
# Compute units of the parts that the kernels are tuned for; only their number is emulated.
_UNITS = {"gfx942": 304, "gfx950": 256}


@dataclass(slots=True)
class EmulatorDriver:
    """A driver that executes launches itself, one after the other, before `launch` returns.

    Attributes:
        wave_order: How the waves of a workgroup take turns.
        seed: For a shuffled order.
        preload: Whether kernel arguments are preloaded into registers where the code supports it.
        limit: Most wave instructions of a launch, after which it is given up.
        timeout: Most seconds of a launch, after which it is given up; None for no bound.
        detect_races: Whether a launch in which waves touch the same memory without an order ends in `RaceError`.
        latest: Whether memory instructions take effect as late as the waits allow.
        last: What the last launch did; None when it did not end.
    """

    wave_order: WaveOrder = "lockstep"
    seed: int = 0
    preload: bool = True
    limit: int = 1 << 32
    timeout: float | None = None
    detect_races: bool = False
    latest: bool = False
    last: Statistics | None = None
    _images: dict[int, bytes] = field(default_factory=dict)
    _handles: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _memory: dict[int, ctypes.Array[ctypes.c_uint8]] = field(default_factory=dict)

    name = "emulator"
    library = ""
    backend: Backend | None = Backend.HIP
    reads_host = True

    def devices(self) -> tuple[Device, ...]:
        """One device for each of `TARGETS`."""
        return tuple(
            Device(
                index=index,
                name="emulator",
                arch=arch,
                target=Target.parse(arch),
                units=_UNITS[arch],
                shared_bytes=Target.parse(arch).limits.lds_bytes,
                max_grid=(2**31 - 1, 65_535, 65_535),
                max_threads_x=2**32 - 1,
            )
            for index, arch in enumerate(TARGETS)
        )

    def current_device(self) -> int:
        """The first."""
        return 0

    def capturing(self, device: int, stream: int) -> bool:
        """Never: there are no graphs."""
        return False

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        """Keep the image.

        Raises:
            InputError: The LDS is more than the architecture has.
        """
        limit = Target.parse(TARGETS[device]).limits.lds_bytes
        if shared > limit:
            raise InputError.one(f"{symbol}: LDS", f"at most {limit} bytes on {TARGETS[device]}", str(shared))
        handle = next(self._handles)
        self._images[handle] = image
        return Function(device, symbol, handle, handle)

    @contextmanager
    def loading(self, device: int) -> Iterator[Load]:
        """There is nothing to prepare."""
        yield partial(self.load, device)

    def unload(self, function: Function) -> None:
        """Forget the image."""
        del self._images[function.module]

    def launch(self, launch: Launch) -> None:
        """Execute every workgroup.

        Raises:
            RaceError: With `detect_races`, waves touched the same memory without an order between them.
            MissingWaitError: With `latest`, a register was touched before its load was waited for.
            UndecidedError: The launch was given up: a limit, waves that wait in vain, or something unknown.
            EmulatorError: The code touched memory that the launch was not given.
            MissingToolError: The extra `aotkern[emulator]` is not installed.
        """
        own = [(address, len(block)) for address, block in self._memory.items()]
        self.last = None
        try:
            self.last = run(
                self._images[launch.function.module],
                grid=launch.grid,
                threads=launch.threads,
                kernarg=bytes(launch.arguments),
                dynamic_lds=launch.shared,
                buffers=_buffers([*launch.memory, *own]),
                wave_order=self.wave_order,
                seed=self.seed,
                preload=self.preload,
                limit=self.limit,
                timeout=self.timeout,
                detect_races=self.detect_races,
                latest=self.latest,
            )
        except RaceError as error:
            raise RaceError(error.races, launch.function.symbol) from error.__cause__

    def allocate(self, device: int, size: int, stream: int) -> int:
        """Host memory, aligned as the protocol says."""
        block = (ctypes.c_uint8 * (size + 256))()
        start = -ctypes.addressof(block) % 256
        part = (ctypes.c_uint8 * size).from_buffer(block, start)
        self._memory[ctypes.addressof(part)] = part
        return ctypes.addressof(part)

    def release(self, device: int, address: int, stream: int) -> None:
        """Give it back."""
        del self._memory[address]

    def entry(self, device: int) -> Entry | None:
        """None: the C extension has nothing to call."""
        return None

    def launch_error(self, code: int, function: Function) -> DriverError:
        """Never asked for, since there is no entry."""
        return DriverError(self.name, "launch", code, "unknown", function.symbol, "")


def _buffers(pieces: Sequence[tuple[int, int]]) -> list[Buffer]:
    """Pieces of memory by address; overlapping ones become one."""
    merged: list[list[int]] = []
    for start, size in sorted(pieces):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + size)
        else:
            merged.append([start, start + size])
    return [
        Buffer(start, memoryview((ctypes.c_uint8 * (end - start)).from_address(start)).cast("B"))
        for start, end in merged
    ]


def open_driver() -> EmulatorDriver:
    """An emulator with a device for each of `TARGETS`."""
    return EmulatorDriver()
