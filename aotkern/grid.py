"""The grid of a launch: what callers write for it, and what a device allows."""

from __future__ import annotations

import math

from aotkern.errors import InputError

Grid = tuple[int, int, int]


def normalise(grid: object, where: str) -> Grid:
    """Three dimensions out of a tuple, a list or an int; missing dimensions are 1.

    Raises:
        InputError: Not a grid, more than three dimensions, or a negative one.
    """
    dimensions = (grid,) if isinstance(grid, int) else grid
    if not isinstance(dimensions, (tuple, list)) or not 1 <= len(dimensions) <= 3:
        raise InputError.one(f"{where}: grid", "one to three integers", repr(grid)[:60])
    found = [_integer(item, where) for item in dimensions]
    return found[0], *(found[1:2] or [1]), *(found[2:3] or [1])  # type: ignore[return-value]


def _integer(item: object, where: str) -> int:
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise InputError.one(f"{where}: grid", "integers", repr(item)[:60])
    number = int(item.__index__())
    if number < 0:
        raise InputError.one(f"{where}: grid", "no negative dimension", str(number))
    return number


def check(grid: Grid, limits: Grid, threads: int, most_threads: int, where: str) -> None:
    """Refuse a grid that the device cannot take, instead of launching less than was asked for.

    Args:
        grid: Workgroups in each dimension.
        limits: Most workgroups in each dimension.
        threads: Work-items of a workgroup, along x.
        most_threads: Most work-items along x of the whole grid.
        where: Names the kernel in the error.

    Raises:
        InputError: With the number asked for and the limit.
    """
    for axis, asked, limit in zip("xyz", grid, limits, strict=True):
        if asked > limit:
            raise InputError.one(f"{where}: grid.{axis}", f"at most {limit} workgroups", str(asked))
    if grid[0] * threads > most_threads:
        found = f"{grid[0]} workgroups of {threads} = {grid[0] * threads}"
        raise InputError.one(f"{where}: grid.x", f"at most {most_threads} work-items", found)


def programs(grid: Grid) -> int:
    """How many workgroups a grid has; Python's integers do not wrap around, as a 32-bit product does."""
    return math.prod(grid)
