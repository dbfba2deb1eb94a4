"""Cases of the compressor: weighted sums, and entries of both compressed caches.

Records are exact, byte by byte, although exp and the reciprocal square root are not: weights of the norm are drawn
again until no number of an entry stands so near to the middle between two bf16 numbers that an error of a few units in
the last place of fp32 could round it the other way. From bf16 on, every byte follows by rule.

Each insertion has two cases:

    groups      groups of several requests, softmax and norm at work: the first group of a sequence, a later one, tokens
                that end no group, padding, entries without a destination
    hard rows   the softmax hands through the last token and the norm is a division by 2^60, so that rows are exact:
                near-ties of both roundings, limits of the scales, NaN and infinities by lane and by row

Bytes between and behind the records must survive. Where a variant serves memory of any size, the pages of states and of
the cache lie beyond 2^31 and 2^32 elements (`far`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aotkern.audit.cases import Array, Case, Near, Sparse, Typed, constants
from aotkern.spec import Runtime, VariantKey

from .. import layout
from ..writer_reference import (
    Doubles,
    Floats,
    compress,
    compressed_index_record,
    compressed_record,
    from_bf16,
    group_states,
    rotate,
    to_bf16,
)
from .drawing import Longs, angle_table, generator, hard_rows, marked, one_of, padded, store_key, store_record
from .far import Far, may_be_large, spread_cache

_EPS: Final = 1e-6
_HUGE_EPS: Final = 2.0**120
_HUGE_WEIGHT: Final = 2.0**60
_SLACK: Final = 1e-5
"""More than the relative error of the sums and functions in fp32."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Tokens of some requests, with the states of all positions before them.

    Attributes:
        states: By request: fp32 [positions, 2 * width].
        request: Of each token.
        positions: Of each token.
        padding: Tokens that are none.
        slots: Destination of each token's entry, or -1.
        ratio: Tokens that become one entry.
    """

    states: Floats
    request: Array
    positions: Longs
    padding: Array
    slots: Longs
    ratio: int

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens whose entries must be written."""
        whole = ((self.positions + 1) % self.ratio == 0) & ~self.padding & (self.slots >= 0)
        return tuple(int(token) for token in np.flatnonzero(whole))

    def group(self, token: int) -> tuple[Doubles, Doubles]:
        """Find kv and score of the entry that a token ends."""
        states, position = self.states[self.request[token]], int(self.positions[token])
        return group_states(states, position, self.ratio, overlap=self.ratio == 4)

    def arguments(self, key: VariantKey, rng: np.random.Generator, *block_sizes: int) -> dict[str, Any]:
        """The step as kernels take it: states on pages in any order, NaN wherever there is no state."""
        requests, count, width = self.states.shape
        block_size = one_of(rng, *block_sizes)
        stride = padded(rng, block_size * width)
        columns = -(-count // block_size)
        table = np.arange(requests * columns)[::-1].reshape(requests, columns) + 1
        pages = np.full((requests * columns + 1, stride), np.nan, np.float32)
        for request in range(requests):
            for position in range(count):
                column, place = divmod(position, block_size)
                pages[table[request, column], place * width : (place + 1) * width] = self.states[request, position]
        memory: Array | Sparse = pages
        if may_be_large(key, "state"):
            far = Far.of(*pages.shape)
            memory, table = far.memory(pages), far.pages(table)
        return {
            "state": memory,
            "positions": self.positions,
            "state_slots": np.where(self.padding, -1, 5).astype(np.int64),
            "token_to_req": self.request.astype(np.int32),
            "state_table": np.pad(table, ((0, 0), (0, 1))).astype(np.int32),
            "slots": self.slots,
            "state_block_size": block_size,
            "state_page_stride": pages.shape[1],
            "state_table_stride": columns + 1,
        }


def _groups(rng: np.random.Generator, ratio: int, dims: int) -> _Step:
    """Three groups each of two requests, and the tokens of interest.

    The kv of a dim has one sign, so that no sum comes near zero, where its error would be large beside it.
    """
    width = dims * (2 if ratio == 4 else 1)
    kv = rng.uniform(0.25, 2, (2, 3 * ratio, width)) * np.tile(rng.choice([-1, 1], dims), width // dims)
    score = rng.standard_normal(kv.shape) * 2
    states = np.concatenate([kv, score], axis=2)
    ends = np.array([ratio - 1, 3 * ratio - 1, 2 * ratio - 1, ratio, 2 * ratio - 1, 3 * ratio - 1])
    return _Step(
        states=states.astype(np.float32),
        request=np.array([0, 1, 1, 0, 0, 0]),
        positions=ends.astype(np.int64),
        padding=np.array([False, False, False, False, True, False]),
        slots=np.array([4, 0, 7, 3, 2, -1], np.int64),
        ratio=ratio,
    )


def _handed_through(rows: Floats, ratio: int) -> _Step:
    """Entry number i is exactly `rows[i]`: the last token of each group takes all the weight."""
    count, dims = rows.shape
    width = dims * (2 if ratio == 4 else 1)
    states = np.full((1, count * ratio, 2 * width), -np.inf, np.float32)
    states[..., :width] = 77
    last = np.arange(count) * ratio + ratio - 1
    states[0, last, width - dims : width] = rows
    states[0, last, -dims:] = 0
    request, slots = np.zeros(count, np.int64), np.arange(count, dtype=np.int64)[::-1].copy()
    return _Step(states, request, last.astype(np.int64), np.zeros(count, bool), slots, ratio)


def _special(rng: np.random.Generator, dims: int) -> tuple[Floats, Floats]:
    """Rows [8, dims] that are hard to round, and a weight that makes some lanes NaN or infinite."""
    rows = from_bf16(hard_rows(rng, dims)).copy()
    with np.errstate(invalid="ignore"):
        tame = np.where(np.abs(rows) < 2.0**50, rows, np.float32(3))
    tame[5, 3] = np.inf  # makes the whole row NaN, through the norm
    # Near-ties of the rounding to bf16: the lower half of the pattern.
    lower = rng.choice([0, 0x7FFF, 0x8000, 0x8001], (2, dims)).astype(np.uint32)
    tame[:2] = (tame[:2].view(np.uint32) & 0xFFFF0000 | lower).view(np.float32)
    weight = np.full(dims, _HUGE_WEIGHT, np.float32)
    weight[[5, dims - 60]] = np.nan
    weight[[min(70, dims - 70), dims - 31]] = np.inf
    return tame, weight


def _steady_weight(rng: np.random.Generator, rows: Doubles, sizes: Doubles, angles: list[Floats], first: int) -> Floats:
    """A norm weight under which no number of the entries is near a tie of the rounding to bf16.

    Args:
        rng: For the weights, which bf16 can hold.
        rows: Entries [n, dims] before the weight.
        sizes: Magnitudes of the sums behind `rows`, to which their errors are relative.
        angles: Of each entry.
        first: First of the turned dims.
    """
    weight = from_bf16(to_bf16((1 + 0.2 * rng.standard_normal(rows.shape[1])).astype(np.float32)))
    for _ in range(100):
        bad = np.zeros(len(weight), bool)
        for row, size, angle in zip(rows * weight, sizes * np.abs(weight), angles, strict=True):
            bad[:first] |= _unsteady(row[:first], size[:first])
            turned = _unsteady(_turned(row[first:], angle), _turned_size(size[first:], angle))
            bad[first:] |= np.repeat(turned[0::2] | turned[1::2], 2)
        if not bad.any():
            return weight
        fresh = (1 + 0.2 * rng.standard_normal(int(bad.sum()))).astype(np.float32)
        weight[bad] = from_bf16(to_bf16(fresh))
    raise ValueError("no weight keeps the entries away from the middle between two bf16 numbers")


def _unsteady(row: Doubles, size: Doubles) -> Array:
    low, high = (row + sign * _SLACK * size for sign in (-1, 1))
    return to_bf16(low.astype(np.float32)) != to_bf16(high.astype(np.float32))


def _turned(row: Doubles, angle: Floats) -> Doubles:
    return rotate(row.astype(np.float32), angle).astype(np.float64)


def _turned_size(size: Doubles, angle: Floats) -> Doubles:
    """Magnitudes behind a turned row: the sum of the magnitudes of both products."""
    even, odd = size[0::2], size[1::2]
    cos, sin = np.abs(angle[: layout.ROPE // 2]), np.abs(angle[layout.ROPE // 2 :])
    return np.stack([even * cos + odd * sin, even * sin + odd * cos], axis=1).reshape(-1)


def _normalised(step: _Step, eps: float) -> tuple[Doubles, Doubles]:
    """The entries of a step before the weight, and the magnitudes of the sums behind them."""
    rows, sizes = [], []
    for token in step.ends:
        kv, score = step.group(token)
        row = _sum(kv, score)
        norm = np.sqrt((row**2).mean() + eps)
        rows.append(row / norm)
        sizes.append(_sum(np.abs(kv), score) / norm)
    return np.array(rows), np.array(sizes)


def _weight(key: VariantKey, weight: Floats) -> Array | Typed:
    """The weight in the type that the variant takes."""
    spec = dict(key.arguments)["norm_weight"]
    half = isinstance(spec, Runtime) and spec.element == "bf16"
    return Typed(to_bf16(weight), "bf16") if half else weight


def insert_cache(key: VariantKey, seed: int) -> Iterator[Case]:
    """Compress and insert in one pass."""
    for name, step, eps, weight, angles in _insertions(key, seed, layout.HEAD_DIM):
        arguments = step.arguments(key, generator(key, seed), *((3, 4) if step.ratio == 4 else (8, 16)))
        yield _record_case(key, seed, name, step, _rows(step, eps, weight), weight, angles, {**arguments, "eps": eps})


def insert_rows(key: VariantKey, seed: int) -> Iterator[Case]:
    """The second of two stages: its input is what the first one left."""
    for name, step, eps, weight, angles in _insertions(key, seed, layout.HEAD_DIM):
        sums = np.full((len(step.positions), layout.HEAD_DIM), np.nan, np.float32)
        for token in step.ends:
            sums[token] = _sum(*step.group(token))
        given = {
            name: value for name, value in step.arguments(key, generator(key, seed), 8).items() if name in _SECOND_STAGE
        }
        arguments = {**given, "rows": sums, "eps": eps}
        yield _record_case(key, seed, name, step, _rows(step, eps, weight), weight, angles, arguments)


_SECOND_STAGE: Final = ("positions", "state_slots", "slots")


def insert_index(key: VariantKey, seed: int) -> Iterator[Case]:
    """The indexer's keys: 128 dims, one scale."""
    rng = generator(key, seed)
    block_size = one_of(rng, 8, 16, 20)
    for name, step, eps, weight, angles in _insertions(key, seed, layout.INDEX_HEAD_DIM):
        before = marked((1, padded(rng, layout.index_page_bytes(block_size))), np.uint8)
        after = before.copy()
        for token, row in zip(step.ends, _rows(step, eps, weight), strict=True):
            codes, scale = compressed_index_record(row, angles[_first(step, token)])
            store_key(after, int(step.slots[token]), block_size, codes, scale)
        arguments = step.arguments(key, generator(key, seed), 3, 4) | _destination(
            key, before, block_size, weight, angles
        )
        arguments["eps"] = eps
        expected = spread_cache(key, arguments, after, block_size)
        yield Case(name, (len(step.positions),), arguments, {"cache": expected})


def _insertions(key: VariantKey, seed: int, dims: int) -> Iterator[tuple[str, _Step, float, Floats, Floats]]:
    """Name, step, eps, norm weight and angles of both cases."""
    rng, ratio = generator(key, seed), constants(key)["RATIO"]
    step = _groups(rng, ratio, dims)
    angles = angle_table(8 * ratio)
    turns = [angles[_first(step, token)] for token in step.ends]
    yield "groups", step, _EPS, _steady_weight(rng, *_normalised(step, _EPS), turns, dims - layout.ROPE), angles
    rows, weight = _special(rng, dims)
    yield "hard rows", _handed_through(rows, ratio), _HUGE_EPS, weight, angles


def _first(step: _Step, token: int) -> int:
    """Position of the first token of the group that a token ends."""
    return int(step.positions[token]) // step.ratio * step.ratio


def _rows(step: _Step, eps: float, weight: Floats) -> list[Floats]:
    """The normalised entries, fp32."""
    with np.errstate(invalid="ignore", over="ignore"):
        return [compress(*step.group(token), weight.astype(np.float64), eps).astype(np.float32) for token in step.ends]


def _sum(kv: Doubles, score: Doubles) -> Doubles:
    """The weighted sum of a group."""
    share = np.exp(score - score.max(axis=0))
    total: Doubles = (kv * share).sum(axis=0) / share.sum(axis=0)
    return total


def _destination(key: VariantKey, cache: Array, block_size: int, weight: Floats, angles: Floats) -> dict[str, Any]:
    return {
        "norm_weight": _weight(key, weight),
        "cos_sin": angles,
        "cache": cache,
        "block_size": block_size,
        "page_stride": cache.shape[1],
    }


def _record_case(
    key: VariantKey,
    seed: int,
    name: str,
    step: _Step,
    rows: list[Floats],
    weight: Floats,
    angles: Floats,
    given: dict[str, Any],
) -> Case:
    """Insertion into a cache of KV records."""
    rng = generator(key, seed)
    block_size = one_of(rng, 4, 5, 7)
    before = marked((2, padded(rng, layout.page_bytes(block_size))), np.uint8)
    after = before.copy()
    for token, row in zip(step.ends, rows, strict=True):
        record = compressed_record(row, angles[_first(step, token)], sanitize=constants(key)["SANITIZE"])
        store_record(after, int(step.slots[token]), block_size, *record)
    arguments = given | _destination(key, before, block_size, weight, angles)
    expected = spread_cache(key, arguments, after, block_size)
    return Case(name, (len(step.positions),), arguments, {"cache": expected})


def columns(key: VariantKey, seed: int) -> Iterator[Case]:
    """The first of two stages: weighted sums, near the float64 ones; rows of tokens without an entry survive."""
    chosen = constants(key)
    step = _groups(generator(key, seed), chosen["RATIO"], layout.HEAD_DIM)
    rows = marked((len(step.positions), layout.HEAD_DIM), np.float32)
    wanted = np.full(rows.shape, np.nan)
    for token in step.ends:
        wanted[token] = _sum(*step.group(token))
    arguments = {**step.arguments(key, generator(key, seed), 8, 16), "rows": rows}
    expected = Near(wanted, atol=1e-5, rtol=1e-5, l2=1e-5, elsewhere=rows)
    yield Case("groups", (len(rows) * chosen["NUM_SPLITS"],), arguments, {"rows": expected})
