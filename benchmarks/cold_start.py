"""How long a fresh process takes until the last of 24 and of 200 variants is loaded on an NVIDIA GPU.

    python -m benchmarks cold-start --bundles FOLDER      # what benchmarks/prepare.py made
    python benchmarks/cold_start.py BUNDLE OUT.json

Four kinds of process, several of each in turn:

    bare      ctypes only: the driver's own module loads and function look-ups for the code objects of the bundle,
              which it reads from plain files; nothing is verified
    aotkern   opens the bundle, verifies every byte, preloads all variants, and arranges them for choosing
    triton    the same kernel through Triton's JIT function, with a warm disk cache of its own
    cold      the same with an empty disk cache, fewer times

Torch's Mega-cache holds what `torch.compile` made: it fills the same disk cache of Triton before the program starts,
for compiled regions only, and has no say in kernels that are launched by themselves. So it is not among them.

Each process times its steps, in milliseconds; "process" is the wall time of the whole process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed
from aotkern.bench.observed import Observation
from benchmarks import common
from benchmarks.common import Options

RUNS = 6
COLD_RUNS = 1
COUNTS = (24, 200)
HERE = Path(__file__).parent

BARE = """
import ctypes, sys, time
from pathlib import Path
start = time.perf_counter()
images = [path.read_bytes() for path in sorted(Path(sys.argv[1]).glob("*.cubin"))[: int(sys.argv[2])]]
read = time.perf_counter()
cuda = ctypes.CDLL("libcuda.so.1")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
driver = time.perf_counter()
for image in images:
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"versioned") == 0
end = time.perf_counter()
print(len(images), read - start, driver - read, end - driver)
"""

AOTKERN = """
import sys, time
start = time.perf_counter()
import aotkern
from aotkern.loader.choosing import shared_driver
imported = time.perf_counter()
shared_driver("cuda").capturing(0, 0)  # starts the driver and makes its context: not aotkern's time
driver = time.perf_counter()
bundle = aotkern.load(sys.argv[1])
opened = time.perf_counter()
variants = [entry for entry in bundle.manifest.variants if entry.kernel == "versioned"][: int(sys.argv[2])]
bundle.modules.load_all(variants, 0)  # what preload() does, for some of the variants
end = time.perf_counter()
bundle["versioned"]  # arranges all its variants for choosing, before its first launch
print(len(variants), imported - start, driver - imported, opened - driver, end - opened, time.perf_counter() - end)
"""

TRITON = """
import sys, time
sys.path.insert(0, sys.argv[1])
start = time.perf_counter()
import torch, triton
from bench_kernels import versioned
imported = time.perf_counter()
x, out = torch.ones(256, device="cuda"), torch.ones(256, device="cuda")
torch.cuda.synchronize()
driver = time.perf_counter()
for version in range(2, int(sys.argv[2]) + 2):
    versioned[(1,)](x, out, 17, VERSION=version, BLOCK=256, num_warps=4)
