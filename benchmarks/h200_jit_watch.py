"""What watching costs a program whose launches all hit: eight processes, with and without the JIT audit, in turns.

    python benchmarks/h200_jit_watch.py                # on a GPU: torch and Triton, about two minutes
    python benchmarks/h200_jit_watch.py --paper        # on any machine: Triton's launch path up to the driver

Each process warms one kernel up, then times rounds of launches that find their binary in memory. Runs with and without
the watch alternate; the figure is the ratio of the medians over all rounds of all processes, beside the spread of runs
without the watch, which says how small a difference could have been seen. The watched runs must record exactly the
compiles of the warm-up.

Needs the sources of aotkern on PYTHONPATH and nothing that is not in the standard library beside torch and Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aotkern.triton_bridge.child import GATE_FILE, environment
from aotkern.triton_bridge.gate import Gate

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def touch(a, b, c, out, n, stride, offset, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    value = tl.load(a + at, mask=keep) + tl.load(b + at, mask=keep) * scale
    tl.store(out + at, value + tl.load(c + at * stride + offset, mask=keep), mask=keep)
"""


Round = tuple[float, float]
"""Seconds of a round of launches: by the clock, and of this process's processor time."""


def worker(rounds: int, launches: int, paper: bool) -> list[Round]:
    """The rounds of launches in this process, after a warm-up that compiles one binary."""
    from bench_touch_kernel import touch

    if paper:
        from aotkern.target import Target
        from aotkern.triton_bridge.paper import PaperTensor, paper_device

        stack = paper_device(Target.parse("cuda:90"))
        stack.__enter__()
        tensors, wait = [PaperTensor("float32", shape=(256,))] * 4, lambda: None
    else:
        import torch

        tensors, wait = [torch.zeros(1024, device="cuda") for _ in range(4)], torch.cuda.synchronize

    def launch() -> None:
        touch[(1,)](*tensors, 256, 1, 0, 0.5, BLOCK=256)

    for _ in range(200):
        launch()
    wait()
    times = []
    for _ in range(rounds):
        begun, spent = time.perf_counter(), time.process_time()
        for _ in range(launches):
            launch()
        wait()
        times.append((time.perf_counter() - begun, time.process_time() - spent))
    return times


def program(processes: int, arguments: list[str], environment_: dict[str, str]) -> tuple[list[Round], float]:
    """Run all processes at once: every round of each, and the seconds of the whole."""
    begun = time.perf_counter()
    jobs = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", *arguments],
            env={**environment_, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(processes)
    ]
    outputs = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit("a worker failed")
    return [
        seconds for output in outputs for seconds in json.loads(output.splitlines()[-1])
    ], time.perf_counter() - begun


def watched_compiles(folder: Path) -> int:
    """Compiles in the event files of a run."""
    lines = (line for path in folder.glob("*.*.*.jsonl") for line in path.read_text().splitlines())
    return sum(json.loads(line)["event"] == "start" for line in lines)


def main() -> None:
    """Alternate runs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--launches", type=int, default=10_000)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.rounds, options.launches, options.paper)))
        return
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "bench_touch_kernel.py").write_text(KERNEL)
        paths = os.pathsep.join([str(home), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        base = {
            **os.environ,
            "PYTHONPATH": paths,
            "TRITON_CACHE_DIR": str(home / "cache"),
            "TRITON_DEFAULT_FP_FUSION": "1",
        }
        paper = ["--paper"] if options.paper else []
        arguments = ["--rounds", str(options.rounds), "--launches", str(options.launches), *paper]
        program(1, ["--rounds", "1", "--launches", "1", *paper], base)  # fills the disk cache
        runs: dict[str, list[list[Round]]] = {"plain": [], "watched": []}
        whole: dict[str, list[float]] = {"plain": [], "watched": []}
        compiles = []
        for pair in range(options.pairs):
            for kind in ("plain", "watched") if pair % 2 == 0 else ("watched", "plain"):
                variables = base
                if kind == "watched":
                    folder = home / f"events-{pair}"
                    folder.mkdir()
                    (folder / GATE_FILE).write_text(json.dumps(Gate().to_json()))
                    variables = environment(base, folder)
                times, total = program(options.processes, arguments, variables)
                runs[kind].append(times)
                whole[kind].append(total)
                if kind == "watched":
                    compiles.append(watched_compiles(folder))
    print(json.dumps(summary(options, runs, whole, compiles), indent=2))


def summary(
    options: argparse.Namespace,
    runs: dict[str, list[list[Round]]],
    whole: dict[str, list[float]],
    compiles: list[int],
) -> dict[str, object]:
    """Medians in microseconds a launch, with and without the watch, by the clock and in processor time."""

    def median(rows: list[list[Round]], which: int) -> float:
        return 1e6 / options.launches * statistics.median(pair[which] for rounds in rows for pair in rounds)

    def compared(which: int) -> dict[str, float]:
        plain, watched = (median(runs[kind], which) for kind in ("plain", "watched"))
        each = [median([rounds], which) for rounds in runs["plain"]]
        return {
            "plain_us": round(plain, 3),
            "watched_us": round(watched, 3),
            "ratio": round(watched / plain, 4),
            "plain_runs_spread": round(max(each) / min(each), 4),
        }

    return {
        "processes": options.processes,
        "rounds": options.rounds * options.processes * options.pairs,
        "launches_per_round": options.launches,
        "clock": compared(0),
        "processor_time": compared(1),
        "whole_run_seconds": {kind: [round(total, 2) for total in totals] for kind, totals in whole.items()},
        "compiles_recorded": compiles,
        "expected_compiles": options.processes,
    }


if __name__ == "__main__":
    main()
