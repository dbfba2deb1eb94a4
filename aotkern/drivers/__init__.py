"""Drivers: what loads code objects onto devices and launches them, one file each behind one protocol.

Which drivers there are is the table below; each is imported when it is opened. None of them imports torch or Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from aotkern.drivers.protocol import Device, Driver, Entry, Function, Launch, Load
from aotkern.errors import InputError

__all__ = ["NAMES", "Device", "Driver", "Entry", "Function", "Launch", "Load", "open_driver"]

# Name -> the module whose `open_driver()` makes it.
_DRIVERS = {
    "hip": "aotkern.drivers.hip",
    "cuda": "aotkern.drivers.cuda",
    "null": "aotkern.drivers.null",
    "emulator": "aotkern.drivers.emulator",
}
NAMES = tuple(_DRIVERS)
"""The drivers that exist, in the order in which a machine is asked for them."""


def open_driver(name: str) -> Driver:
    """The driver with this name.

    Raises:
        InputError: There is no such driver.
        MissingToolError: Its library is not on this machine.
        DriverError: It is, and refuses to start.
    """
    if name not in _DRIVERS:
        raise InputError.one("driver", f"one of {', '.join(_DRIVERS)}", repr(name))
    factory = cast("Callable[[], Driver]", import_module(_DRIVERS[name]).open_driver)
    return factory()
