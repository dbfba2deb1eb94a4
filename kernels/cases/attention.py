"""Cases of the attention kernels: partial results in scratch, and the monolithic output, within a tolerance.

One launch takes many query rows, so that slices of every length occur: none, one entry, a tile less or more one entry,
a peeled group of 64 less or more one, groups with tails. Slot 0 of each cache is poisoned and never referenced: it is
where a kernel reads when it should not. Other records hold NaN, where the kernel must scrub them, or the canonical form
of the same, where it may trust them. Entries outside of the cache stand in the first tile, in the second one and behind
a group, and one row has no others. Behind the last row stand valid slots, which nothing may read.

Bytes and codes are drawn so that numbers of every exponent of fp8 count, and the numbers are of order 1: much smaller
ones give scores that hardly differ, and would leave a wrong softmax inside the tolerance.

Where a variant serves caches of any size, the pages lie beyond 2^31 and 2^32 bytes (`far`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aotkern.audit.cases import Array, Case, Near, Sparse, Typed, constants
from aotkern.spec import VariantKey

from .. import layout, reference
from ..reference import Bytes, Cache, Segment
from ..selectors import SHORT_SPLITS, SplitPlan, head_blocks, live_splits
from ..writer_reference import from_bf16
from .drawing import generator, normal_patterns, one_of, padded
from .far import Far, may_be_large
from .reduce import output, poison

Lengths = tuple[tuple[int, int], ...]
"""Main and extra entries of each row."""

ONLY_INVALID: Final = (2, 3)
"""A row of these lengths has entries, none of them valid."""
_OUTSIDE: Final = {3: -1, 10: -(2**31), 20: 2**31 - 1}  # by place in a row
_BEYOND: Final = {40: 0, 64: 1024}  # by place in a row, relative to the slots of the cache
_TILES: Final = ((0, 0), (1, 0), (33, 1), (0, 31), (5, 32), (32, 33), (2, 63), (128, 64), (64, 65), ONLY_INVALID)
_SMALL_TILES: Final = ((0, 0), (1, 0), (17, 1), (0, 15), (5, 16), (16, 17), (2, 40), (33, 65), ONLY_INVALID)
_NAN_SHARE: Final = 1 / 32
_SINKS: Final = np.tile(np.array([-np.inf, -1.0, 4.0], np.float32), 8)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The inputs of a launch.

    Attributes:
        q: bf16 patterns [rows, heads, 512].
        main: Main segment.
        extra: Extra segment, or the main one where there is none.
        has_extra: Whether there is.
    """

    q: Array
    main: Segment
    extra: Segment
    has_extra: bool

    def call(self, row: int) -> reference.Call:
        """One row as the reference takes it."""
        segments = (self.main, self.extra) if self.has_extra else (self.main,)
        rows = tuple(Segment(s.cache, s.entries(row), np.array([0, len(s.entries(row))], np.int32)) for s in segments)
        return reference.Call(from_bf16(self.q[row : row + 1]).astype(np.float64), rows)

    def arguments(self, key: VariantKey, heads: int, columns: int) -> dict[str, Any]:
        """What all kernels take; q with room for `heads` heads of `columns` numbers, of NaN."""
        pad = ((0, 0), (0, heads - self.q.shape[1]), (0, columns - layout.HEAD_DIM))
        arguments: dict[str, Any] = {"q": Typed(np.pad(self.q, pad, constant_values=0x7FC0), "bf16")}
        for name, segment in (("main", self.main), ("extra", self.extra)):
            arguments |= _cache_arguments(name, segment, large=may_be_large(key, f"{name}_cache"))
        return arguments


def _cache_arguments(name: str, segment: Segment, *, large: bool) -> dict[str, Any]:
    """A cache with the entries of all rows in it."""
    cache, pages, indices, rows = segment.cache, segment.cache.pages, segment.indices, segment.cache.rows
    memory: Array | Sparse = pages
    if large:
        far = Far.of(*pages.shape)
        memory, indices = far.memory(pages), far.slots(indices, cache.block_size)
        rows = far.count * cache.block_size
    return {
        f"{name}_cache": memory,
        f"{name}_indices": indices,
        f"{name}_indptr": segment.indptr,
        f"{name}_rows": rows,
    }


