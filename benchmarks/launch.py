"""How long a launch takes on an NVIDIA GPU: aotkern, the bare driver call, Triton's JIT, torch's static launcher.

    python -m benchmarks launch --bundles FOLDER      # what benchmarks/prepare.py made
    python benchmarks/launch.py BUNDLE OUT.json

Every contender launches the same kernel, with 2, 16 or 58 run-time arguments. They take turns, round by round: the
device is idle when a burst of 10 begins, and the time of a burst is divided by 10. Figures are in microseconds of one
launch. Triton and torch compile the kernel themselves; aotkern and the bare call launch the one from the bundle.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

import aotkern
from aotkern.abi import Layout
from aotkern.arguments import Pointer
from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed, ratios
from aotkern.bench.observed import Observation
from aotkern.loader import native
from benchmarks import common
from benchmarks.common import Options

BURST = 10
ROUNDS = 400
"""A multiple of 8, over which eight contenders follow each other equally often."""
WARM_UP = 32
BLOCK = 256
GRID = (16,)
SIZE = BLOCK * GRID[0]
HERE = Path(__file__).parent

OVER_BARE, UNDER_TRITON = "over the bare call", "faster than Triton"
BARE = "bare driver call (C)"
NAMED = "aotkern bundle[name][grid](...)"
CHOSEN = "aotkern kernel[grid](...)"
TRITON = "triton kernel[grid](...)"
STATIC = "torch static launcher (no choice)"


@dataclass(frozen=True)
class Subject:
    """A kernel with its arguments: of the bundle, and as Triton's own function.

    Attributes:
        name: Its name.
        bundle: The bundle it is launched from.
        function: Triton's function of it.
        values: Its run-time arguments.
        out: Which of them it writes.
        grid: What computes the grid from the bound arguments.
    """

    name: str
    bundle: aotkern.LoadedBundle
    function: Any
    values: tuple[Any, ...]
    out: int
    grid: Callable[[dict[str, Any]], tuple[int, ...]]


def subjects(bundle: aotkern.LoadedBundle) -> tuple[Subject, ...]:
    """The kernels with 2, 16 and 58 arguments; the integers of the larger ones are of all classes."""
    import torch

    from benchmarks import bench_kernels as kernels

    def tensors(count: int) -> list[Any]:
        return [torch.ones(SIZE, device="cuda") for _ in range(count)]

    sixteen = (*tensors(6), SIZE, 17, 32, 4, 5, 6, 7, 8, 9, 0.5)
    many = (*tensors(9), SIZE, 17, 32, *range(4, 49), 0.5)
    return (
        Subject("two", bundle, kernels.two, tuple(tensors(2)), 1, lambda _: GRID),
        Subject("sixteen", bundle, kernels.sixteen, sixteen, 5, lambda bound: (bound["n0"] // bound["BLOCK"],)),
        Subject("fifty_eight", bundle, kernels.fifty_eight, many, 8, lambda bound: (bound["m0"] // bound["BLOCK"],)),
    )


def by_python(call: Callable[[], Any]) -> Callable[[], float]:
    """A contender that is called from Python: microseconds of a launch, over one burst."""

    def burst() -> float:
        begin = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        return (time.perf_counter_ns() - begin) / BURST / 1e3

    return burst


def chosen(subject: Subject) -> Any:
    """The variant that aotkern chooses for these arguments."""
    before = subject.bundle.counters().dispatched
    subject.bundle[subject.name][GRID](*subject.values, BLOCK=BLOCK)
    after = subject.bundle.counters().dispatched
    (text,) = (text for text, count in after.items() if count != before.get(text, 0))
    return next(variant for variant in subject.bundle[subject.name].variants if variant.text == text)


def bare_call(subject: Subject) -> Callable[[], float]:
    """The bare driver call in C, on the variant that aotkern chooses, with one buffer packed beforehand."""
    import torch

    bundle = subject.bundle
    library = Path(bundle.where).with_name("bare.so")
    if shutil.which("cc"):
        library = Path(tempfile.mkdtemp()) / "bare.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", HERE / "bare.c", "-o", library], check=True)
    function = ctypes.CDLL(str(library)).burst
    function.restype = ctypes.c_double
    function.argtypes = (
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p,
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int,
    )  # fmt: skip
    variant = chosen(subject)
    handle = bundle.modules.ready(variant, 0, 0).handle
    layout = Layout.of(variant.key, bundle.manifest.object(variant.object).arguments)
    read = [Pointer(v.data_ptr(), "fp32", 0, 0) if isinstance(v, torch.Tensor) else v for v in subject.values]
    buffer = bytes(layout.pack([*read, None]))
    entry = bundle.driver.entry(0)
    threads, shared = variant.launch.num_warps * 32, variant.launch.shared
    stream = torch.cuda.current_stream().cuda_stream

    def burst() -> float:
        taken = function(entry.launch, handle, GRID[0], threads, shared, stream, buffer, len(buffer), entry.end, BURST)
        if taken < 0:
            raise SystemExit(f"the driver's error {-taken}")
        return taken / BURST / 1e3

    return burst


def torch_static(subject: Subject, compiled: Any) -> Callable[[], Any]:
    """Torch's static launcher, which Inductor uses: a launch without any choice of a variant."""
    import torch

    try:
        from torch._inductor.runtime.static_triton_launcher import StaticallyLaunchedCudaKernel
    except ImportError:
        from torch._inductor.runtime.static_cuda_launcher import StaticallyLaunchedCudaKernel

    path = Path(tempfile.mkdtemp()) / f"{subject.name}.cubin"
    path.write_bytes(compiled.asm["cubin"])
    compiled._cubin_path = str(path)
    launcher = StaticallyLaunchedCudaKernel(compiled)
    launcher.load_kernel(0)
    get_stream = torch._C._cuda_getCurrentRawStream
    call = lambda: launcher.run(GRID[0], 1, 1, get_stream(0), *subject.values)  # noqa: E731
    call()
    return call


