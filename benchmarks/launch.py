"""How long a launch takes on an NVIDIA GPU: aotkern, the bare driver call, Triton's JIT, torch's static launcher.

    python benchmarks/launch.py BUNDLE OUT.json

Every contender launches the same 16-argument kernel. They take turns, round by round: the device is idle when a burst
of 10 begins, and the time of a burst is divided by 10. Figures are medians over the rounds, in microseconds. Triton and
torch compile the kernel themselves; aotkern and the bare call launch the one from the bundle.
"""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

import aotkern
from aotkern.abi import Layout
from aotkern.arguments import Pointer
from aotkern.loader import native

BURST = 10
ROUNDS = 400
WARM_UP = 30
BLOCK = 256
GRID = (16,)
HERE = Path(__file__).parent


def arguments() -> tuple[Any, ...]:
    """The 16 run-time arguments; the integers are of all classes."""
    tensors = [torch.ones(BLOCK * GRID[0], device="cuda") for _ in range(6)]
    return (*tensors, BLOCK * GRID[0], 17, 32, 4, 5, 6, 7, 8, 9, 0.5)


def by_python(call: Callable[[], Any]) -> Callable[[], float]:
    """A contender that is called from Python: microseconds of a launch, over one burst."""

    def burst() -> float:
        begin = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        return (time.perf_counter_ns() - begin) / BURST / 1e3

    return burst


def bare_call(bundle: aotkern.LoadedBundle, values: tuple[Any, ...]) -> Callable[[], float]:
    """The bare driver call in C, on the variant that aotkern chooses, with one buffer packed beforehand."""
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
    kernel = bundle["sixteen"]
    variant = next(v for v in kernel.variants if "n0:i32:D,n1:i32,n2:i32:D" in v.text and f"BLOCK={BLOCK}" in v.text)
    handle = bundle.modules.ready(variant, 0, 0).handle
    layout = Layout.of(variant.key, bundle.manifest.object(variant.object).arguments)
    read = [Pointer(v.data_ptr(), "fp32", 0, 0) if isinstance(v, torch.Tensor) else v for v in values]
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


def torch_static(values: tuple[Any, ...], compiled: Any) -> Callable[[], Any]:
    """Torch's static launcher, which Inductor uses: a launch without any choice of a variant."""
    try:
        from torch._inductor.runtime.static_triton_launcher import StaticallyLaunchedCudaKernel
    except ImportError:
        from torch._inductor.runtime.static_cuda_launcher import StaticallyLaunchedCudaKernel

    path = Path(tempfile.mkdtemp()) / "sixteen.cubin"
    path.write_bytes(compiled.asm["cubin"])
    compiled._cubin_path = str(path)
    launcher = StaticallyLaunchedCudaKernel(compiled)
    launcher.load_kernel(0)
    get_stream = torch._C._cuda_getCurrentRawStream
    return lambda: launcher.run(GRID[0], 1, 1, get_stream(0), *values)


def contenders(bundle: aotkern.LoadedBundle, values: tuple[Any, ...]) -> tuple[dict[str, Callable[[], float]], dict]:
    """Everything that takes part, and why the rest does not."""
    from bench_kernels import sixteen

    compiled = sixteen[GRID](*values, BLOCK=BLOCK, num_warps=4)
    kernel = bundle["sixteen"]
    grid_call = kernel[GRID]

    def grid_of(bound: dict[str, Any]) -> tuple[int, ...]:
        return (bound["n0"] // bound["BLOCK"],)

    kernel[GRID](*values, BLOCK=BLOCK, num_warps=4)
    found = {
        "bare driver call (C)": bare_call(bundle, values),
        'aotkern bundle["sixteen"][grid](...)': by_python(
            lambda: bundle["sixteen"][GRID](*values, BLOCK=BLOCK, num_warps=4)
        ),
        "aotkern kernel[grid](...)": by_python(lambda: kernel[GRID](*values, BLOCK=BLOCK)),
        "aotkern, grid bound beforehand": by_python(lambda: grid_call(*values, BLOCK)),
        "aotkern, grid by a function": by_python(lambda: kernel[grid_of](*values, BLOCK=BLOCK)),
        "triton kernel[grid](...)": by_python(lambda: sixteen[GRID](*values, BLOCK=BLOCK, num_warps=4)),
    }
    absent = {}
    try:
        found["torch static launcher (no choice)"] = by_python(torch_static(values, compiled))
    except Exception as error:  # whatever a private interface of torch may raise is the reason
        absent["torch static launcher (no choice)"] = f"{type(error).__name__}: {error}"
    return found, absent


def in_python(path: str, values: tuple[Any, ...]) -> Callable[[], float]:
    """The same launch without the C extension."""
    extension = native._extension
    native._extension = lambda: None
    kernel = aotkern.load(path)["sixteen"]
    native._extension = extension
    kernel[GRID](*values, BLOCK=BLOCK)
    return by_python(lambda: kernel[GRID](*values, BLOCK=BLOCK))


def check(bundle: aotkern.LoadedBundle, values: tuple[Any, ...]) -> None:
    """What aotkern launches must compute what Triton's own launch computes."""
    from bench_kernels import sixteen

    out = values[5]
    out.zero_()
    bundle["sixteen"][GRID](*values, BLOCK=BLOCK)
    ours = out.clone()
    out.zero_()
    sixteen[GRID](*values, BLOCK=BLOCK, num_warps=4)
    if not torch.equal(ours, out) or not bool(ours.any()):
        raise SystemExit("aotkern and Triton disagree")


def main() -> None:
    path, out = sys.argv[1:]
    sys.path.insert(0, str(HERE))
    bundle, values = aotkern.load(path), arguments()
    check(bundle, values)
    found, absent = contenders(bundle, values)
    found["aotkern without the C extension"] = in_python(path, values)
    times: dict[str, list[float]] = {name: [] for name in found}
    for index in range(ROUNDS + WARM_UP):
        for name, burst in found.items():
            torch.cuda.synchronize()
            taken = burst()
            if index >= WARM_UP:
                times[name].append(taken)
    torch.cuda.synchronize()
    medians = {name: statistics.median(values) for name, values in times.items()}
    bare = medians["bare driver call (C)"]
    report = {
        "what": "microseconds of one launch, median over rounds of bursts of 10, device idle before each burst",
        "machine": {
            "gpu": torch.cuda.get_device_name(0),
            "cpu": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton.__version__,
        },
        "rounds": ROUNDS,
        "variants": len(bundle["sixteen"].variants),
        "native": sum(bundle["sixteen"].counted()[0].values()),
        "medians": {name: round(value, 3) for name, value in medians.items()},
        "deciles": {name: [round(v, 3) for v in statistics.quantiles(t, n=10)] for name, t in times.items()},
        "times the bare call": {name: round(value / bare, 3) for name, value in medians.items()},
        "absent": absent,
    }
    Path(out).write_text(json.dumps(report, indent=2) + "\n")
    for name, value in medians.items():
        print(f"{value:8.2f} us  {value / bare:6.2f} x  {name}")
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}")


if __name__ == "__main__":
    main()
