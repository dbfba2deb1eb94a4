"""How many splits a decode call gets: pure functions of the call's shape and of the device, no Triton, no tensors.

Split-K decode cuts the entries of one row into `splits` slices, so that few rows still fill the device; a reducer
merges the slices. More splits mean more workgroups, but also more partial results to write and to merge. A workgroup
walks its slice in tiles of `TILE` entries and takes its main and its extra slice one after the other.

The lengths that the host knows are capacities (the number of index entries that a buffer holds for each row): reading
the live lengths would need the device. For gfx950 a captured launch therefore chooses again on the device, inside the
grid that the capture fixed: `live_splits` is that rule, and `adaptive_plan` says whether a call uses it.
"""

from dataclasses import dataclass
from typing import Final

TILE: Final = 32
"""Entries of one tile of the split kernels."""
LEGACY_MAX_SPLITS: Final = 16
GFX950_MAX_SPLITS: Final = 32
SHORT_SPLITS: Final = 4
"""Splits of a row that is short enough to be done in `SHORT_TILES` tiles with this many."""
SHORT_TILES: Final = 3
ADAPTIVE_MIN_GROUPS: Final = 16
"""From this many workgroups per split on, gfx950 weighs the length of the rows."""
ONE_WAVE_MAX_GROUPS: Final = 64
"""Below this many workgroups per split, gfx950 considers filling the device exactly once."""

_WORKGROUPS_PER_CU: Final = 2
_ONE_WAVE_TILES: Final = 9
_MERGE_COST: Final = 0.04
_COST_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Shape:
    """What a selector looks at.

    Attributes:
        rows: Query rows of the call.
        head_blocks: Blocks of 16 heads per row.
        main_entries: Capacity of the main index list, over all rows.
        extra_entries: Capacity of the extra index list, over all rows; 0 without an extra segment.
        compute_units: Compute units (multiprocessors) of the device that the call runs on.
    """

    rows: int
    head_blocks: int
    main_entries: int
    extra_entries: int
    compute_units: int

    @property
    def groups(self) -> int:
        """Workgroups of one split, at least 1."""
        return max(1, self.rows * self.head_blocks)

    def waves(self, splits: int) -> int:
        """How many times the device is filled when every row has `splits` slices."""
        return ceil_div(self.groups * splits, self.compute_units)

    def tiles(self, splits: int) -> int:
        """Tiles that one workgroup walks on an average row, main and extra slice together."""
        span = max(1, self.rows) * splits * TILE
        return ceil_div(self.main_entries, span) + ceil_div(self.extra_entries, span)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The split choice of one gfx950 launch: the three values that the partial kernel is compiled for.

    Attributes:
        splits: Splits of the grid and of the scratch.
        adaptive: Whether each row chooses again on the device, from its live lengths.
        one_wave: The middle choice of an adaptive launch; equal to `splits` where there is none.
    """

    splits: int
    adaptive: bool
    one_wave: int


def ceil_div(value: int, divisor: int) -> int:
    """`value / divisor`, rounded up."""
    return -(-value // divisor)


def head_blocks(heads: int) -> int:
    """Blocks of 16 heads that `heads` need."""
    return ceil_div(heads, 16)


def legacy_splits(shape: Shape) -> int:
    """The split count of gfx942, 1 to 16.

    The cost of a count is its waves, each as long as a slice plus a constant for the merge. Among the counts below the
    cheapest that need as many waves and as many tiles, the smallest has the fewest partial results.
    """
    best, best_cost = 1, float("inf")
    for splits in range(1, LEGACY_MAX_SPLITS + 1):
        cost = shape.waves(splits) * (1 / splits + _MERGE_COST)
        if cost < best_cost - _COST_EPSILON:
            best, best_cost = splits, cost
    if shape.main_entries > 0 or shape.extra_entries > 0:
        return _fewest_alike(shape, best)
    return best


def gfx950_splits(shape: Shape) -> int:
    """The split count of gfx950, 1 to 32.

    Two workgroups for each compute unit are the target. Fewer than 16 workgroups per split take that count whatever the
    length of their rows; more of them stay at 4 splits when rows are short, and below 64 settle for filling the device
    once when a slice is then short enough.
    """
    splits = min(GFX950_MAX_SPLITS, ceil_div(_WORKGROUPS_PER_CU * shape.compute_units, shape.groups))
    if shape.groups < ADAPTIVE_MIN_GROUPS:
        return splits
    if splits > SHORT_SPLITS and shape.tiles(SHORT_SPLITS) <= SHORT_TILES:
        return SHORT_SPLITS
    if shape.groups < ONE_WAVE_MAX_GROUPS:
        one_wave = max(1, shape.compute_units // shape.groups)
        fills = 1 if shape.tiles(one_wave) <= _ONE_WAVE_TILES else _WORKGROUPS_PER_CU
        splits = min(splits, max(1, fills * shape.compute_units // shape.groups))
    return _fewest_alike(shape, splits)


def adaptive_plan(shape: Shape, splits: int, *, asked: bool) -> SplitPlan:
    """Whether a gfx950 launch with `splits` chooses again on the device, and between which counts.

    Args:
        shape: The call.
        splits: Splits of the grid.
        asked: Whether the caller wants it: a captured launch of a layer with all compressed entries (C128A).
    """
    groups = shape.groups
    if not (asked and groups >= ADAPTIVE_MIN_GROUPS and splits > SHORT_SPLITS):
        return SplitPlan(splits, adaptive=False, one_wave=splits)
    one_wave = max(1, shape.compute_units // groups) if groups < ONE_WAVE_MAX_GROUPS else splits
    return SplitPlan(splits, adaptive=True, one_wave=one_wave)


def live_splits(main_length: int, extra_length: int, plan: SplitPlan) -> int:
    """The splits that one row of an adaptive launch uses: the rule that the gfx950 kernel applies on the device."""

    def tiles(splits: int) -> int:
        return ceil_div(main_length, splits * TILE) + ceil_div(extra_length, splits * TILE)

    if not plan.adaptive:
        return plan.splits
    if tiles(SHORT_SPLITS) <= SHORT_TILES:
        return SHORT_SPLITS
    if SHORT_SPLITS < plan.one_wave < plan.splits and tiles(plan.one_wave) <= SHORT_TILES:
        return plan.one_wave
    return plan.splits


def slice_bounds(length: int, split: int, splits: int) -> tuple[int, int]:
    """First and past-the-last entry of slice `split`; the first may exceed the last, and the slice is then empty."""
    chunk = ceil_div(length, splits)
    first = split * chunk
    return first, min(first + chunk, length)


def _fewest_alike(shape: Shape, splits: int) -> int:
    """The smallest count that needs as many waves and as many tiles as `splits`."""
    alike = (shape.waves(splits), shape.tiles(splits))
    return next(fewer for fewer in range(1, splits + 1) if (shape.waves(fewer), shape.tiles(fewer)) == alike)
