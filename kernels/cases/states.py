"""Cases of the compressor's bookkeeping: the state that each token leaves, and the slot that each entry gets. Exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from aotkern.audit.cases import Case, Exact, Typed, constants
from aotkern.spec import Runtime, VariantKey

from ..writer_reference import Floats, compressed_slot, from_bf16
from .drawing import generator, marked, normal_patterns, one_of, padded
from .far import Far, may_be_large

_SLOTS_BLOCK: Final = 256  # tokens of one program


def store_state(key: VariantKey, seed: int) -> Iterator[Case]:
    """States of tokens in any place of their group, on pages with padding; one token is padding."""
    rng, chosen = generator(key, seed), constants(key)
    width, ratio, block_size, tokens = chosen["WIDTH"], chosen["RATIO"], one_of(rng, 4, 5), 6
    spec = dict(key.arguments)["kv"]
    half = isinstance(spec, Runtime) and spec.element == "bf16"
    patterns = [normal_patterns(rng, (tokens, padded(rng, width)), 3.0) for _ in range(2)]
    kv, score = (from_bf16(pattern) if half else _scattered(rng, pattern.shape) for pattern in patterns)
    ape = _scattered(rng, (ratio, width))
    positions = np.array([0, ratio - 1, ratio, 3 * ratio + 1, 5, 2 * ratio - 1], np.int64)
    slots = np.array([9, 0, -1, 5, 11, 2], np.int64)
    before = marked((3, padded(rng, block_size * 2 * width)), np.float32)
    after = before.copy()
    for token, slot in enumerate(slots):
        if slot >= 0:
            page, place = divmod(int(slot), block_size)
            row = after[page, place * 2 * width : (place + 1) * 2 * width]
            row[:width] = kv[token, :width]
            row[width:] = score[token, :width] + ape[positions[token] % ratio]
    arguments: dict[str, Any] = {
        "kv": Typed(patterns[0], "bf16") if half else kv,
        "score": Typed(patterns[1], "bf16") if half else score,
        "ape": ape,
        "positions": positions,
        "state": before,
        "state_slots": slots,
        "kv_stride": kv.shape[1],
        "score_stride": score.shape[1],
        "state_block_size": block_size,
        "state_page_stride": before.shape[1],
    }
    expected = Exact(after)
    if may_be_large(key, "state"):
        far = Far.of(*after.shape)
        arguments["state"], expected = far.memory(before), Exact(far.memory(after))
        arguments["state_slots"] = far.slots(slots, block_size)
    yield Case("states", (tokens,), arguments, {"state": expected})


def _scattered(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return (rng.standard_normal(shape) * 3).astype(np.float32)


def destination_slots(key: VariantKey, seed: int) -> Iterator[Case]:
    """More tokens than one program takes: padding, missing pages, entries beyond the table."""
    rng, ratio = generator(key, seed), constants(key)["RATIO"]
    tokens, block_size, width = _SLOTS_BLOCK + 45, one_of(rng, 2, 3), one_of(rng, 4, 5, 6)
    positions = rng.integers(0, ratio * block_size * (width + 1), tokens).astype(np.int64)
    ends = rng.random(tokens) < 0.7
    positions[ends] |= ratio - 1
    requests = rng.integers(-1, 3, tokens).astype(np.int32)
    table = rng.integers(-2, 2**28, (3, width + 2)).astype(np.int32)
    table[:, 1] = (-1, 0, 7)
    table[:, 2] = 2**31 - 1 - np.arange(3)  # slots beyond 2^31
    slots = marked((tokens,), np.int64)
    after = np.full(tokens, -1, np.int64)
    for token, (position, request) in enumerate(zip(positions, requests, strict=True)):
        column = int(position) // ratio // block_size
        if request >= 0 and column < width and table[request, column] >= 0:
            after[token] = compressed_slot(int(position), ratio, table[request], block_size)
    arguments = {
        "positions": positions,
        "token_to_req": requests,
        "block_table": table,
        "slots": slots,
        "num_tokens": tokens,
        "table_stride": table.shape[1],
        "table_width": width,
        "block_size": block_size,
    }
    yield Case("tokens of three requests", (-(-tokens // _SLOTS_BLOCK),), arguments, {"slots": Exact(after)})
