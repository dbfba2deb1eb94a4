"""Several bundles as one: a folder that holds one for each target, on a machine that has devices of several.

The device of a call's tensors decides which bundle serves it. Among bundles for one device the first that has the
kernel counts. Finding the device costs a look at the arguments in Python; who needs one bundle does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern.bundle import Bundle
from aotkern.drivers import Driver
from aotkern.errors import InputError, TargetError
from aotkern.loader.kernel import Kernel
from aotkern.loader.loaded import LoadedBundle, Preloaded
from aotkern.loader.observe import Snapshot


@dataclass(frozen=True)
class LoadedBundles:
    """Loaded bundles that are used as one; made by `load`. `bundles[name][grid](...)` launches.

    Attributes:
        members: The bundles, at least two, in the order in which they were found; all with one driver.
    """

    members: tuple[LoadedBundle, ...]

    @property
    def driver(self) -> Driver:
        """The driver of all of them."""
        return self.members[0].driver

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """What was opened."""
        return tuple(member.bundle for member in self.members)

    def __getitem__(self, name: str) -> SeveralKernels:
        """The kernel with this name, on whatever device.

        Raises:
            InputError: No bundle has it; the error lists those that are there.
        """
        if name not in self:
            raise InputError.one("kernel", f"one of {', '.join(self)}", repr(name)[:200])
        return SeveralKernels(self, name)

    def __iter__(self) -> Iterator[str]:
        """The names of all kernels, each once."""
        return iter(dict.fromkeys(name for member in self.members for name in member))

    def __contains__(self, name: object) -> bool:
        """Whether one of them has a kernel with this name."""
        return any(name in member for member in self.members)

    def __repr__(self) -> str:
        return f"<bundles {', '.join(member.where for member in self.members)}>"

    def on(self, device: int) -> tuple[LoadedBundle, ...]:
        """Those that fit a device."""
        return tuple(member for member in self.members if device in {item.index for item in member.fitting()})

    def kernel(self, name: str, device: int) -> Kernel:
        """The kernel with this name on a device.

        Raises:
            TargetError: None of the bundles that have it fits that device.
        """
        for member in self.on(device):
            if name in member:
                return member[name]
        rows = ((member.where, f"built for {member.manifest.target}") for member in self.members if name in member)
        raise TargetError(f"{name} on device {device}", rows)

    def preload(self, *kernels: str, device: int | None = None) -> Preloaded:
        """Load the variants of some kernels, or of all, onto one device, or each bundle onto the devices that it fits.

        Raises:
            InputError: There is no kernel of that name, or no such device.
            TargetError: No bundle fits the device.
            DriverError: The driver refuses a code object, or memory is used up.
        """
        for name in kernels:
            self[name]
        places = [device] if device is not None else sorted({d.index for m in self.members for d in m.fitting()})
        done = [
            member.preload(*names, device=place)
            for place in places
            for member in self._fitting(place)
            if (names := [name for name in kernels or member if name in member])
        ]
        return Preloaded(
            variants=sum(item.variants for item in done),
            modules=sum(item.modules for item in done),
            bytes=sum(item.bytes for item in done),
            seconds=sum(item.seconds for item in done),
        )

    def _fitting(self, device: int) -> tuple[LoadedBundle, ...]:
        members = self.on(device)
        if not members:
            rows = ((member.where, f"built for {member.manifest.target}") for member in self.members)
            raise TargetError(f"device {device}", rows)
        return members

    def counters(self) -> tuple[Snapshot, ...]:
        """What was dispatched, missed and loaded so far, for each of `members`."""
        return tuple(member.counters() for member in self.members)


@dataclass(frozen=True, slots=True)
class SeveralKernels:
    """A kernel that some of the bundles have; `kernel[grid](...)` launches the one for the device of the tensors."""

    bundles: LoadedBundles
    name: str

    def __getitem__(self, grid: object) -> Callable[..., Any]:
        """What launches on this grid."""

        def call(*args: Any, **kwargs: Any) -> Any:
            device = _device((*args, *kwargs.values()))
            kernel = self.bundles.kernel(self.name, self._here() if device is None else device)
            return kernel[grid](*args, **kwargs)

        return call

    def _here(self) -> int:
        """The current device; where it fits none of the bundles and devices are on paper, the first that fits one."""
        driver = self.bundles.driver
        here = driver.current_device()
        if self.bundles.on(here) or not driver.reads_host:
            return here
        return self.bundles.members[0].fitting()[0].index


def _device(values: Iterable[Any]) -> int | None:
    """The device of the first value that is on one."""
    for value in values:
        found = _device(value) if isinstance(value, (tuple, list)) else _of_tensor(value)
        if found is not None:
            return found
    return None


def _of_tensor(value: Any) -> int | None:
    place = getattr(value, "device", None)
    if isinstance(place, int) and not isinstance(place, bool):
        return place  # a plain Pointer
    index = getattr(place, "index", None)
    if index is not None and getattr(place, "type", "") != "cpu":
        return int(index)
    number = getattr(place, "id", None)  # CuPy
    return number if isinstance(number, int) else None


def together(members: Sequence[LoadedBundle]) -> LoadedBundle | LoadedBundles:
    """One bundle as it is, several as one."""
    return members[0] if len(members) == 1 else LoadedBundles(tuple(members))
