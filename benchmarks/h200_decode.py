"""Sparse-MLA decode on one NVIDIA GPU against a float64 reference, over 40 shapes: what `benchmarks decode` runs.

A shape is a number of query rows in {1, 2, 4, 8, 16, 32, 48, 64} and a context in {4K, 32K, 100K, 500K, 1M}: 16 heads,
128 main entries a row, and one compressed entry for each 128 positions of the context. For each shape and design:

    3 seeds x sink or none x some invalid indices or none x eager or graph = 24 comparisons

gfx950's design can also read the extra cache without the NaN scrub; each of its comparisons is made for both readings,
48 a shape, whose results must be bit-identical. gfx942's design has one reading.

The inputs of a seed are the same for both readings of the extra cache. The eager
call sees index lists of just the right capacity. The graph is captured over persistent buffers with room for 8,192
extra entries a row, with adaptive splits, on other indices and shorter rows; then the buffers get this comparison's
indices, the graph is replayed, and that result is compared: what is checked is a graph whose inputs changed.

Each comparison must hold at atol = rtol = 0.02 and with a relative L2 error below 0.01. Split counts are those of the
GPU's own multiprocessors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels import layout, reference, serving
from kernels.decode import choose_splits, decode
from kernels.decode_call import Segment, checked_call
from kernels.launchers import Platform
from kernels.ragged import Ragged, RaggedBuffers

DEVICE = "cuda"
HEADS = 16
SEEDS = (0, 1, 2)
CAPACITY = 8192
MAIN_SLOTS, EXTRA_SLOTS = 4096, 65_536


@dataclass(frozen=True, slots=True)
class Shape:
    """Query rows and positions of context."""

    rows: int
    context: int

    @property
    def extra(self) -> int:
        """Compressed entries of a row."""
        return self.context // 128


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a comparison attends to; `dense` is the float64 content of the caches, for the reference."""

    q: torch.Tensor
    main: Segment
    extra: Segment
    sink: torch.Tensor | None
    dense: tuple[torch.Tensor, torch.Tensor]


