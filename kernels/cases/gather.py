"""Cases of the copying kernels: indexer keys out of their pages, and dense index rows into a ragged list. Exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aotkern.audit.cases import Array, Case, Exact, Sparse, constants
from aotkern.spec import Fixed, Runtime, VariantKey

from .. import layout
from .drawing import generator, marked, one_of, padded
from .far import may_be_large

_PAGES = 3
_BLOCK_SIZE = 16
_FAR_STRIDE = 3 << 29
"""Bytes between pages in large memory: the second one begins beyond 2^30, the third one beyond 2^31."""


def gather_specialised(key: VariantKey, seed: int) -> Iterator[Case]:
    """Counts are fixed by the key; one program more than there are rows must do nothing."""
    chosen = constants(key)
    tokens, batches = chosen["NUM_TOKENS"], chosen["NUM_BATCHES"]
    yield _gather(key, seed, tokens, batches, chosen["BLOCK_TABLE_WIDTH"], chosen["NUM_BLOCKS"], beyond=1)


def gather_dynamic(key: VariantKey, seed: int) -> Iterator[Case]:
    """Counts arrive with the launch."""
    case = _gather(key, seed, 90, 3, 2, _PAGES)
    counts = {"num_batches": 3, "block_table_width": 2, "num_blocks": _PAGES}
    yield Case(case.name, case.grid, {**case.arguments, **counts}, case.expected)


def _gather(key: VariantKey, seed: int, tokens: int, batches: int, width: int, blocks: int, beyond: int = 0) -> Case:
    """Sequences over pages in any order, with blocks out of range and a table that may end early.

    Some rows belong to no sequence, or claim one that does not exist or in which they do not stand.
    """
    rng, chosen = generator(key, seed), constants(key)
    keys = rng.integers(0, 256, (_PAGES, padded(rng, layout.index_page_bytes(_BLOCK_SIZE))), np.uint8)
    scales = rng.standard_normal((_PAGES, _BLOCK_SIZE + one_of(rng, 3, 5, 9))).astype(np.float32)
    # The last sequence is the longest. It goes on beyond the rows: a program there must know that there is no row.
    starts = (np.linspace(0, 1, batches + 1) ** 1.5 * (tokens + beyond)).astype(np.int32)
    claims = np.repeat(np.arange(batches), np.diff(starts)).astype(np.int32)
    claims[[1, 4, 7, tokens - 2]] = (-1, batches, batches - 1 if batches > 1 else -(2**31), 0 if batches > 1 else 1)
    stride = _table_stride(rng, key, width)
    table = np.full((batches, stride), 1, np.int32)
    table[:, :width] = rng.choice([0, 1, 2, 2, -1, blocks], (batches, width))
    table[:, 0] = np.resize([2, 0, 1], batches)
    memory: Array | Sparse = keys
    if may_be_large(key, "k_cache"):
        pieces = {number * _FAR_STRIDE: page for number, page in enumerate(keys)}
        memory = Sparse((_PAGES, _FAR_STRIDE), keys.dtype, pieces)
    k_out, scale_out = marked((tokens, layout.INDEX_HEAD_DIM), np.uint8), marked((tokens,), np.float32)
    arguments: dict[str, Any] = {
        "k_cache": memory,
        "scale_cache": scales,
        "k_out": k_out,
        "scale_out": scale_out,
        "block_table": table,
        "cu_seqlen": starts,
        "token_to_seq": claims,
        "block_size": _BLOCK_SIZE,
        "page_stride": memory.shape[1],
        "scale_page_stride": scales.shape[1],
    }
    if not isinstance(dict(key.arguments)["block_table_stride"], Fixed):
        arguments["block_table_stride"] = stride
    keys_after, scales_after = k_out.copy(), scale_out.copy()
    for row, sequence in enumerate(claims[:tokens]):
        if not (0 <= sequence < batches and starts[sequence] <= row < starts[sequence + 1]):
            continue
        column, place = divmod(row - int(starts[sequence]), _BLOCK_SIZE)
        block = table[sequence, column] if column < width else -1
        scales_after[row] = 0
        if 0 <= block < blocks:
            keys_after[row] = _key(keys[block], place, shuffled=chosen["LAYOUT"] == "shuffle")
            scales_after[row] = scales[block, place]
    expected = {"k_out": Exact(keys_after), "scale_out": Exact(scales_after)}
    return Case("sequences over pages", (tokens + beyond,), arguments, expected)


def _table_stride(rng: np.random.Generator, key: VariantKey, width: int) -> int:
    spec = dict(key.arguments)["block_table_stride"]
    if isinstance(spec, Fixed):
        return int(spec.constant.value)
    return padded(rng, width) if isinstance(spec, Runtime) and spec.divisible else width + one_of(rng, 2, 3, 5)


def _key(page: Array, place: int, *, shuffled: bool) -> Array:
    offsets = [layout.index_byte_offset(place, dim, shuffled=shuffled) for dim in range(layout.INDEX_HEAD_DIM)]
    return page[offsets]


def pack_ragged(key: VariantKey, seed: int) -> Iterator[Case]:
    """Rows around one block of 128 entries and around two; with a bound on the slots, and without one."""
    rng = generator(key, seed)
    spec = dict(key.arguments)["dense_stride"]
    lengths = (0, 1, 127, 128, 129, 255, 256, 257)
    width = max(lengths)
    stride = padded(rng, width) + (0 if isinstance(spec, Runtime) and spec.divisible else 4)
    dense = rng.integers(-3, 60, (len(lengths), stride)).astype(np.int32)
    indptr = np.cumsum([0, *lengths]).astype(np.int32)
    flat = np.concatenate([row[:length] for row, length in zip(dense, lengths, strict=True)])
    out = marked((len(lengths) * width,), np.int32)
    for name, bound in (("bounded", 50), ("as it is", -1)):
        after = out.copy()
        known = (flat >= 0) & (flat < bound) if bound >= 0 else np.ones(len(flat), bool)
        after[: len(flat)] = np.where(known, flat, -1)
        arguments = {"dense": dense, "indptr": indptr, "out": out, "dense_stride": stride, "num_rows": bound}
        yield Case(name, (len(lengths), -(-width // 128)), arguments, {"out": Exact(after)})
