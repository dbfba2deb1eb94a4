"""What the JIT audit costs a program whose launches all hit: with and without the watch, in turns, in one process.

    python -m benchmarks jit-watch

One process warms a kernel up and then takes turns: a burst of launches without the watch, one with it, a fresh watch
each time. Bursts are short, and their clock counts this thread's processor time, so that what else runs on the machine
disturbs few of them. A pair of neighbours gives one ratio; the figure is the median of all ratios with an interval for
it that assumes no distribution, which says how small a cost could have been seen. A third contender is the plain burst
once more, whose ratio to the first shows what the method itself makes of no difference.

On a machine without a GPU the launches go through Triton's whole path up to the driver ("on paper"), which leaves out
what would hide the cost; where there is one, they are real.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed, ratios
from aotkern.target import Target
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.session import Session
from aotkern.triton_bridge.sink import MemorySink
from benchmarks import common
from benchmarks.common import Options

BURST = 250
SETTLING = 50
"""Launches of each turn before its clock starts: what putting a watch on disturbs is not what it costs."""
PLAIN, WATCHED, AGAIN = "without the watch", "with the watch", "without the watch, once more"


def measure(options: Options) -> Run:
    common.needs("triton")
    observation = observed("jit-watch", common.command("jit-watch", options))
    os.environ["TRITON_CACHE_DIR"] = str(options.folder / "triton")
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    device, launch, where = launching()
    with device:
        for _ in range(SETTLING):
            launch()
        times = interleaved(contenders(launch), 50 if options.quick else 2000, 5)
    compared = {name: ratios(samples, times[PLAIN]) for name, samples in times.items()}
    rows = tuple(
        Row(name, (Measurement.of("us", samples), compared[name], interval(compared[name])))
        for name, samples in times.items()
    )
    columns = ("launches", "one launch, processor time", "against its neighbour without", "95 % interval of the median")
    cost = 100 * (compared[WATCHED].median - 1)
    bar = Bar("JIT watch on hits", "%", 1, at_most=True, measured=round(cost, 3), why=interval(compared[WATCHED]))
    notes = (f"Launches {where}; bursts of {BURST}, each alternative once in each round.",)
    return observation.run((Table("launches that hit", columns, rows),), (bar,), notes)


def interval(ratio: Measurement) -> str:
    """In percent more than nothing."""
    if ratio.interval is None:
        return "too few rounds"
    low, high = (100 * (value - 1) for value in ratio.interval)
    return f"{low:+.2f} % to {high:+.2f} %"


def contenders(launch: Callable[[], Any]) -> dict[str, Callable[[], float]]:
    """The samplers: microseconds of processor time of one launch over a burst."""

    def burst() -> float:
        for _ in range(SETTLING):
            launch()
        begin = time.thread_time()
        for _ in range(BURST):
            launch()
        return (time.thread_time() - begin) / BURST * 1e6

    def watched() -> float:
        sink = MemorySink()
        session = Session(sink, Gate())
        session.begin()
        try:
            return burst()
        finally:
            session.end()
            assert [event["event"] for event in sink.events] == ["triton"], sink.events  # it was on, and saw no compile
            assert len(sink.events[0]["watched"]) > 5, sink.events

    return {PLAIN: burst, WATCHED: watched, AGAIN: burst}


def launching() -> tuple[AbstractContextManager[Any], Callable[[], Any], str]:
    """A device, a launch on it that hits after the first, and where that is, in words."""
    from benchmarks.touch_kernel import touch

    try:
        common.needs_gpu()
    except common.NotHereError:
        from aotkern.triton_bridge.paper import PaperTensor, paper_device

        tensors: list[Any] = [PaperTensor("float32", shape=(256,))] * 4
        device = paper_device(Target.parse("cuda:90"))
        return device, lambda: touch[(1,)](*tensors, 256, 1, 0, 0.5, BLOCK=256), "on paper, up to the driver"
    import torch

    tensors = [torch.zeros(1024, device="cuda") for _ in range(4)]
    return nullcontext(), lambda: touch[(1,)](*tensors, 256, 1, 0, 0.5, BLOCK=256), "on the GPU"