@dataclass(slots=True)
class Outcome:
    """The comparisons of one shape.

    Attributes:
        shape: The shape.
        eager_splits: Of the eager calls.
        graph_splits: Of the captured ones, with the middle choice of adaptive ones.
        compared: Distinct comparisons: no two have the same inputs, reading and way of calling.
        failed: Those that do not hold.
        pairs: Comparisons of the trusting reading, each with a scrubbed one of the same inputs beside it.
        identical: Pairs whose results are equal bit for bit.
        worst_absolute: The largest absolute error.
        worst_l2: The largest relative L2 error.
    """

    shape: Shape
    eager_splits: str
    graph_splits: str = ""
    compared: int = 0
    failed: int = 0
    pairs: int = 0
    identical: int = 0
    worst_absolute: float = 0.0
    worst_l2: float = 0.0

    def compare(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        """Count one comparison."""
        result = found.double()
        l2 = float(torch.linalg.vector_norm(result - wanted) / torch.linalg.vector_norm(wanted))
        self.compared += 1
        self.failed += not (torch.allclose(result, wanted, atol=0.02, rtol=0.02) and l2 < 0.01)
        self.worst_absolute = max(self.worst_absolute, float((result - wanted).abs().max()))
        self.worst_l2 = max(self.worst_l2, l2)


def packed_cache(seed: int, slots: int, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A canonical cache of about normal rows * 0.125, and the float64 rows that its bytes mean."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    rows = torch.randn(slots, layout.HEAD_DIM, generator=generator, device=DEVICE) * 0.125
    nope = rows[:, : layout.NOPE].bfloat16().float().view(slots, layout.QUANT_BLOCKS, layout.QUANT_BLOCK)
    largest = nope.abs().amax(dim=2).clamp(min=layout.QUANT_FLOOR)
    exponent = torch.ceil(torch.log2(largest / layout.FP8_MAX_OCP))
    fp8 = (nope * torch.exp2(-exponent)[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    rope = rows[:, layout.NOPE :].bfloat16()
    stride = layout.page_stride(block_size)
    storage = torch.zeros(slots // block_size, stride, dtype=torch.uint8, device=DEVICE)
    data = storage[:, : block_size * layout.DATA_BYTES].view(-1, block_size, layout.DATA_BYTES)
    data[..., : layout.NOPE] = fp8.view(torch.uint8).view(-1, block_size, layout.NOPE)
    data[..., layout.NOPE :] = rope.view(torch.uint8).view(-1, block_size, 2 * layout.ROPE)
    codes = storage[:, block_size * layout.DATA_BYTES : layout.page_bytes(block_size)]
    codes = codes.view(-1, block_size, layout.SCALE_BYTES)
    codes[..., : layout.QUANT_BLOCKS] = (exponent + layout.SCALE_BIAS).byte().view(-1, block_size, layout.QUANT_BLOCKS)
    dense = torch.cat([(fp8.double() * torch.exp2(exponent.double())[..., None]).view(slots, -1), rope.double()], dim=1)
    cache = storage.as_strided((len(storage), block_size, layout.RECORD_BYTES), (stride, layout.RECORD_BYTES, 1))
    return cache, dense


def random_list(generator: torch.Generator, rows: int, length: int, slots: int, *, invalid: bool) -> Ragged:
    """Rows of `length` random slots; with `invalid`, about one in 16 points outside the cache."""
    indices = torch.randint(0, slots, (rows * length,), generator=generator, device=DEVICE, dtype=torch.int32)
    if invalid:
        kind = torch.randint(0, 48, indices.shape, generator=generator, device=DEVICE)
        for value, outside in enumerate((-1, slots, slots + 1024)):
            indices[kind == value] = outside
    indptr = torch.arange(rows + 1, device=DEVICE, dtype=torch.int32) * length
    return Ragged(indices, indptr)


class Caches:
    """The two caches that every shape draws from."""

    def __init__(self, extra_slots: int = EXTRA_SLOTS) -> None:
        self.extra_slots = extra_slots
        self.main, main_rows = packed_cache(100, MAIN_SLOTS, layout.MAIN_BLOCK_SIZE)
        self.extra, extra_rows = packed_cache(101, extra_slots, layout.C128A_BLOCK_SIZE)
        self.dense = main_rows, extra_rows

    def inputs(self, shape: Shape, seed: int, *, with_sink: bool, invalid: bool, length: int | None = None) -> Inputs:
        """The inputs of a comparison; `length` replaces the extra entries of a row."""
        generator = torch.Generator(DEVICE).manual_seed(seed * 4 + with_sink * 2 + invalid)
        q = torch.randn(shape.rows, HEADS, layout.HEAD_DIM, generator=generator, device=DEVICE) * 0.125
        extra = shape.extra if length is None else length
        main_list = random_list(generator, shape.rows, layout.SLIDING_WINDOW, MAIN_SLOTS, invalid=invalid)
        extra_list = random_list(generator, shape.rows, extra, self.extra_slots, invalid=invalid)
        return Inputs(
            q=q.bfloat16(),
            main=Segment(self.main, main_list),
            extra=Segment(self.extra, extra_list),
            sink=torch.randn(HEADS, generator=generator, device=DEVICE) if with_sink else None,
            dense=self.dense,
        )


def attend(inputs: Inputs) -> torch.Tensor:
    """The reference on the device: `reference.attend` in PyTorch's float64."""
    out = torch.zeros(inputs.q.shape, dtype=torch.float64, device=DEVICE)
    sink = inputs.sink
    for row, q in enumerate(inputs.q.double()):
        parts = []
        for segment, dense in zip((inputs.main, inputs.extra), inputs.dense, strict=True):
            first, end = segment.rows.indptr[row : row + 2].tolist()
            slots = segment.rows.indices[first:end]
            parts.append(dense[slots[(slots >= 0) & (slots < len(dense))].long()])
        k = torch.cat(parts)
        if not len(k):
            continue
        scores = q @ k.T * layout.SOFTMAX_SCALE
        logits = scores if sink is None else torch.cat([scores, sink.double()[:, None]], dim=1)
        out[row] = torch.softmax(logits, dim=1)[:, : len(k)] @ k
    return out


def check_reference(caches: Caches) -> None:
    """Hold the reference on the device against the one that reads bytes, on a few entries."""
    inputs = caches.inputs(Shape(2, 4096), 9, with_sink=True, invalid=True)
    segments = [
        reference.Segment(
            reference.Cache(
                s.cache.as_strided((len(s.cache), s.page_stride), (s.page_stride, 1)).cpu().numpy(), s.block_size, False
            ),
            s.rows.indices.cpu().numpy(),
            s.rows.indptr.cpu().numpy(),
        )
        for s in (inputs.main, inputs.extra)
    ]
    sink = None if inputs.sink is None else inputs.sink.double().cpu().numpy()
    wanted = reference.attend(reference.Call(inputs.q.double().cpu().numpy(), tuple(segments), sink=sink))
    np.testing.assert_allclose(attend(inputs).cpu().numpy(), wanted, rtol=1e-9, atol=1e-12)


class Captured:
    """A decode call in a graph over persistent buffers with `room` for extra entries of a row.

    Without a `room` it is the capacity of a server, and gfx950's design chooses its splits again on the device.
    """

    def __init__(
        self, launcher: Any, platform: Platform, first: Inputs, rows: int, *, trust: bool, room: int | None = None
    ) -> None:
        adaptive, room = room is None, CAPACITY if room is None else room
        like = first.main.rows.indices
        self._q, self._sink = first.q.clone(), None if first.sink is None else first.sink.clone()
        self._lists = RaggedBuffers(like, rows, layout.SLIDING_WINDOW), RaggedBuffers(like, rows, room)
        self._refill(first)
        # gfx942's view is the whole capacity: what a capture sees.
        main, extra = (
            Segment(segment.cache, Ragged(lists.indices, lists.indptr))
            for segment, lists in zip((first.main, first.extra), self._lists, strict=True)
        )
        arguments = (launcher, platform, self._q, main, extra)
        how = {"sink": self._sink, "trust_extra": trust, "adaptive": adaptive}
        decode(*arguments, **how)
        torch.cuda.synchronize()
        self.plan = choose_splits(platform, checked_call(platform, self._q, main, extra), adaptive=adaptive)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = decode(*arguments, **how)

    def _refill(self, inputs: Inputs) -> None:
        self._q.copy_(inputs.q)
        if self._sink is not None and inputs.sink is not None:
            self._sink.copy_(inputs.sink)
        for lists, segment in zip(self._lists, (inputs.main, inputs.extra), strict=True):
            lists.refill(segment.rows, "gfx942")

    def replay(self, inputs: Inputs) -> torch.Tensor:
        """The result for `inputs`, which take the place of those before."""
        self._refill(inputs)
        self.graph.replay()
        return self.out


def run_shape(launcher: Any, platform: Platform, caches: Caches, shape: Shape) -> Outcome:
    """The comparisons of a shape: 48 of gfx950's design, 24 of gfx942's."""
    plain = caches.inputs(shape, 0, with_sink=False, invalid=False)
    plan = choose_splits(platform, checked_call(platform, plain.q, plain.main, plain.extra))
    outcome = Outcome(shape, str(plan.splits))
    trusts = (False, True) if platform.design == "gfx950" else (False,)
    for with_sink, invalid in itertools.product((False, True), (False, True)):
        other = caches.inputs(shape, 77, with_sink=with_sink, invalid=not invalid, length=min(64, shape.extra))
        graphs = [Captured(launcher, platform, other, shape.rows, trust=trust) for trust in trusts]
        chosen = graphs[0].plan
        outcome.graph_splits = f"{chosen.splits}{f' adaptive, {chosen.one_wave}' if chosen.adaptive else ''}"
        for seed in SEEDS:
            inputs = caches.inputs(shape, seed, with_sink=with_sink, invalid=invalid)
            wanted = attend(inputs)
            call = (launcher, platform, inputs.q, inputs.main, inputs.extra)
            eager = [decode(*call, sink=inputs.sink, trust_extra=trust) for trust in trusts]
            replayed = [graph.replay(inputs).clone() for graph in graphs]
            for found in (*eager, *replayed):
                outcome.compare(found, wanted)
            for scrubbed, *trusted in (eager, replayed):
                outcome.pairs += len(trusted)
                outcome.identical += sum(torch.equal(scrubbed, result) for result in trusted)
    return outcome


def shapes(rows: str | None) -> Iterator[Shape]:
    """The matrix, or the part of it with these comma-separated row counts."""
    wanted = serving.MATRIX_ROWS if rows is None else tuple(map(int, rows.split(",")))
    return itertools.starmap(Shape, itertools.product(wanted, serving.MATRIX_CONTEXTS))
