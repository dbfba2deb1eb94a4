"""`load`: which of the bundles that were found fits the device, and why the others do not."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotkern.bundle import Bundle
from aotkern.deny import Deny
from aotkern.drivers import Device, Driver, open_driver
from aotkern.errors import DriverError, InputError, IntegrityError, MissingToolError, TargetError, TrustError
from aotkern.forklock import ForkLock
from aotkern.loader.discovery import Found, find
from aotkern.loader.loaded import Launcher, LoadedBundle, OnMiss
from aotkern.loader.observe import HOOKS, Hooks
from aotkern.loader.several import LoadedBundles, together
from aotkern.manifest import Manifest
from aotkern.settings import DENY, Settings
from aotkern.target import Target

if TYPE_CHECKING:
    from aotkern.trust import Trust

_log = logging.getLogger("aotkern")
_opening = ForkLock()


@dataclass(frozen=True, slots=True)
class Fit:
    """A bundle that was found, and what became of it.

    Attributes:
        where: Where it is.
        bundle: The opened bundle; None when it could not be opened.
        driver: The driver for it, where there is one.
        devices: The devices that it fits.
        reason: Why it is not used; empty when it fits.
    """

    where: str
    bundle: Bundle | None
    driver: Driver | None
    devices: tuple[Device, ...]
    reason: str


@functools.cache
def _driver(name: str) -> Driver:
    return open_driver(name)


def shared_driver(name: str) -> Driver:
    """The one driver of this name in this process."""
    with _opening.held():
        return _driver(name)


def load(
    name: str | Path,
    *,
    device: int | str | None = None,
    driver: str | Driver | None = None,
    on_miss: OnMiss = "error",
    fallback: Launcher | None = None,
    hooks: Hooks = HOOKS,
    trust: Trust | Path | str | None = None,
    verify: bool = False,
    deny: Iterable[str] = (),
) -> LoadedBundle | LoadedBundles:
    """Open the bundles that fit this machine: every byte is hashed, and nothing is loaded onto a device yet.

    Where several fit, such as one for each target of a machine that has devices of two, they are used as one, and the
    device of a call's tensors decides.

    Args:
        name: A bundle, a folder of bundles, a name in `AOTKERN_BUNDLE_PATH`, an entry point, or a package.
        device: The one device to use: its number, or a target such as "gfx950" that it must be. By default the tensors
            of each call decide. A driver may stand before it: "emulator:gfx950".
        driver: `hip`, `cuda`, `null`, ..., or an open driver. By default the one that the bundle was built for.
        on_miss: What to do with a call that no variant serves: "error" raises `MissError`, "warn" warns and lets
            `fallback` serve it, and a function is called with the `MissedCall` and its result is returned.
        fallback: What serves a missed call, when `on_miss` is "warn".
        hooks: Launch and load hooks; by default those of the process, `HOOKS`.
        trust: A trust file, or one that was read: only a bundle that those named there vouch for is used.
        verify: Check everything that `aotkern verify` checks before anything is used, which takes about a millisecond
            for a variant. Otherwise the manifest's parts are held against each other as far as they are used, and the
            facts that it states of code objects are believed, as far as loading them does not show the contrary.
        deny: Variants or code objects that are out of service, beside those of `AOTKERN_DENY`; see `aotkern.deny`.

    Raises:
        InputError: There is no such bundle, device or driver.
        TrustError: Nobody who is trusted for it vouches for the only bundle there is.
        IntegrityError: The only bundle there is is damaged.
        TargetError: None of the bundles fits; it lists each with its reason.
        MissingToolError: The only bundle there is needs a driver that this machine does not have.
    """
    if isinstance(device, str) and device.partition(":")[0] in ("emulator", "null"):
        driver, _, device = device.partition(":")
    settings = Settings.read()
    found = find(name, settings.bundle_path)
    if not found:
        _log.warning("%s: no bundle found", name)
        raise InputError.one(str(name), "the name of a bundle, an entry point, or a package with bundles", "none found")
    denied = Deny.read([*Deny.read(settings.deny, DENY).entries, *deny])
    tried: list[tuple[str, str]] = []
    fitting: list[LoadedBundle] = []
    for fit in fits(found, driver, device, trust=_trust(trust), by_owner=not settings.accept_others):
        if fit.reason or fit.bundle is None or fit.driver is None:
            tried.append((fit.where, fit.reason))
        elif fitting and fitting[0].driver is not fit.driver:
            tried.append((fit.where, f"{fitting[0].where} is used, with the driver {fitting[0].driver.name}"))
        else:
            if verify:
                fit.bundle.verify()
            index = None if device is None else fit.devices[0].index
            fitting.append(LoadedBundle(fit.bundle, fit.driver, index, on_miss, fallback, hooks, denied))
    if fitting:
        _tell(fitting, tried, denied)
        return together(fitting)
    wanted = "the devices of this machine" if device is None else f"device {device}"
    for where, reason in tried:
        _log.warning("%s: not used: %s", where, reason)
    raise TargetError(wanted, tried)


def load_one(name: str | Path, **options: Any) -> LoadedBundle:
    """As `load`, where one bundle is wanted, as a file always is.

    Raises:
        InputError: The name means several bundles that fit.
    """
    found = load(name, **options)
    if isinstance(found, LoadedBundles):
        expected, given = "one bundle that fits", ", ".join(member.where for member in found.members)
        raise InputError.one(str(name), expected, given)
    return found


def _tell(fitting: Sequence[LoadedBundle], tried: Sequence[tuple[str, str]], denied: Deny) -> None:
    others = f", {len(tried)} others do not fit" if tried else ""
    for loaded in fitting:
        count = len(loaded.manifest.variants)
        _log.info("%s: %d variants for %s%s", loaded.where, count, loaded.manifest.target, others)
        for remark in lacking(loaded.manifest, loaded.fitting()):
            _log.warning("%s: %s", loaded.where, remark)
        for text, entry in loaded.denied.items():
            _log.warning("%s: %s is denied by %s", loaded.where, text, entry)
    for entry in denied.idle(loaded.manifest for loaded in fitting):
        _log.warning("deny: %s denies nothing in %s", entry, ", ".join(loaded.where for loaded in fitting))


def lacking(manifest: Manifest, devices: Iterable[Device]) -> Iterator[str]:
    """What devices of the right architecture lack for some variants, such as a part that is given less LDS."""
    for device in devices:
        count = sum(variant.launch.shared > device.shared_bytes for variant in manifest.variants)
        if count:
            yield f"{count} variants need more than the {device.shared_bytes} bytes of LDS that {device} has"


def _trust(trust: Trust | Path | str | None) -> Trust | None:
    if not isinstance(trust, (str, Path)):
        return trust
    from aotkern.trust import trustfile  # noqa: PLC0415 - only for those who ask for signatures

    return trustfile.Trust.read(Path(trust))


def fits(
    found: tuple[Found, ...],
    driver: str | Driver | None,
    device: int | str | None,
    *,
    raises: bool = True,
    trust: Trust | None = None,
    by_owner: bool = False,
) -> Iterator[Fit]:
    """What becomes of each bundle, in turn.

    Args:
        found: The bundles.
        driver: As for `load`.
        device: As for `load`.
        raises: Whether a single bundle that cannot be opened, or has no driver, raises its own error.
        trust: Whose word is asked for.
        by_owner: Without `trust`, refuse files that anybody may have written.
    """
    for item in found:
        try:
            bundle = item.open(trust, by_owner=by_owner)
        except (InputError, IntegrityError, TrustError) as error:
            if len(found) == 1 and raises:
                raise
            yield Fit(item.where, None, None, (), f"refused: {error}")
            continue
        try:
            name = str(bundle.manifest.target.backend) if driver is None else driver
            chosen = shared_driver(name) if isinstance(name, str) else name
            devices, reason = _fitting(bundle.manifest.target, chosen, device)
        except (DriverError, MissingToolError) as error:
            if len(found) == 1 and raises:
                raise
            yield Fit(item.where, bundle, None, (), str(error))
            continue
        yield Fit(item.where, bundle, chosen, devices, reason)


def _fitting(target: Target, driver: Driver, wanted: int | str | None) -> tuple[tuple[Device, ...], str]:
    """The devices of `driver` that code for `target` fits and the caller wants, and a reason when there is none."""
    if driver.backend is not None and driver.backend is not target.backend:
        return (), f"built for {target.backend}, the driver is {driver.name}"
    devices = driver.devices()
    if isinstance(wanted, int) and not 0 <= wanted < len(devices):
        raise InputError.one("device", f"one of {len(devices)} devices", str(wanted))
    if isinstance(wanted, str):
        named = Target.parse(wanted, "device")
        devices = tuple(item for item in devices if item.target and named.refusal(item.target) is None)
        if not devices:
            return (), f"this machine has no {named}"
    elif wanted is not None:
        devices = (devices[wanted],)
    fitting, reasons = [], []
    for item in devices:
        refusal = "aotkern does not know its architecture" if item.target is None else target.refusal(item.target)
        reasons.append(f"{item}: {refusal}")
        if refusal is None:
            fitting.append(item)
    return tuple(fitting), "" if fitting else "; ".join(reasons) or "this machine has no device"
