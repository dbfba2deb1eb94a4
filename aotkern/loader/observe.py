"""What can be seen of a loaded bundle at work: counters, and hooks around launches and loads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aotkern.grid import Grid


@dataclass(frozen=True, slots=True)
class LaunchEvent:
    """One launch, as hooks see it.

    Attributes:
        kernel: The kernel's name.
        variant: Text of the variant's key.
        device: Number of the device.
        stream: The driver's stream handle.
        grid: Workgroups in each dimension.
    """

    kernel: str
    variant: str
    device: int
    stream: int
    grid: Grid


@dataclass(frozen=True, slots=True)
class LoadEvent:
    """A code object that was loaded onto a device.

    Attributes:
        kernel: The kernel's name.
        variant: Text of the key of the variant that needed it.
        device: Number of the device.
        size: Bytes of the code object.
        seconds: How long the driver took.
    """

    kernel: str
    variant: str
    device: int
    size: int
    seconds: float


@dataclass(slots=True)
class Hooks:
    """Functions to call around launches and after loads; add to and remove from the lists at any time.

    Attributes:
        enter: Called before each launch.
        exit: Called after each launch has been put into its stream.
        load: Called after each load, in the thread that loads, whose current device may still be the load's.
    """

    enter: list[Callable[[LaunchEvent], object]] = field(default_factory=list)
    exit: list[Callable[[LaunchEvent], object]] = field(default_factory=list)
    load: list[Callable[[LoadEvent], object]] = field(default_factory=list)


HOOKS = Hooks()
"""The hooks of every bundle that was not given its own."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment; the keys are texts of variant keys, or names of kernels where that is said.

    Attributes:
        dispatched: Launches of each variant.
        loaded: Devices onto which each variant's code object was loaded.
        missed: Calls of each kernel that no variant served.
        empty: Calls of each kernel with an empty grid, which launch nothing.
        modules: Code objects loaded, over all devices.
        bytes: Their bytes.
        seconds: Time that the driver took to load them.
    """

    dispatched: Mapping[str, int]
    loaded: Mapping[str, int]
    missed: Mapping[str, int]
    empty: Mapping[str, int]
    modules: int
    bytes: int
    seconds: float

    @property
    def launches(self) -> int:
        """All launches."""
        return sum(self.dispatched.values())


class Counters:
    """Counts, from any thread. The C extension counts its own launches; `LoadedBundle.counters` adds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.dispatched: Counter[str] = Counter()
        self.loaded: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.empty: Counter[str] = Counter()
        self._modules = self._bytes = 0
        self._seconds = 0.0

    def add(self, counter: Counter[str], key: str) -> None:
        """Count one event."""
        with self._lock:
            counter[key] = counter.get(key, 0) + 1

    def module(self, size: int, seconds: float) -> None:
        """Count a code object that was loaded."""
        with self._lock:
            self._modules += 1
            self._bytes += size
            self._seconds += seconds

    def snapshot(self, dispatched: Mapping[str, int], empty: Mapping[str, int]) -> Snapshot:
        """The counters now, with launches and empty calls that were counted elsewhere added."""
        with self._lock:
            return Snapshot(
                dispatched=dict(self.dispatched + Counter(dispatched)),
                loaded=dict(self.loaded),
                missed=dict(self.missed),
                empty=dict(self.empty + Counter(empty)),
                modules=self._modules,
                bytes=self._bytes,
                seconds=self._seconds,
            )
