"""Cases of the plain writers: rows of the main cache, and indexer keys that are ready. Exact, byte by byte.

One launch holds rows of every kind (`drawing.hard_rows`), on pages with padding, with a skipped row and one row more
than slots. Bytes between and behind the records must survive. Block sizes and strides are run-time values, so small
pages reach the paths of large ones. Where a variant serves caches of any size, the pages lie beyond 2^31 and 2^32 bytes
(`far`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aotkern.audit.cases import Case, Typed, constants
from aotkern.spec import VariantKey

from .. import layout
from ..writer_reference import FNUZ, OCP, Dialect, Halves, index_record, main_record
from .drawing import Longs, angle_table, generator, hard_rows, marked, one_of, padded, store_key, store_record
from .far import spread_cache

_PAGES = 40


def main_cache(key: VariantKey, seed: int) -> Iterator[Case]:
    """Rows that are turned already."""
    yield _main_case(key, seed, rotates=False)


def main_cache_rope(key: VariantKey, seed: int) -> Iterator[Case]:
    """Rows that the kernel turns."""
    yield _main_case(key, seed, rotates=True)


def _main_case(key: VariantKey, seed: int, *, rotates: bool) -> Case:
    rng = generator(key, seed)
    block_size = one_of(rng, 4, 5, 7)
    rows = _padded_rows(rng, layout.HEAD_DIM)
    slots = _slots(rng, len(rows) - 1, _PAGES * block_size)
    positions, angles = rng.integers(0, 20, len(rows)), angle_table(20)
    before = marked((_PAGES, padded(rng, layout.page_bytes(block_size))), np.uint8)
    after = before.copy()
    for row, slot, position in zip(rows, slots, positions, strict=False):
        if slot >= 0:
            turned = angles[position] if rotates else None
            data, codes = main_record(row[: layout.HEAD_DIM], _dialect(constants(key)), turned)
            store_record(after, slot, block_size, data, codes)
    arguments: dict[str, Any] = {
        "kv": Typed(rows, "bf16"),
        "slots": slots,
        "cache": before,
        "kv_stride": rows.shape[1],
        "block_size": block_size,
        "page_stride": before.shape[1],
    }
    if rotates:
        arguments |= {"positions": positions, "cos_sin": angles}
    expected = spread_cache(key, arguments, after, block_size)
    return Case("rows of every kind", (len(slots),), arguments, {"cache": expected})


def index_keys(key: VariantKey, seed: int) -> Iterator[Case]:
    """Plain indexer keys."""
    rng, chosen = generator(key, seed), constants(key)
    block_size, shuffled = one_of(rng, 16, 32, 48), chosen["LAYOUT"] == "shuffle"
    rows = _padded_rows(rng, layout.INDEX_HEAD_DIM)
    slots = _slots(rng, len(rows) - 1, _PAGES * block_size)
    before = marked((_PAGES, padded(rng, layout.index_page_bytes(block_size))), np.uint8)
    after = before.copy()
    for row, slot in zip(rows, slots, strict=False):
        if slot >= 0:
            patterns = row[: layout.INDEX_HEAD_DIM]
            codes, scale = index_record(patterns, _dialect(chosen), power_of_two=chosen["POWER_OF_TWO"])
            store_key(after, slot, block_size, codes, scale, shuffled=shuffled)
    arguments = {
        "keys": Typed(rows, "bf16"),
        "slots": slots,
        "cache": before,
        "key_stride": rows.shape[1],
        "block_size": block_size,
        "page_stride": before.shape[1],
    }
    expected = spread_cache(key, arguments, after, block_size)
    yield Case("keys of every kind", (len(slots),), arguments, {"cache": expected})


def _dialect(chosen: dict[str, Any]) -> Dialect:
    return FNUZ if chosen["FNUZ"] else OCP


def _padded_rows(rng: np.random.Generator, width: int) -> Halves:
    """Rows of every kind and one more, with NaN between them."""
    rows = hard_rows(rng, width)
    return np.pad(rows, ((0, 1), (0, padded(rng, width) - width)), constant_values=0x7FC0)


def _slots(rng: np.random.Generator, rows: int, slots: int) -> Longs:
    """Distinct slots, the last one of the cache among them; the first row, an ordinary one, is skipped."""
    others = rng.permutation(slots - 1)[: rows - 2]
    return np.concatenate([[-1, slots - 1], others]).astype(np.int64)
