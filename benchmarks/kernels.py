"""Both designs of sparse-MLA decode on an NVIDIA GPU, over 40 shapes: time, ratio, bandwidth; plain torch beside them.

    python -m benchmarks kernels --bundles FOLDER     # what benchmarks/prepare.py --decode made

A shape is a number of query rows in {1, 2, 4, 8, 16, 32, 48, 64} and a context in {4K, 32K, 100K, 500K, 1M}; see
`decode`, which compares every shape with a float64 reference. Both designs are built for this GPU: split counts are
those of its own multiprocessors. The compressed cache has 524,288 records of 584 bytes, six times the GPU's last-level
cache, and rows point anywhere into it.

Each design is called in three forms:

    eager          a call from Python, whose host code is most of its time
    graph          one replay of a captured call, as a server makes it: index buffers have room for 8,192 extra entries
                   a row, from which splits are chosen; gfx950's design chooses again on the device
    fitted graph   one replay of a captured call whose index buffers have just room for this shape: the splits that a
                   server would choose if it knew the context

`torch graph` gathers the records, dequantises them and attends with matrix products, all in one graph of plain torch.

Before each turn a buffer larger than the last-level cache is overwritten and the device becomes idle, so that everyone
starts with the same cache; over the rounds everyone follows everyone else equally often. Ratios are those of
neighbours in one round. Bandwidth is that of the records that a call must read once, over the GPU's own copy bandwidth
measured in the same run (bytes read and written).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import aotkern
from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, ratios
from aotkern.bench.timing import turns
from benchmarks import common
from benchmarks.common import Options
from kernels import layout, serving
from kernels.launchers import Platform

Samples: TypeAlias = tuple[float, ...]
EXTRA_SLOTS = 1 << 19
COPIED = 1 << 32
"""Bytes of the buffer whose copy gives the bandwidth that can be had."""
FLUSHED = 1 << 28
"""Bytes that are overwritten before each turn: several times the last-level cache of any GPU."""
DESIGNS = ("gfx942", "gfx950")
FORMS = ("eager", "graph", "fitted graph")
CONTENDERS = (*(f"{design} {form}" for design in DESIGNS for form in FORMS), "torch graph")
CYCLE = len(turns(len(CONTENDERS)))
ROUNDS, WARM_UP = 2 * CYCLE, CYCLE // 2
BOUND = 1.03
RATIOS, BEST, SHARE = "gfx950's design over gfx942's", "quickest form of each", "of copy bandwidth, gfx950 graph"


def flusher() -> Callable[[], None]:
    """What puts the device into the same state before each turn: nothing of anyone in its cache, and idle."""
    import torch

    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    if size * 2 > FLUSHED:
        raise SystemExit(f"a last-level cache of {size} bytes, and {FLUSHED} bytes to overwrite it with")
    scrap = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")

    def flush() -> None:
        scrap.fill_(1)
        torch.cuda.synchronize()

    return flush


def event_timed(call: Callable[[], Any]) -> Callable[[], float]:
    """A sampler of the time on the device of one call, in microseconds."""
    import torch

    def sample() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1000

    return sample


def captured(call: Callable[[], Any]) -> Callable[[], None]:
    """A call as a graph; returns its replay, which keeps alive what the call reads."""
    import torch

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay(kept: Any = (call, result)) -> None:  # noqa: ARG001 - a graph holds addresses, not tensors
        graph.replay()

    return replay


def in_torch(inputs: Any) -> Callable[[], Any]:
    """The same attention in plain torch: gather, dequantise, two matrix products. Every row has as many entries."""
    import torch

    rows = inputs.q.shape[0]
    scale = layout.SOFTMAX_SCALE

    def dequantised(segment: Any) -> Any:
        pages, size = segment.cache, segment.block_size
        flat = pages.as_strided((len(pages), segment.page_stride), (segment.page_stride, 1))
        slots = segment.rows.indices.long()
        page, place = slots // size, slots % size
        at = (place * layout.DATA_BYTES)[:, None] + torch.arange(layout.DATA_BYTES, device=slots.device)
        data = flat[page[:, None], at]
        codes_at = size * layout.DATA_BYTES + (place * layout.SCALE_BYTES)[:, None]
        codes = flat[page[:, None], codes_at + torch.arange(layout.QUANT_BLOCKS, device=slots.device)]
        nope = data[:, : layout.NOPE].contiguous().view(torch.float8_e4m3fn).to(torch.float32)
        factor = torch.exp2(codes.float() - layout.SCALE_BIAS).repeat_interleave(layout.QUANT_BLOCK, dim=1)
        rope = data[:, layout.NOPE :].contiguous().view(torch.bfloat16)
        return torch.cat([(nope * factor).bfloat16(), rope], dim=1).view(rows, -1, layout.HEAD_DIM)

    def attend() -> Any:
        k = torch.cat([dequantised(inputs.main), dequantised(inputs.extra)], dim=1)
        scores = torch.bmm(inputs.q, k.transpose(1, 2)).float() * scale
        return torch.bmm(torch.softmax(scores, dim=2).bfloat16(), k)

    return attend


def check(found: Any, expected: Any, what: str) -> None:
    """Stop where a contender computes something else than the float64 reference."""
    import torch

    error = torch.linalg.vector_norm(found.double() - expected) / torch.linalg.vector_norm(expected)
    if not float(error) < 0.01:
        raise SystemExit(f"{what}: relative L2 error {float(error)}")


def contenders(bundle: Any, caches: Any, shape: Any, units: int) -> Iterator[tuple[str, Callable[[], float]]]:
    """Everything that computes one shape, checked, and how it is sampled; in the order of `CONTENDERS`."""
    from benchmarks import h200_decode as matrix
    from kernels.decode import decode

    inputs = caches.inputs(shape, 0, with_sink=False, invalid=False)
    expected = matrix.attend(inputs)
    for design in DESIGNS:
        platform = Platform(design, fnuz_main=False, compute_units=units)
        call = (bundle, platform, inputs.q, inputs.main, inputs.extra)
        check(decode(*call), expected, f"{shape}, {design}, eager")
        yield f"{design} eager", event_timed(lambda call=call: decode(*call))
        for form, room in (("graph", matrix.CAPACITY), ("fitted graph", shape.extra)):
            graph = matrix.Captured(bundle, platform, inputs, shape.rows, trust=False, room=room)
            check(graph.replay(inputs), expected, f"{shape}, {design}, {form}")
            # Through the object: a graph holds addresses, and only `graph` keeps the buffers behind them alive.
            yield f"{design} {form}", event_timed(lambda graph=graph: graph.graph.replay())
    plain = in_torch(inputs)
    check(plain(), expected, f"{shape}, torch")
    yield "torch graph", event_timed(captured(plain))


def copy_bandwidth() -> Measurement:
    """What a device-to-device copy moves, in TB/s, bytes read and written."""
    import torch

    source = torch.empty(COPIED, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    sample = event_timed(lambda: target.copy_(source))
    return Measurement.of("TB/s", [2 * COPIED / sample() / 1e6 for _ in range(10)][2:])


def bytes_read(shape: Any) -> int:
    """Bytes of the records that a call must read once."""
    return int(shape.rows * (layout.SLIDING_WINDOW + shape.extra) * (layout.DATA_BYTES + layout.SCALE_BYTES))


def name_of(shape: Any) -> str:
    """A shape in the tables."""
    return f"{shape.rows} rows, {shape.context:,} positions"


def times_table(samples: Mapping[str, Mapping[str, Samples]]) -> Table:
    """What everyone took for each shape."""
    rows = [
        Row(shape, tuple(Measurement.of("us", times[name]) for name in CONTENDERS)) for shape, times in samples.items()
    ]
    return Table("40 shapes", ("shape", *CONTENDERS), tuple(rows))


def ratios_table(samples: Mapping[str, Mapping[str, Samples]], shares: Mapping[str, float]) -> Table:
    """gfx950's design over gfx942's for each shape: form by form, and the quickest form over the quickest form.

    Args:
        samples: By shape and contender, in microseconds.
        shares: By shape, percent of the copy bandwidth that gfx950's graph reaches.
    """
    rows = []
    for shape, times in samples.items():
        forms = (ratios(times[f"gfx950 {form}"], times[f"gfx942 {form}"]) for form in FORMS)
        best = ratios(*(times[quickest(times, design)] for design in reversed(DESIGNS)))
        rows.append(Row(shape, (*forms, best, Measurement.of("%", [shares[shape]]))))
    return Table(RATIOS, ("shape", *FORMS, BEST, SHARE), tuple(rows))


def quickest(times: Mapping[str, Samples], design: str) -> str:
    """The contender of a design whose median is the least."""
    return min((f"{design} {form}" for form in FORMS), key=lambda name: Measurement.of("us", times[name]).median)


def bars(compared: Table) -> tuple[Bar, ...]:
    """The promises, of all that was compared; those that are missed with how many shapes miss them."""
    found = []
    for form in (*FORMS, BEST):
        values = [common.median(compared, row.name, form) for row in compared.rows]
        above = sum(value > BOUND for value in values)
        why = f"{above} of {len(values)} shapes above" if above else ""
        found.append(Bar(f"gfx950 design over gfx942 design, {form}, worst shape", "x", BOUND, True, max(values), why))
    last = common.median(compared, compared.rows[-1].name, SHARE)
    return (*found, Bar("of the copy bandwidth at 64 rows, 1M positions", "%", 60, False, last))


def measure(options: Options) -> Run:
    common.needs_gpu()
    folder = common.prepared(options)
    import torch

    from benchmarks import h200_decode as matrix

    observation = common.carried("kernels", options)
    path = folder / "kernels.sm90.aotk"
    bundle = aotkern.load(path)
    units = torch.cuda.get_device_properties(0).multi_processor_count
    caches = matrix.Caches(EXTRA_SLOTS)
    flush = flusher()
    copied = copy_bandwidth()
    samples, shares = {}, {}
    for shape in matrix.shapes("1,64" if options.quick else None):
        found = dict(contenders(bundle, caches, shape, units))
        assert tuple(found) == CONTENDERS
        times = interleaved(found, CYCLE if options.quick else ROUNDS, WARM_UP, before=flush)
        samples[name_of(shape)] = times
        taken = Measurement.of("us", times["gfx950 graph"]).median
        shares[name_of(shape)] = 100 * bytes_read(shape) / taken / 1e6 / copied.median
    compared = ratios_table(samples, shares)
    notes = (
        f"{units} multiprocessors; {serving.HEADS[0]} heads; a copy moves {copied.median} TB/s.",
        "Every contender's result was compared with a float64 reference before it was timed.",
        f"{FLUSHED >> 20} MiB were overwritten before each turn, and the device was idle when it began.",
    )
    tables = (compared, times_table(samples), Table("copy", ("", "bandwidth"), (Row("4 GiB", (copied,)),)))
    return observation.run(tables, bars(compared), notes, bundles=(path,))
