"""What a machine can run: its drivers and devices, the bundles that it has, and which of them fit what.

Nothing is loaded onto a device. Nothing here prints; `aotkern doctor` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aotkern.drivers import Device
from aotkern.drivers.null import NullDriver
from aotkern.errors import DriverError, InputError, MissingToolError
from aotkern.loader.choosing import fits, shared_driver
from aotkern.loader.discovery import Found, find, known
from aotkern.loader.native import is_built
from aotkern.settings import Settings
from aotkern.target import Target

REAL_DRIVERS = ("hip", "cuda")
"""The drivers of hardware."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """A driver on this machine.

    Attributes:
        name: `hip` or `cuda`.
        library: The shared library that it uses; empty when there is none.
        devices: Its devices.
        reason: Why there is no driver or no device; empty when there is.
    """

    name: str
    library: str
    devices: tuple[Device, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class BundleState:
    """A bundle on this machine.

    Attributes:
        where: Where it is.
        target: What it was built for; empty when it could not be opened.
        kernels: Names of its kernels.
        variants: How many variants it has.
        modules: How many code objects `preload` would load.
        bytes: Their bytes.
        devices: Numbers of the devices that it fits.
        reason: Why it fits none; empty when it fits one.
    """

    where: str
    target: str
    kernels: tuple[str, ...]
    variants: int
    modules: int
    bytes: int
    devices: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that `examine` found.

    Attributes:
        drivers: The drivers of hardware.
        bundles: The bundles that were asked for, or all that are known.
        extension: Whether the C extension is there.
        missing: Names that were asked for and mean no bundle, each with what was expected.
        broken: Entry points of installed packages that lead to no bundle, each with the reason.
    """

    drivers: tuple[DriverState, ...]
    bundles: tuple[BundleState, ...]
    extension: bool
    missing: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...] = ()

    @property
    def serves(self) -> bool:
        """Whether every bundle that was asked for is there, and at least one fits a device."""
        return not self.missing and (not self.bundles or any(item.devices for item in self.bundles))


def examine(names: tuple[str, ...], settings: Settings, planned: Target | None = None) -> Diagnosis:
    """Look at the machine.

    Args:
        names: Bundles, as `load` takes them; none for all in the bundle path and behind entry points.
        settings: Where bundles and drivers may be.
        planned: Look at a machine with one such device instead of at this one.
    """
    driver = None if planned is None else NullDriver((planned,))
    missing: list[tuple[str, str]] = []
    found: dict[str, Found] = {}
    for name in names:
        try:
            items = find(name, settings.bundle_path)
        except InputError as error:
            missing.append((name, str(error)))
            continue
        if not items:
            missing.append((name, "no bundle, entry point or package of this name"))
        found.update((item.where, item) for item in items)
    broken: tuple[tuple[str, str], ...] = ()
    if not names:
        items, broken = known(settings.bundle_path)
        found = {item.where: item for item in items}
    return Diagnosis(
        drivers=tuple(map(_driver, REAL_DRIVERS)) if driver is None else (_planned(driver),),
        bundles=tuple(_bundles(tuple(found.values()), driver, by_owner=not settings.accept_others)),
        extension=is_built(),
        missing=tuple(missing),
        broken=broken,
    )


def _driver(name: str) -> DriverState:
    library = ""
    try:
        driver = shared_driver(name)
        library = driver.library
        devices = driver.devices()
    except (MissingToolError, DriverError) as error:
        return DriverState(name, library, (), str(error))
    return DriverState(name, library, devices, "" if devices else "no device")


def _planned(driver: NullDriver) -> DriverState:
    return DriverState(driver.name, driver.library, driver.devices(), "")


def _bundles(found: tuple[Found, ...], driver: NullDriver | None, *, by_owner: bool) -> Iterator[BundleState]:
    for fit in fits(found, driver, None, raises=False, by_owner=by_owner):
        if fit.bundle is None:
            yield BundleState(fit.where, "", (), 0, 0, 0, (), fit.reason)
            continue
        manifest = fit.bundle.manifest
        yield BundleState(
            where=fit.where,
            target=str(manifest.target),
            kernels=tuple(entry.name for entry in manifest.kernels),
            variants=len(manifest.variants),
            modules=len({(entry.object, entry.launch.shared) for entry in manifest.variants}),
            bytes=sum(entry.size for entry in manifest.objects),
            devices=tuple(device.index for device in fit.devices),
            reason=fit.reason,
        )
