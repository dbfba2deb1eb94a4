"""Cases of the reducer: slices merged into the output, within a tolerance.

Rows: every slice has entries; every other one has; none has; only the last one has. A slice without entries has the
maximum -FLT_MAX and zeros, or, in an adaptive launch, NaN and infinities that nothing may read. Sinks: none (-inf),
small, and larger than every score. Numbers between the rows of the output must survive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from aotkern.audit.cases import Array, Case, Near, Typed, constants
from aotkern.spec import VariantKey

from .. import layout, reference
from .drawing import generator, marked

_HEADS = 3
_SINKS = np.array([-np.inf, 0.5, 12.0], np.float32)


def reduce(key: VariantKey, seed: int) -> Iterator[Case]:
    """All of it in one launch."""
    rng, chosen = generator(key, seed), constants(key)
    splits = chosen["NUM_SPLITS"]
    live = np.ones((4, splits), bool)
    live[1, 1::2] = False
    live[2] = False
    live[3, :-1] = False
    m, l, acc = _scratch(rng, live, adaptive=chosen["ADAPTIVE"])
    with np.errstate(invalid="ignore"):
        partials = reference.Partial(*(part.astype(np.float64) for part in (m, l, acc)))
        sink = _SINKS.astype(np.float64) if chosen["HAS_SINK"] else None
        wanted = reference.reduce(partials, sink)
    out, expected = output(wanted)
    arguments: dict[str, Any] = {
        "part_m": m,
        "part_l": l,
        "part_acc": acc,
        "sink": _SINKS,
        "out": Typed(out, "bf16"),
        "out_stride_t": out.strides[0] // out.itemsize,
        "out_stride_h": out.strides[1] // out.itemsize,
        "heads": _HEADS,
    }
    yield Case("full, sparse and empty rows", (len(live), _HEADS), arguments, {"out": expected})


def output(wanted: Array) -> tuple[Array, Near]:
    """A marked bf16 output with room around each row of `wanted` [rows, heads, 512], and what it must hold."""
    rows, heads, dim = wanted.shape
    out = marked((rows, heads + 1, dim + 16), np.uint16)
    data = np.full(out.shape, np.nan)
    data[:, :heads, :dim] = wanted
    return out, Near(data, l2=5e-3, elsewhere=out)


def _scratch(rng: np.random.Generator, live: Array, *, adaptive: bool) -> tuple[Array, Array, Array]:
    """m, l and acc of slices, [rows, splits, heads] and one more dim; what is not live as its kernel leaves it."""
    shape = (*live.shape, _HEADS)
    m = (rng.standard_normal(shape) * 2).astype(np.float32)
    l = rng.uniform(1, 40, shape).astype(np.float32)
    acc = (l[..., None] * rng.standard_normal((*shape, layout.HEAD_DIM))).astype(np.float32)
    m[~live], l[~live], acc[~live] = reference.NEG, 0, 0
    if adaptive:
        l[~live] = np.nan
        acc[~live] = poison(acc[~live].shape)
    return m, l, acc


def poison(shape: tuple[int, ...]) -> Array:
    """NaN and infinities in turn, fp32."""
    found = np.full(shape, np.nan, np.float32)
    found[..., ::2] = np.inf
    return found