def contenders(subject: Subject) -> tuple[dict[str, Callable[[], float]], dict[str, str]]:
    """Everything that takes part, and why the rest does not."""
    bundle, values, function = subject.bundle, subject.values, subject.function
    compiled = function[GRID](*values, BLOCK=BLOCK, num_warps=4)
    kernel = bundle[subject.name]
    grid_call = kernel[GRID]
    found = {
        BARE: bare_call(subject),
        NAMED: by_python(lambda: bundle[subject.name][GRID](*values, BLOCK=BLOCK, num_warps=4)),
        CHOSEN: by_python(lambda: kernel[GRID](*values, BLOCK=BLOCK)),
        "aotkern, grid bound beforehand": by_python(lambda: grid_call(*values, BLOCK)),
        "aotkern, grid by a function": by_python(lambda: kernel[subject.grid](*values, BLOCK=BLOCK)),
        TRITON: by_python(lambda: function[GRID](*values, BLOCK=BLOCK, num_warps=4)),
    }
    absent = {}
    try:
        found[STATIC] = by_python(torch_static(subject, compiled))
    except Exception as error:  # whatever a private interface of torch may raise is the reason
        absent[STATIC] = f"{type(error).__name__}: {error}"
    found["aotkern without the C extension"] = in_python(subject)
    return found, absent


def in_python(subject: Subject) -> Callable[[], float]:
    """The same launch without the C extension."""
    extension = native._extension
    native._extension = lambda: None
    kernel = aotkern.load(subject.bundle.where)[subject.name]
    native._extension = extension
    kernel[GRID](*subject.values, BLOCK=BLOCK)
    return by_python(lambda: kernel[GRID](*subject.values, BLOCK=BLOCK))


def check(subject: Subject) -> None:
    """What aotkern launches must compute what Triton's own launch computes."""
    import torch

    out = subject.values[subject.out]
    out.zero_()
    subject.bundle[subject.name][GRID](*subject.values, BLOCK=BLOCK)
    ours = out.clone()
    out.zero_()
    subject.function[GRID](*subject.values, BLOCK=BLOCK, num_warps=4)
    if not torch.equal(ours, out) or not bool(ours.any()):
        raise SystemExit(f"{subject.name}: aotkern and Triton disagree")


def table_of(subject: Subject, rounds: int) -> Table:
    """All contenders on one kernel."""
    import torch

    check(subject)
    found, absent = contenders(subject)
    times = interleaved(found, rounds, WARM_UP, before=torch.cuda.synchronize)
    torch.cuda.synchronize()
    rows = [
        Row(
            name,
            (Measurement.of("us", samples, (10, 90, 99)), ratios(samples, times[BARE]), ratios(times[TRITON], samples)),
        )
        for name, samples in times.items()
    ]
    rows += [Row(name, (None, None, None), f"absent: {reason[:200]}") for name, reason in absent.items()]
    title = f"a launch with {len(subject.values)} arguments, {len(subject.bundle[subject.name].variants)} variants"
    return Table(title, ("contender", "one launch", OVER_BARE, UNDER_TRITON), tuple(rows))


def measured(path: Path, observation: Observation, *, quick: bool = False) -> Run:
    """All kernels, with what was promised for 16 arguments, by both forms of the call, in pairs of one round."""
    bundle = aotkern.load(path)
    tables = tuple(table_of(subject, 24 if quick else ROUNDS) for subject in subjects(bundle))
    native_launches = sum(sum(bundle[name].counted()[0].values()) for name in ("two", "sixteen", "fifty_eight"))
    bars = []
    for form in (NAMED, CHOSEN):
        over, faster = (common.median(tables[1], form, column) for column in (OVER_BARE, UNDER_TRITON))
        bars += [
            Bar(f"launch of 16 arguments by {form}, over the bare driver call", "x", 1.5, True, over),
            Bar(f"launch of 16 arguments by {form}, faster than Triton's", "x", 3, False, faster),
        ]
    note = f"Bursts of {BURST}, the device idle before each; {native_launches} launches went through the C extension."
    pairs = "Ratios are medians of those of neighbours in one round, not ratios of medians."
    return observation.run(tables, bars, (note, pairs), bundles=(path,))


def measure(options: Options) -> Run:
    common.needs_gpu()
    folder = common.prepared(options)
    return measured(folder / "bench.sm90.aotk", common.carried("launch", options), quick=options.quick)


def main() -> None:
    from aotkern.report import bench as report

    path, out = sys.argv[1:]
    run = measured(Path(path), observed("launch", "python benchmarks/launch.py bench.sm90.aotk OUT.json"))
    Path(out).write_text(run.dumps(), "utf-8")
    print(report.text(run))


if __name__ == "__main__":
    main()
