"""How long a fresh process takes until 200 variants are loaded on an NVIDIA GPU.

    python benchmarks/cold_start.py BUNDLE OUT.json

Three kinds of process, several of each in turn:

    bare      ctypes only: the driver's own module loads and function look-ups for the code objects of the bundle,
              which it reads from plain files; nothing is verified
    aotkern   opens the bundle, verifies every byte, and preloads all variants
    triton    the same kernel through Triton's JIT function with a warm disk cache of its own

Each process times its steps; the table gives medians in milliseconds. "process" is the wall time of the whole process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
HERE = Path(__file__).parent

BARE = """
import ctypes, sys, time
from pathlib import Path
start = time.perf_counter()
images = [path.read_bytes() for path in sorted(Path(sys.argv[1]).glob("*.cubin"))]
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
report = bundle.preload("versioned")
end = time.perf_counter()
print(report.variants, imported - start, driver - imported, opened - driver, end - opened, report.modules)
"""

TRITON = """
import sys, time
sys.path.insert(0, sys.argv[1])
start = time.perf_counter()
import torch, triton
from bench_kernels import VERSIONS, versioned
imported = time.perf_counter()
x, out = torch.ones(256, device="cuda"), torch.ones(256, device="cuda")
torch.cuda.synchronize()
driver = time.perf_counter()
for version in range(2, VERSIONS + 2):
    versioned[(1,)](x, out, 17, VERSION=version, BLOCK=256, num_warps=4)
torch.cuda.synchronize()
end = time.perf_counter()
print(VERSIONS, imported - start, driver - imported, end - driver)
"""

STEPS = {
    "bare": ("read files", "driver and context", "load"),
    "aotkern": ("import", "driver and context", "open and verify", "preload"),
    "triton": ("import", "driver and context", "launch each once"),
}


def run(code: str, argument: str, environment: dict[str, str]) -> tuple[list[float], float]:
    """The numbers that a process printed, and the wall time of all of it, in seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, env=environment, check=False
    )
    wall = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(done.stderr)
    return [float(word) for word in done.stdout.split()], wall


def unpack(bundle: str, folder: Path) -> int:
    """Write the code objects of `versioned` as plain files; return their bytes."""
    from aotkern.bundle import Bundle

    opened = Bundle.open(bundle)
    wanted = dict.fromkeys(entry.object for entry in opened.manifest.variants if entry.kernel == "versioned")
    total = 0
    for digest in wanted:
        data = opened.object(digest)
        (folder / f"{digest.hex}.cubin").write_bytes(data)
        total += len(data)
    return total


def main() -> None:
    bundle, out = sys.argv[1:]
    folder, cache = Path(tempfile.mkdtemp()), tempfile.mkdtemp()
    size = unpack(bundle, folder)
    environment = {**os.environ, "TRITON_CACHE_DIR": cache}
    jobs = {"bare": (BARE, str(folder)), "aotkern": (AOTKERN, bundle), "triton": (TRITON, str(HERE))}
    cold, cold_wall = run(*jobs["triton"], environment)
    numbers: dict[str, list[tuple[list[float], float]]] = {name: [] for name in jobs}
    for _ in range(RUNS):
        for name, (code, argument) in jobs.items():
            numbers[name].append(run(code, argument, environment))
    medians = {}
    for name, found in numbers.items():
        steps = {
            step: round(1e3 * statistics.median(values[index + 1] for values, _ in found), 2)
            for index, step in enumerate(STEPS[name])
        }
        wall = round(1e3 * statistics.median(wall for _, wall in found), 1)
        medians[name] = {"variants": int(found[0][0][0]), **steps, "process": wall}
    ours, bare = medians["aotkern"], medians["bare"]
    work = ours["open and verify"] + ours["preload"]
    report = {
        "what": "milliseconds, medians over fresh processes",
        "runs": RUNS,
        "bytes of code objects": size,
        "medians": medians,
        "triton with a cold cache": {"launch each once": round(1e3 * cold[3], 1), "process": round(1e3 * cold_wall, 1)},
        "open, verify and preload": round(work, 2),
        "open, verify and preload / bare loads": round(work / bare["load"], 2),
        "the same with the import": round((work + ours["import"]) / bare["load"], 2),
        "process / bare process": round(ours["process"] / bare["process"], 2),
    }
    Path(out).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
