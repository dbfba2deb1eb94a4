"""A served workload's kernels for real on an NVIDIA GPU, in three arms: compiled when called, de-specialised, prebuilt.

    python -m benchmarks serving --bundles FOLDER     # what benchmarks/prepare.py --decode made

The workload is `audits/workloads/8k-1k.toml` with fewer requests, eight at a time, since what is compiled when called
takes seconds for each binary: one decode layer of each kind, with caches,
writers, index packing, gather and attention, by the family's own host code. Decode steps run in captured graphs,
steps with parts of prompts outside of them. Each arm is a fresh process with an empty Triton cache:

    legacy         gfx942's design with a gather that is specialised on its counts, by Triton's JIT
    despecialised  gfx950's design with counts at run time, by Triton's JIT
    bundle         the same from prebuilt binaries; Triton is not imported

A step ends when the device is idle again. Every row attends to the entries of a request of 9,216 positions (128 of its
window, the top 1,024, and 72 compressed ones) at random slots of caches that hold random finite records. Drawing them
is a part of every step, and of every graph, in all arms alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from aotkern.audit.replay.scheduler import Step, steps
from aotkern.audit.replay.workload import BUNDLE, Arm, Workload
from aotkern.bench import Measurement, Row, Run, Table
from benchmarks import common
from benchmarks.common import Options
from kernels import serving

WORKLOAD = common.ROOT / "audits" / "workloads" / "8k-1k.toml"
REQUESTS = {"warmup": 16, "scored": 64, "concurrency": 8}
QUICK = {"warmup": 2, "scored": 4, "concurrency": 2}
CAPTURED = (1, 2, 4, 8)
CAPTURE, WARMUP, SCORED = "capture", "warmup", "scored"
BEGAN = "AOTKERN_BENCH_BEGAN"


def workload(quick: bool) -> Workload:
    """The workload as it is served here."""
    found = Workload.read(WORKLOAD)
    assert found.requests is not None
    arms = tuple(replace(arm, settings={**arm.settings, **_settings()}) for arm in found.arms)
    limits = replace(found.limits, captured_rows=CAPTURED)
    return replace(found, requests=replace(found.requests, **(QUICK if quick else REQUESTS)), limits=limits, arms=arms)


def _settings() -> dict[str, int]:
    return {"compute_units": serving.H200.compute_units}


def served(load: Workload) -> Iterator[tuple[str, Step]]:
    """Every step with its phase."""
    requests = load.requests
    assert requests is not None
    for phase, count, seed in (
        (WARMUP, requests.warmup, requests.seed + 1),
        (SCORED, requests.scored, requests.seed),
    ):
        for step in steps(requests.drawn(count, seed), load.limits, requests.concurrency):
            yield phase, step


def child(name: str, bundle: Path, quick: bool) -> dict[str, Any]:
    """One arm, in this process: seconds since its start, the time of each step, and what was compiled."""
    import torch

    from kernels.replayed import open_server

    load = workload(quick)
    arm = load.arm(name)
    with ExitStack() as stack:
        launcher, count = _launcher(arm, bundle, stack)
        server: Any = open_server(launcher, "cuda", arm.settings)
        _phase(count, CAPTURE)
        graphs = {rows: _graph(server, rows) for rows in reversed(load.limits.captured_rows)}
        marks = {"ready": _since_start()}
        times: dict[str, list[float]] = {WARMUP: [], SCORED: []}
        for phase, step in served(load):
            _phase(count, phase)
            captured = None if step.chunks else load.limits.captured(step.rows)
            began = time.perf_counter()
            if captured is None:
                server.step(step)
            else:
                server.prepare(captured)
                graphs[captured].replay()
            torch.cuda.synchronize()
            times[phase].append((time.perf_counter() - began) * 1e3)
            marks.setdefault("first step", _since_start())
        rows = [] if count is None else count.report.rows
    compiled = {phase: sum(row.count for row in rows if row.phase == phase) for phase in (CAPTURE, WARMUP, SCORED)}
    stalled = {phase: sum(row.seconds for row in rows if row.phase == phase) for phase in (CAPTURE, WARMUP, SCORED)}
    if arm.kind == BUNDLE and "triton" in sys.modules:
        raise SystemExit("Triton was imported while everything was prebuilt")
    return {"marks": marks, "times": times, "compiled": compiled, "stalled": stalled}


def _launcher(arm: Arm, bundle: Path, stack: ExitStack) -> tuple[Any, Any]:
    """What launches, and what counts compiles; a bundle compiles nothing, and misses are errors."""
    if arm.kind == BUNDLE:
        from aotkern.loader import load

        loaded = load(bundle)
        loaded.preload()
        return loaded, None
    from aotkern.audit.counting import count_jit
    from kernels.launchers import JitLauncher

    return JitLauncher(), stack.enter_context(count_jit())


def _phase(count: Any, name: str) -> None:
    if count is not None:
        count.phase(name)


def _graph(server: Any, rows: int) -> Any:
    import torch

    server.capture(rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        server.capture(rows)
    return graph


def _since_start() -> float:
    return time.time() - float(os.environ[BEGAN])


def one_arm(name: str, bundle: Path, options: Options) -> dict[str, Any]:
    """One arm in a fresh process with an empty Triton cache."""
    cache = options.folder / name
    environment = {**common.environment(cache), "TRITON_CACHE_DIR": str(cache), BEGAN: str(time.time())}
    command = [sys.executable, __file__, name, str(bundle), *(["--quick"] if options.quick else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables(found: dict[str, dict[str, Any]]) -> tuple[Table, Table]:
    """Compiles and stalls, and the distribution of steps."""
    compiled, distribution = [], []
    for name, arm in found.items():
        counts = tuple(Measurement.of("binaries", [arm["compiled"][phase]]) for phase in (CAPTURE, WARMUP, SCORED))
        stalls = tuple(Measurement.of("s", [arm["stalled"][phase]]) for phase in (CAPTURE, WARMUP, SCORED))
        marks = tuple(Measurement.of("s", [arm["marks"][mark]]) for mark in ("ready", "first step"))
        compiled.append(Row(name, (*counts, *stalls, *marks)))
        scored = Measurement.of("ms", arm["times"][SCORED], (50, 90, 99, 99.9))
        whole = Measurement.of("s", [sum(arm["times"][SCORED]) / 1e3])
        percentiles = tuple(Measurement.of("ms", [value]) for _, value in scored.percentiles)
        distribution.append(Row(name, (*percentiles, Measurement.of("ms", [scored.most]), whole)))
    phases = (CAPTURE, WARMUP, SCORED)
    columns = ("arm", *(f"compiled, {p}" for p in phases), *(f"compiling, {p}" for p in phases), "ready", "first step")
    steps_columns = ("arm", "p50", "p90", "p99", "p99.9", "longest", "all scored steps")
    return Table("compiles", columns, tuple(compiled)), Table("scored steps", steps_columns, tuple(distribution))


def measure(options: Options) -> Run:
    common.needs_gpu()
    bundle = common.prepared(options) / "kernels.sm90.aotk"
    observation = common.carried("serving", options)
    load = workload(options.quick)
    found = {arm.name: one_arm(arm.name, bundle, options) for arm in load.arms}
    count = {phase: len(arm) for arm in found.values() for phase, arm in arm["times"].items()}
    assert load.requests is not None
    notes = (
        f"{load.requests.warmup} warm-up and {load.requests.scored} scored requests, {load.requests.concurrency} at a "
        f"time: {count[WARMUP]} and {count[SCORED]} steps; graphs for {len(load.limits.captured_rows)} row counts.",
        "One run of each arm; times count from the start of its process.",
        "Rows attend to 128 entries of the window, the top 1,024, and 72 compressed ones; caches hold random records.",
    )
    return observation.run(tables(found), (), notes, bundles=(bundle,))


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1], Path(sys.argv[2]), "--quick" in sys.argv)))