def partial_gfx950(key: VariantKey, seed: int) -> Iterator[Case]:
    """Strides and sizes are fixed by the key; rows choose their splits where the variant is adaptive."""
    chosen = constants(key)
    plan = SplitPlan(chosen["NUM_SPLITS"], chosen["ADAPTIVE"], chosen["ONE_WAVE_SPLITS"])
    lengths = adaptive_lengths(plan) if plan.adaptive else static_lengths(plan.splits)
    rng = generator(key, seed)
    main = _cache(rng, 2, chosen["MAIN_BLOCK_SIZE"], chosen["MAIN_PAGE_STRIDE"], fnuz=chosen["FNUZ_MAIN"])
    size, stride, trusted = chosen["EXTRA_BLOCK_SIZE"], chosen["EXTRA_PAGE_STRIDE"], chosen["TRUST_EXTRA"]
    extra = _cache(rng, max(2, 64 // size), size, stride, fnuz=chosen["FNUZ_EXTRA"], canonical=trusted)
    drawn = _drawn(rng, lengths, chosen["HEADS"], main, extra, has_extra=chosen["HAS_EXTRA"])
    live = [live_splits(*_counted(drawn, row), plan) for row in range(len(lengths))]
    scratch = _Scratch.of(drawn, plan.splits, live)
    arguments = drawn.arguments(key, chosen["HEADS"], layout.HEAD_DIM) | scratch.arguments
    grid = (len(lengths), plan.splits, head_blocks(chosen["HEADS"]))
    yield Case("slices of every length", grid, arguments, scratch.expected)


def partial_legacy(key: VariantKey, seed: int) -> Iterator[Case]:
    """Strides and sizes arrive with the launch; with few splits there are two blocks of heads."""
    chosen, rng = constants(key), generator(key, seed)
    splits = chosen["NUM_SPLITS"]
    heads = 19 if splits <= 2 else 5
    drawn = _legacy(rng, static_lengths(splits), heads, chosen)
    scratch = _Scratch.of(drawn, splits, [splits] * len(drawn.q), room=1)
    arguments = drawn.arguments(key, heads + 1, layout.HEAD_DIM + 16) | scratch.arguments | _sizes(drawn)
    arguments |= _strides("q", arguments["q"].data, "th")
    arguments |= _strides("part_m", arguments["part_m"], "ts") | _strides("part_acc", arguments["part_acc"], "tsh")
    yield Case("slices of every length", (len(drawn.q), splits, head_blocks(heads)), arguments, scratch.expected)


def monolithic(key: VariantKey, seed: int) -> Iterator[Case]:
    """Whole rows, around tiles of 16; two blocks of heads."""
    chosen, rng = constants(key), generator(key, seed)
    heads = 19
    drawn = _legacy(rng, _SMALL_TILES, heads, chosen)
    sink = _SINKS[:heads].astype(np.float64) if chosen["HAS_SINK"] else None
    calls = [drawn.call(row) for row in range(len(drawn.q))]
    wanted = np.concatenate([reference.attend(reference.Call(c.q, c.segments, c.scale, sink)) for c in calls])
    out, expected = output(wanted)
    arguments = drawn.arguments(key, heads + 1, layout.HEAD_DIM + 16) | _sizes(drawn)
    arguments |= {"sink": _SINKS[:heads], "out": Typed(out, "bf16")}
    arguments |= _strides("q", arguments["q"].data, "th") | _strides("out", out, "th")
    yield Case("rows of every length", (len(drawn.q), head_blocks(heads)), arguments, {"out": expected})


def static_lengths(splits: int) -> Lengths:
    """Rows whose longest slices have the lengths of interest: fewer of them the more slices a row has."""
    rows = _TILES if splits <= 2 else ((0, 0), (33, 65), ONLY_INVALID)
    return tuple((_row_length(main, splits), _row_length(extra, splits)) for main, extra in rows)


def _row_length(slice_length: int, splits: int) -> int:
    """The shortest row whose slices are so long; up to 3 entries, the row itself, most slices of which are empty."""
    return slice_length if slice_length <= 3 else (slice_length - 1) * splits + 1


def adaptive_lengths(plan: SplitPlan) -> Lengths:
    """Rows that choose 4 splits, the middle count where there is one, and all; the last one in two main tiles."""
    middle = SHORT_SPLITS < plan.one_wave < plan.splits
    between = ((128, 257),) if middle else ()
    return ((0, 0), (128, 200), *between, (32 * plan.splits + 1, 64 * plan.one_wave + 1 if middle else 257))


def _counted(drawn: _Drawn, row: int) -> tuple[int, int]:
    """Main and extra entries of a row, valid or not."""
    return len(drawn.main.entries(row)), len(drawn.extra.entries(row)) if drawn.has_extra else 0


def _legacy(rng: np.random.Generator, lengths: Lengths, heads: int, chosen: dict[str, Any]) -> _Drawn:
    """Inputs of the gfx942 kernels, on small pages with padding."""
    size = one_of(rng, 8, 16)
    main = _cache(rng, 9, size, padded(rng, layout.page_bytes(size)), fnuz=chosen["FNUZ_MAIN"])
    extra = _cache(rng, 50, 2, padded(rng, layout.page_bytes(2)), fnuz=chosen["FNUZ_EXTRA"])
    return _drawn(rng, lengths, heads, main, extra, has_extra=chosen["HAS_EXTRA"])


def _sizes(drawn: _Drawn) -> dict[str, Any]:
    """What the gfx942 kernels take as run-time values."""
    values: dict[str, Any] = {"scale": layout.SOFTMAX_SCALE, "heads": drawn.q.shape[1]}
    for name, segment in (("main", drawn.main), ("extra", drawn.extra)):
        values[f"{name}_page_stride"] = segment.cache.pages.shape[1]
        values[f"{name}_block_size"] = segment.cache.block_size
    return values


def _strides(name: str, array: Array, axes: str) -> dict[str, int]:
    return {f"{name}_stride_{axis}": array.strides[n] // array.itemsize for n, axis in enumerate(axes)}


def _drawn(
    rng: np.random.Generator, lengths: Lengths, heads: int, main: Cache, extra: Cache, *, has_extra: bool
) -> _Drawn:
    """A query and the entries of its rows."""
    q = normal_patterns(rng, (len(lengths), heads, layout.HEAD_DIM), 2.0)
    invalid = [row == ONLY_INVALID for row in lengths]
    return _Drawn(
        q,
        _segment(rng, main, [row[0] for row in lengths], invalid),
        _segment(rng, extra, [row[1] if has_extra else 0 for row in lengths], invalid),
        has_extra,
    )


def _segment(rng: np.random.Generator, cache: Cache, lengths: Sequence[int], invalid: Sequence[bool]) -> Segment:
    """Entries of each row, and 64 valid slots behind the last one."""
    outside = {**_OUTSIDE, **{place: cache.rows + more for place, more in _BEYOND.items()}}
    rows = []
    for length, none in zip(lengths, invalid, strict=True):
        slots = rng.integers(1, cache.rows, length)
        for place, slot in outside.items():
            if place < length:
                slots[place] = slot
        rows.append(np.resize([-1, cache.rows], length) if none else slots)
    behind = rng.integers(1, cache.rows, 64)
    indptr = np.cumsum([0, *lengths]).astype(np.int32)
    return Segment(cache, np.concatenate([*rows, behind]).astype(np.int32), indptr)


def _cache(
    rng: np.random.Generator, pages: int, block_size: int, stride: int, *, fnuz: bool, canonical: bool = False
) -> Cache:
    """Records of numbers of order 1, with special ones in the first slots; NaN behind the records of a page."""
    cache = Cache(np.full((pages, stride), 0x7F, np.uint8), block_size, fnuz)
    exponents = rng.integers(1, 16, (cache.rows, layout.QUANT_BLOCKS))
    nope = _fp8_bytes(rng, np.repeat(exponents, layout.QUANT_BLOCK, axis=1), fnuz=fnuz)
    rope = normal_patterns(rng, (cache.rows, layout.ROPE))
    nan = 0x80 if fnuz else 0x7F
    if not canonical:  # NaN in any lane of any register that a tile is loaded to
        nope[rng.random(nope.shape) < _NAN_SHARE] = nan
        rope[rng.random(rope.shape) < _NAN_SHARE] = 0xFFC0
    scales = np.pad(layout.SCALE_BIAS + (8 if fnuz else 7) - exponents, ((0, 0), (0, 1))).astype(np.uint8)
    for slot, record in enumerate(np.concatenate([nope, rope.view(np.uint8)], axis=1)):
        data, codes = record_parts(cache, slot)
        data[:], codes[:] = record, scales[slot]
    _blank(cache, 0, nan, 255)
    _blank(cache, 1, *((0, 254) if canonical else (nan, 255)))
    record_parts(cache, 2)[1][2] = 0
    return cache


def record_parts(cache: Cache, slot: int) -> tuple[Bytes, Bytes]:
    """Views of the data part and of the scale part of a record."""
    page, place = layout.page_of(slot, cache.block_size)
    data, codes = layout.data_offset(place), layout.scale_offset(place, cache.block_size)
    pages = cache.pages[page]
    return pages[data : data + layout.DATA_BYTES], pages[codes : codes + layout.SCALE_BYTES]


def _blank(cache: Cache, slot: int, first: int, code: int) -> None:
    """A record of zeros but for one byte and the codes: poison, or what a canonical writer stores instead."""
    data, codes = record_parts(cache, slot)
    data[:] = 0
    data[0], codes[:-1] = first, code
    if code == layout.SCALE_CODE_MAX:
        data[layout.NOPE : layout.NOPE + 2] = (0xC0, 0x7F)


def _fp8_bytes(rng: np.random.Generator, largest: Array, *, fnuz: bool) -> Bytes:
    """Bytes of any sign, mantissa and exponent field up to `largest`, none of them NaN."""
    data = rng.integers(0, (largest + 1) * 8) | rng.integers(0, 2, largest.shape) << 7
    nan = data == 0x80 if fnuz else data & 0x7F == 0x7F
    return (data ^ nan).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Poisoned scratch, and what must stand in it after the launch."""

    arguments: dict[str, Any]
    expected: dict[str, Near]

    @classmethod
    def of(cls, drawn: _Drawn, splits: int, live: Sequence[int], room: int = 0) -> _Scratch:
        """Scratch for rows that are cut into `live` slices each.

        A slice without valid entries holds the maximum of nothing and zeros, exactly; a slice that is not live holds
        the same maximum and denominator, and its numerator is not written.

        Args:
            drawn: The launch.
            splits: Slices that there is room for.
            live: Slices of each row that have work to share.
            room: Heads and splits more than needed, which are not written; 0 for contiguous scratch.
        """
        rows, heads, dim = drawn.q.shape
        shape = (rows, splits + room, heads + room)
        wide = (*shape, dim + 16 * room)
        m, l, acc = (np.full(size, np.nan) for size in (shape, shape, wide))
        kept_m, kept_l, kept_acc = (poison(size) for size in (shape, shape, wide))
        kept_m[:, :splits, :heads], kept_l[:, :splits, :heads] = reference.NEG, 0
        for row, count in enumerate(live):
            found = reference.partial(drawn.call(row), count)
            some = found.m[0] > reference.NEG
            m[row, :count, :heads] = np.where(some, found.m[0], np.nan)
            l[row, :count, :heads] = np.where(some, found.l[0], np.nan)
            acc[row, :count, :heads, :dim] = np.where(some[..., None], found.acc[0], np.nan)
            kept_acc[row, :count, :heads, :dim] = 0
        arguments = {"part_m": poison(shape), "part_l": poison(shape), "part_acc": poison(wide)}
        expected = {
            "part_m": Near(m, 1e-3, 1e-3, 1e-3, kept_m),
            "part_l": Near(l, 1e-3, 1e-3, 1e-3, kept_l),
            # A numerator is the output times its denominator, and so is its error.
            "part_acc": Near(acc, 0.02 * np.fmax(l, 1.0)[..., None], l2=5e-3, elsewhere=kept_acc),
        }
        return cls(arguments, expected)
