"""Scratch memory of a launch, taken and given back in the order of its stream: no set-up, and fit for capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aotkern.drivers import Driver

_ALIGNED = 256
"""What every driver aligns its memory to, in bytes."""


@contextmanager
def scratch(
    driver: Driver, device: int, stream: int, parts: tuple[tuple[int, int], tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Addresses of the global and the profile scratch memory; null for a part of size 0.

    Args:
        driver: Whose memory.
        device: Number of the device.
        stream: The stream of the launch.
        parts: Size of each part for the whole grid and its alignment, in bytes.
    """
    with ExitStack() as held:
        addresses: list[int] = []
        for size, alignment in parts:
            if not size:
                addresses.append(0)
                continue
            address = driver.allocate(device, size + (alignment if alignment > _ALIGNED else 0), stream)
            held.callback(driver.release, device, address, stream)
            addresses.append(-(-address // alignment) * alignment)
        yield addresses[0], addresses[1]
