"""A loaded bundle: its kernels by name, what is preloaded, what happens on a miss, and what was counted."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Protocol, Union

from aotkern.bundle import Bundle
from aotkern.deny import Deny
from aotkern.dispatch import Miss
from aotkern.drivers import Device, Driver
from aotkern.errors import InputError, MissError, Problem, TargetError
from aotkern.forklock import ForkLock
from aotkern.loader import native
from aotkern.loader.kernel import Kernel, Native
from aotkern.loader.modules import Modules
from aotkern.loader.observe import Counters, Hooks, Snapshot
from aotkern.manifest import Manifest, VariantEntry


class Launcher(Protocol):
    """Whatever launches kernels by name: a loaded bundle, or a mapping of Triton's own JIT functions."""

    def __getitem__(self, kernel: str, /) -> Any:
        """What `[grid](*args, **kwargs)` launches."""


@dataclass(frozen=True, slots=True)
class MissedCall:
    """A call that no variant serves, as a miss handler gets it.

    Attributes:
        kernel: The kernel's name.
        grid: The grid as the caller gave it; where that was a function, what it returned.
        args: The positional arguments.
        kwargs: The keyword arguments.
        miss: Every variant with its refusals.
    """

    kernel: str
    grid: object
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    miss: Miss


OnMiss = Union[Literal["error", "warn"], Callable[[MissedCall], Any]]


@dataclass(frozen=True, slots=True)
class Preloaded:
    """What `preload` did.

    Attributes:
        variants: Variants that are ready now.
        modules: Code objects that were loaded for them; variants share some, and some were loaded before.
        bytes: Their bytes.
        seconds: How long it took.
    """

    variants: int
    modules: int
    bytes: int
    seconds: float


