"""Code objects on devices: verified, loaded once for each device, and never unloaded.

A graph that was captured launches its kernels for as long as it lives, and nothing tells the loader when that ends. So
every module that was loaded is held for the life of the process, also when the bundle that it came from is dropped.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from functools import partial

from aotkern.bundle import Bundle
from aotkern.drivers import Driver, Function, Load
from aotkern.errors import CaptureError, IntegrityError
from aotkern.forklock import ForkLock
from aotkern.loader.observe import Counters, Hooks, LoadEvent
from aotkern.manifest import ObjectEntry, VariantEntry

_ELF_FLAGS = struct.Struct("<I")
_ELF_FLAGS_AT = 48
"""Where ELF64 keeps `e_flags`, which say what chip the code is for."""

_FOREVER: list[Function] = []
"""Every function that was ever loaded."""


class Modules:
    """The code objects of one bundle on the devices of one driver.

    Args:
        bundle: The opened bundle.
        driver: What loads.
        counters: Where loads are counted.
        hooks: Whom to tell.
    """

    def __init__(self, bundle: Bundle, driver: Driver, counters: Counters, hooks: Hooks) -> None:
        self._bundle, self._driver, self._counters, self._hooks = bundle, driver, counters, hooks
        self._lock = ForkLock()
        self._functions: dict[tuple[str, int, int], Function] = {}
        self._served: set[tuple[str, int]] = set()

    def ready(self, variant: VariantEntry, device: int, stream: int) -> Function:
        """The variant's kernel on a device, loaded now if it was not.

        A load that fails leaves nothing behind: the next call tries again.

        Raises:
            CaptureError: It would have to be loaded while `stream` is being captured.
            IntegrityError: The code object is not what the manifest says.
            DriverError: The driver refuses it.
        """
        loaded = (variant.object.hex, device, variant.launch.shared) in self._functions
        if not loaded and self._driver.capturing(device, stream):
            raise CaptureError(variant.kernel, variant.text)
        return self.load(variant, device)

    def load(self, variant: VariantEntry, device: int) -> Function:
        """As `ready`, for a caller that knows that no stream is being captured."""
        return self._once(variant, device, partial(self._driver.load, device))

    def load_all(self, variants: Iterable[VariantEntry], device: int) -> None:
        """As `load` for each, with the driver prepared once."""
        with self._driver.loading(device) as load:
            for variant in variants:
                self._once(variant, device, load)

    def _once(self, variant: VariantEntry, device: int, load: Load) -> Function:
        event = None
        with self._lock.held():
            key = (variant.object.hex, device, variant.launch.shared)
            function = self._functions.get(key)
            if function is None:
                function, event = self._load(variant, device, load)
                self._functions[key] = function
                _FOREVER.append(function)
            if (variant.text, device) not in self._served:
                self._served.add((variant.text, device))
                self._counters.add(self._counters.loaded, variant.text)
        # Outside the lock, and when the load is noted: a hook may call kernels of this bundle, or raise.
        if event is not None:
            for hook in tuple(self._hooks.load):
                hook(event)
        return function

    def _load(self, variant: VariantEntry, device: int, load: Load) -> tuple[Function, LoadEvent]:
        entry = self._bundle.manifest.object(variant.object)
        image = self._bundle.object(variant.object)
        symbol = check_image(entry, image, self._bundle.where)
        started = time.perf_counter()
        function = load(image, symbol, variant.launch.shared)
        seconds = time.perf_counter() - started
        self._counters.module(len(image), seconds)
        return function, LoadEvent(variant.kernel, variant.text, device, len(image), seconds)


def check_image(entry: ObjectEntry, image: bytes, where: str) -> str:
    """Hold a code object against what the manifest says of it, before a driver sees it.

    Args:
        entry: What the manifest says.
        image: The code object.
        where: Names the bundle in errors.

    Returns:
        The symbol of its kernel, as the manifest says.

    Raises:
        IntegrityError: It is no ELF file, or its flags name another chip than the manifest does, or the manifest has
            no symbol for it.
    """
    if image[:4] != b"\x7fELF" or len(image) < _ELF_FLAGS_AT + _ELF_FLAGS.size:
        raise IntegrityError.one(_place(where, entry), "an ELF file", repr(image[:4]))
    (flags,) = _ELF_FLAGS.unpack_from(image, _ELF_FLAGS_AT)
    stated, symbol = entry.loading
    if flags != stated:
        expected = f"{stated!r}, as the manifest says"
        raise IntegrityError.one(f"{_place(where, entry)}: e_flags", expected, hex(flags))
    if not isinstance(symbol, str):
        raise IntegrityError.one(f"{_place(where, entry)}: symbol", "a text in the manifest", repr(symbol)[:60])
    return symbol


def _place(where: str, entry: ObjectEntry) -> str:
    return f"{where}: object {entry.digest.short}"
