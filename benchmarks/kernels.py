"""Both designs of sparse-MLA decode on an NVIDIA GPU, over 40 shapes: time, ratio, bandwidth; plain torch beside them.

    python -m benchmarks kernels --bundles FOLDER     # what benchmarks/prepare.py --decode made

A shape is a number of query rows in {1, 2, 4, 8, 16, 32, 48, 64} and a context in {4K, 32K, 100K, 500K, 1M}; see
`h200_decode.py`, which also compares every shape with a float64 reference. Both designs are built for this GPU: split
counts are those of its own multiprocessors. The compressed cache has 524,288 records of 584 bytes, six times the GPU's
last-level cache, and rows point anywhere into it.

`graph` is one replay of a captured call, as a server makes it: splits from the capacity of its buffers, chosen again on
the device by gfx950's design. `eager` is a call from Python, whose host code is most of its time. `torch` gathers the
records, dequantises them and attends with matrix products, all in captured graphs of plain torch. Contenders take
turns. Bandwidth is that of the records that a call must read once, over the GPU's own copy bandwidth measured in the
same run (bytes read and written).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aotkern
from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed, ratios
from benchmarks import common
from benchmarks.common import Options
from kernels import layout, serving
from kernels.launchers import Platform

ROUNDS = 31
EXTRA_SLOTS = 1 << 19
COPIED = 1 << 32
"""Bytes of the buffer whose copy gives the bandwidth that can be had."""
DESIGNS = ("gfx942", "gfx950")
LIMITS = (
    "What limits gfx950's design at 64 rows and 1M positions, by Nsight Compute: 255 registers and 82 kB of shared "
    "memory for each of its workgroups leave 8 warps to a multiprocessor (12.5 % occupancy); issue slots are 24 % "
    "busy, memory 9 %. It waits for its own dequantisation: 16 instructions for each element that it reads, spills of "
    "registers among them, which even at full issue would take 144 us. The design is made for gfx950, where nothing "
    "spills and fp8 is converted by an instruction."
)


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
    """Everything that computes one shape, checked, and how it is sampled."""
    from benchmarks import h200_decode as matrix
    from kernels.decode import decode

    inputs = caches.inputs(shape, 0, with_sink=False, invalid=False)
    expected = matrix.attend(inputs)
    for design in DESIGNS:
        platform = Platform(design, fnuz_main=False, compute_units=units)
        graph = matrix.Captured(bundle, platform, inputs, shape.rows, trust=False)
        check(graph.replay(inputs), expected, f"{shape}, {design}, graph")
        call = (bundle, platform, inputs.q, inputs.main, inputs.extra)
        check(decode(*call), expected, f"{shape}, {design}, eager")
        # Through the object: a graph holds addresses, and only `graph` keeps the buffers behind them alive.
        yield f"{design} graph", event_timed(lambda graph=graph: graph.graph.replay())
        yield f"{design} eager", event_timed(lambda call=call: decode(*call))
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


def table(samples: dict[Any, dict[str, tuple[float, ...]]], bandwidth: float) -> Table:
    """A row for each shape."""
    rows = []
    for shape, times in samples.items():
        us = {name: Measurement.of("us", values) for name, values in times.items()}
        share = 100 * bytes_read(shape) / us["gfx950 graph"].median / 1e6 / bandwidth
        cells = (
            *(us[f"{design} graph"] for design in DESIGNS),
            ratios(times["gfx950 graph"], times["gfx942 graph"]),
            Measurement.of("%", [share]),
            us["torch graph"],
            *(us[f"{design} eager"] for design in DESIGNS),
        )
        rows.append(Row(f"{shape.rows} rows, {shape.context:,} positions", cells))
    columns = ("gfx942 graph", "gfx950 graph", "gfx950 over gfx942", "of copy bandwidth", "torch graph")
    return Table("40 shapes", ("shape", *columns, "gfx942 eager", "gfx950 eager"), tuple(rows))


def bars(shapes: Table) -> tuple[Bar, ...]:
    """The promises."""
    found = [common.median(shapes, row.name, "gfx950 over gfx942") for row in shapes.rows]
    last = common.median(shapes, shapes.rows[-1].name, "of copy bandwidth")
    return (
        Bar("gfx950 design over gfx942 design, captured, worst of 40 shapes", "x", 1.03, True, max(found)),
        Bar("shapes of 40 where it is faster", "shapes", 21, False, sum(ratio < 1 for ratio in found)),
        Bar("of the copy bandwidth at 64 rows, 1M positions", "%", 60, False, last, LIMITS),
    )


def measure(options: Options) -> Run:
    common.needs_gpu()
    folder = common.prepared(options)
    import torch

    from benchmarks import h200_decode as matrix

    observation = observed("kernels", f"{common.command('kernels', options)} --bundles FOLDER")
    bundle = aotkern.load(folder / "kernels.sm90.aotk")
    units = torch.cuda.get_device_properties(0).multi_processor_count
    caches = matrix.Caches(EXTRA_SLOTS)
    shapes = list(matrix.shapes("1,64" if options.quick else None))
    samples = {}
    for shape in shapes:
        found = dict(contenders(bundle, caches, shape, units))
        samples[shape] = interleaved(found, 5 if options.quick else ROUNDS, 3, before=torch.cuda.synchronize)
    copied = copy_bandwidth()
    one = table(samples, copied.median)
    notes = (
        f"{units} multiprocessors; {serving.HEADS[0]} heads; a copy moves {copied.median} TB/s.",
        "Every contender's result was compared with a float64 reference before it was timed.",
    )
    return observation.run((one, Table("copy", ("", "bandwidth"), (Row("4 GiB", (copied,)),))), bars(one), notes)