class LoadedBundle:
    """An opened bundle and the driver that launches from it. Made by `load`.

    Args:
        bundle: The opened bundle.
        driver: What loads and launches.
        device: The one device to use, or None to go by the tensors of each call.
        on_miss: What to do with a call that no variant serves.
        fallback: What serves such a call after a warning, when `on_miss` is "warn".
        hooks: Launch and load hooks.
        deny: Binaries that are out of service.

    Attributes:
        denied: Keys of the variants that are out of service, each with the entry that says so.
    """

    def __init__(
        self,
        bundle: Bundle,
        driver: Driver,
        device: int | None,
        on_miss: OnMiss,
        fallback: Launcher | None,
        hooks: Hooks,
        deny: Deny = Deny(),  # noqa: B008 - it cannot be changed
    ) -> None:
        if not callable(on_miss) and on_miss not in ("error", "warn"):
            raise InputError.one("on_miss", '"error", "warn" or a function', repr(on_miss)[:60])
        if (on_miss == "warn") != (fallback is not None):
            found = "no fallback" if fallback is None else f"on_miss={on_miss!r}"
            raise InputError.one("fallback", 'a launcher that serves the call, exactly with on_miss="warn"', found)
        self.bundle, self.driver, self.hooks = bundle, driver, hooks
        self.tally = Counters()
        self.modules = Modules(bundle, driver, self.tally, hooks)
        self._device, self._on_miss, self._fallback = device, on_miss, fallback
        self._kernels: dict[str, Kernel] = {}
        self._lock = ForkLock()
        self.denied = {entry.text: word for entry in bundle.manifest.variants if (word := deny.of(entry))}
        self._variants = {
            name: tuple(entries) for name, entries in groupby(bundle.manifest.variants, key=lambda entry: entry.kernel)
        }

    @property
    def where(self) -> str:
        """Where the bundle came from."""
        return self.bundle.where

    @property
    def manifest(self) -> Manifest:
        """What is in the bundle."""
        return self.bundle.manifest

    def __getitem__(self, name: str) -> Kernel:
        """The kernel with this name.

        Raises:
            InputError: There is none; the error lists those that are there.
        """
        kernel = self._kernels.get(name)
        if kernel is None:
            entry = self.manifest.kernel(name)
            with self._lock.held():
                kernel = self._kernels.setdefault(name, Kernel(self, entry, self._entries((name,))))
        return kernel

    def __iter__(self) -> Iterator[str]:
        """The names of its kernels."""
        return (entry.name for entry in self.manifest.kernels)

    def __contains__(self, name: object) -> bool:
        """Whether it has a kernel with this name."""
        return any(entry.name == name for entry in self.manifest.kernels)

    def __repr__(self) -> str:
        return f"<bundle {self.where}: {self.manifest.target}, {len(self.manifest.variants)} variants>"

    def fitting(self) -> tuple[Device, ...]:
        """The devices that the bundle fits."""
        target = self.manifest.target
        return tuple(device for device in self.driver.devices() if device.target and not target.refusal(device.target))

    def device_for(self, index: int | None, where: str) -> Device:
        """The device of a call whose tensors are on device `index`, or on none in particular.

        Raises:
            InputError: The bundle was loaded for another device, or there is no such device.
            TargetError: The bundle does not fit that device.
        """
        if self._device is not None and index not in (None, self._device):
            raise InputError.one(
                where, f"tensors on device {self._device}, for which the bundle was loaded", f"{index}"
            )
        wanted = self._device if index is None else index
        if wanted is None:
            fitting = self.fitting()
            here = self.driver.current_device()
            # On real hardware the current device counts, whether it fits or not; a driver that reads host memory has
            # devices on paper, and the tensors of a call are on none of them.
            wanted = fitting[0].index if self.driver.reads_host and fitting else here
        devices = self.driver.devices()
        if not 0 <= wanted < len(devices):
            raise InputError.one(where, f"one of {len(devices)} devices", f"device {wanted}")
        device = devices[wanted]
        if device.target is None:
            raise TargetError(str(device), ((self.where, f"built for {self.manifest.target}"),))
        if refusal := self.manifest.target.refusal(device.target):
            raise TargetError(str(device), ((self.where, refusal),))
        return device

    def preload(self, *kernels: str, device: int | None = None) -> Preloaded:
        """Load the variants of some kernels, or of all, so that no call has to.

        Args:
            kernels: Names of kernels; all of the bundle's when none is given.
            device: Number of the device; that of `load`, or the current one, unless given.

        Raises:
            InputError: There is no kernel of that name, or no such device.
            DriverError: The driver refuses a code object, or memory is used up.
        """
        chosen = [self.manifest.kernel(name).name for name in kernels] or list(self._variants)
        target = self.device_for(device, "preload")
        before, started = self.counters(), time.perf_counter()
        entries = self._entries(chosen)
        self.modules.load_all(entries, target.index)
        after = self.counters()
        return Preloaded(
            variants=len(entries),
            modules=after.modules - before.modules,
            bytes=after.bytes - before.bytes,
            seconds=time.perf_counter() - started,
        )

    def _entries(self, kernels: Iterable[str]) -> tuple[VariantEntry, ...]:
        """The variants of these kernels that are in service."""
        variants = (entry for name in kernels for entry in self._variants.get(name, ()))
        return tuple(entry for entry in variants if entry.text not in self.denied)

    def out_of_service(self, kernel: str) -> tuple[tuple[VariantEntry, str], ...]:
        """The variants of a kernel that are denied, each with the entry that denies it."""
        variants = self._variants.get(kernel, ())
        return tuple((entry, self.denied[entry.text]) for entry in variants if entry.text in self.denied)

    def counters(self) -> Snapshot:
        """What was dispatched, missed and loaded so far."""
        kernels = tuple(self._kernels.values())
        launches: dict[str, int] = {}
        empty: dict[str, int] = {}
        for kernel in kernels:
            dispatched, empty[kernel.name] = kernel.counted()
            launches.update(dispatched)
        return self.tally.snapshot(launches, {name: count for name, count in empty.items() if count})

    def missed(self, miss: Miss, grid: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Count a miss, and do with it what `load` was told.

        Raises:
            MissError: When that was "error".
        """
        self.tally.add(self.tally.missed, miss.kernel)
        if callable(self._on_miss):
            return self._on_miss(MissedCall(miss.kernel, grid, tuple(args), dict(kwargs), miss))
        if self._fallback is not None:
            warnings.warn(str(miss), RuntimeWarning, stacklevel=4)
            return self._fallback[miss.kernel][grid](*args, **kwargs)
        raise miss_error(miss)

    def native(self, kernel: Kernel) -> Native | None:
        """The C extension's side of a kernel, where the extension is built and the driver can be called from it."""
        return native.attach(kernel, self)


def miss_error(miss: Miss) -> MissError:
    """The error that says what a miss says."""
    nearest = str(miss.nearest) if miss.nearest is not None else None
    reasons = miss.refused[0][1] if miss.refused else ()
    problems = tuple(Problem(f"{miss.kernel}: {item.name}", item.built, item.given) for item in reasons)
    return MissError(miss.kernel, nearest, problems, str(miss))