torch.cuda.synchronize()
end = time.perf_counter()
print(int(sys.argv[2]), imported - start, driver - imported, end - driver)
"""

STEPS = {
    "bare": ("read files", "driver and context", "load"),
    "aotkern": ("import", "driver and context", "open and verify", "preload", "arrange for choosing"),
    "triton, warm cache": ("import", "driver and context", "launch each once"),
    "triton, cold cache": ("import", "driver and context", "launch each once"),
}
OURS, WARM, COLD = "aotkern", "triton, warm cache", "triton, cold cache"


class Process:
    """A kind of process; each sample is the wall time of one, and what it says of its steps is kept."""

    def __init__(self, code: str, arguments: tuple[str, ...], cache: Path, *, empty: bool = False) -> None:
        self._command = [sys.executable, "-c", code, *arguments]
        self._cache, self._empty = cache, empty
        self.steps: list[list[float]] = []

    def __call__(self) -> float:
        if self._empty:
            shutil.rmtree(self._cache, ignore_errors=True)
        environment = {**os.environ, "TRITON_CACHE_DIR": str(self._cache), "TRITON_DEFAULT_FP_FUSION": "1"}
        begin = time.perf_counter()
        done = subprocess.run(self._command, capture_output=True, text=True, env=environment, check=False)
        wall = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(done.stderr)
        self.steps.append([1e3 * float(word) for word in done.stdout.split()[1:]])
        return 1e3 * wall


def unpack(bundle: str, folder: Path) -> None:
    """Write the code objects of `versioned` as plain files, named in the order of its variants."""
    from aotkern.bundle import Bundle

    opened = Bundle.open(bundle)
    wanted = dict.fromkeys(entry.object for entry in opened.manifest.variants if entry.kernel == "versioned")
    for place, digest in enumerate(wanted):
        (folder / f"{place:04}.cubin").write_bytes(opened.object(digest))


def after_context(steps: tuple[float, ...]) -> float:
    """What a process does after its imports and its context, up to being ready to launch: all further steps."""
    return sum(steps[2:])


def table_of(bundle: str, count: int, folder: Path, runs: int, cold_runs: int) -> Table:
    """All kinds of process for so many variants."""
    files, number = folder / "files", str(count)
    kinds = {
        "bare": Process(BARE, (str(files), number), folder / "none"),
        OURS: Process(AOTKERN, (bundle, number), folder / "none"),
        WARM: Process(TRITON, (str(HERE), number), folder / f"warm-{count}"),
        COLD: Process(TRITON, (str(HERE), number), folder / "cold", empty=True),
    }
    walls = dict(interleaved({COLD: kinds[COLD]}, cold_runs))
    often: dict[str, Callable[[], float]] = {name: kind for name, kind in kinds.items() if name != COLD}
    walls.update(interleaved(often, runs, 1))
    rows = []
    for name, kind in kinds.items():
        steps = list(zip(*kind.steps[-len(walls[name]) :], strict=True))
        work = [after_context(row) for row in zip(*steps, strict=True)]
        said = ", ".join(f"{step} {Measurement.of('ms', of).median:.4g} ms"
                         for step, of in zip(STEPS[name], steps, strict=True))  # fmt: skip
        rows.append(Row(name, (Measurement.of("ms", work), Measurement.of("ms", walls[name])), said))
    title = f"{count} variants"
    return Table(title, ("process", "after import and context", "whole process"), tuple(rows))


def measured(bundle: str, observation: Observation, *, quick: bool = False) -> Run:
    """Both numbers of variants, with what was promised for 200."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        unpack(bundle, folder / "files")
        runs, cold = (2, 1) if quick else (RUNS, COLD_RUNS)
        tables = tuple(table_of(bundle, count, folder, runs, cold) for count in COUNTS)
    bare, ours, warm = (common.median(tables[-1], row, "after import and context") for row in ("bare", OURS, WARM))
    bars = (
        Bar(
            "200 variants verified, loaded and arranged, over the bare module loads",
            "x",
            2,
            True,
            round(ours / bare, 4),
        ),
        Bar(
            "200 variants verified, loaded and arranged, faster than Triton's warm cache",
            "x",
            50,
            False,
            round(warm / ours, 4),
        ),
    )
    return observation.run(tables, bars, bundles=(Path(bundle),))


def measure(options: Options) -> Run:
    common.needs_gpu()
    folder = common.prepared(options)
    return measured(str(folder / "bench.sm90.aotk"), common.carried("cold-start", options), quick=options.quick)


def main() -> None:
    from aotkern.report import bench as report

    bundle, out = sys.argv[1:]
    run = measured(bundle, observed("cold-start", "python benchmarks/cold_start.py bench.sm90.aotk OUT.json"))
    Path(out).write_text(run.dumps(), "utf-8")
    print(report.text(run))


if __name__ == "__main__":
    main()
