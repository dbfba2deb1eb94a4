"""Grids as callers write them, and the limits of devices."""

from __future__ import annotations

import pytest

from aotkern.errors import InputError
from aotkern.grid import check, normalise, programs


@pytest.mark.parametrize(
    ("grid", "normal"),
    [
        (7, (7, 1, 1)),
        ((7,), (7, 1, 1)),
        ([7, 2], (7, 2, 1)),
        ((7, 2, 3), (7, 2, 3)),
        ((0,), (0, 1, 1)),
        ((4, 0, 1), (4, 0, 1)),
    ],
)
def test_missing_dimensions_are_one(grid, normal):
    assert normalise(grid, "k") == normal


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), "3", None, (1.5,), (True,), (-1,), (3, -1), {"x": 1}])
def test_what_is_no_grid_is_refused(grid):
    with pytest.raises(InputError, match="k: grid"):
        normalise(grid, "k")


def test_product_does_not_wrap():
    assert programs((2**17, 2**15, 1)) == 2**32
    assert programs((2**31 - 1, 65535, 65535)) > 2**60
    assert programs((4, 0, 1)) == 0


LIMITS = (2**31 - 1, 65535, 65535)


@pytest.mark.parametrize("grid", [(2**17, 2**15, 1), (2**16, 2**15, 1), (2**23, 65535, 65535)])
def test_huge_grids_within_the_limits_pass(grid):
    check(grid, LIMITS, 128, 2**32 - 1, "k")


@pytest.mark.parametrize(
    ("grid", "axis", "limit", "found"),
    [
        ((2**31, 1, 1), "x", "2147483647 workgroups", "2147483648"),
        ((1, 65536, 1), "y", "65535 workgroups", "65536"),
        ((1, 1, 70000), "z", "65535 workgroups", "70000"),
        ((2**24, 1, 1), "x", "4294967295 work-items", "16777216 workgroups of 256 = 4294967296"),
    ],
)
def test_grid_over_a_limit_names_both_numbers(grid, axis, limit, found):
    with pytest.raises(InputError) as caught:
        check(grid, LIMITS, 256, 2**32 - 1, "k")
    (problem,) = caught.value.problems
    assert (problem.where, problem.expected, problem.found) == (f"k: grid.{axis}", f"at most {limit}", found)
