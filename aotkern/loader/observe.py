"""What can be seen of a loaded bundle at work: counters, and hooks around launches and loads."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aotkern.forklock import ForkLock
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


LaunchHooks = list[Callable[[LaunchEvent], object]]
LoadHooks = list[Callable[[LoadEvent], object]]


class Observing(Protocol):
    """What keeps the lists of launch hooks at hand, and wants to know when others take their place."""

    def observe(self, enter: LaunchHooks, leave: LaunchHooks) -> None:
        """These are the lists from now on."""


class Hooks:
    """Functions to call around launches and after loads.

    At any time the lists may be added to and removed from, or others put in their place. A hook that raises ends the
    call that it was called for: `enter` before the launch, `exit` after it, `load` after the code object was loaded,
    which stays loaded.

    Args:
        enter: Called before each launch.
        exit: Called after each launch has been put into its stream.
        load: Called after each load, in the thread that loads, whose current device may still be the load's.
    """

    def __init__(
        self,
        enter: LaunchHooks | None = None,
        exit: LaunchHooks | None = None,  # noqa: A002 - the name of the hook
        load: LoadHooks | None = None,
    ) -> None:
        self._observing: weakref.WeakSet[Observing] = weakref.WeakSet()
        self._enter: LaunchHooks = [] if enter is None else enter
        self._exit: LaunchHooks = [] if exit is None else exit
        self.load: LoadHooks = [] if load is None else load

    @property
    def enter(self) -> LaunchHooks:
        """What is called before each launch."""
        return self._enter

    @enter.setter
    def enter(self, hooks: Iterable[Callable[[LaunchEvent], object]]) -> None:
        self._enter = hooks if isinstance(hooks, list) else list(hooks)
        self._tell()

    @property
    def exit(self) -> LaunchHooks:
        """What is called after each launch."""
        return self._exit

    @exit.setter  # noqa: A003 - the name of the hook
    def exit(self, hooks: Iterable[Callable[[LaunchEvent], object]]) -> None:
        self._exit = hooks if isinstance(hooks, list) else list(hooks)
        self._tell()

    def tell(self, observing: Observing) -> None:
        """Tell `observing` of lists that take the place of today's, for as long as it lives."""
        self._observing.add(observing)

    def _tell(self) -> None:
        for observing in tuple(self._observing):
            observing.observe(self._enter, self._exit)


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
        self._lock = ForkLock()
        self.dispatched: Counter[str] = Counter()
        self.loaded: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.empty: Counter[str] = Counter()
        self._modules = self._bytes = 0
        self._seconds = 0.0

    def add(self, counter: Counter[str], key: str) -> None:
        """Count one event."""
        with self._lock.held():
            counter[key] = counter.get(key, 0) + 1

    def module(self, size: int, seconds: float) -> None:
        """Count a code object that was loaded."""
        with self._lock.held():
            self._modules += 1
            self._bytes += size
            self._seconds += seconds

    def snapshot(self, dispatched: Mapping[str, int], empty: Mapping[str, int]) -> Snapshot:
        """The counters now, with launches and empty calls that were counted elsewhere added."""
        with self._lock.held():
            return Snapshot(
                dispatched=dict(self.dispatched + Counter(dispatched)),
                loaded=dict(self.loaded),
                missed=dict(self.missed),
                empty=dict(self.empty + Counter(empty)),
                modules=self._modules,
                bytes=self._bytes,
                seconds=self._seconds,
            )
