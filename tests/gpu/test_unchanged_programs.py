"""Recorded, built and run again without a compile: a whole program on the GPU, in fresh processes with empty caches.

Builds with the Triton that is installed here, which must be a tested one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotkern import tritons
from aotkern.target import Backend
from aotkern.trace import GENERATED, Trace

REPOSITORY = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(Path(__file__).with_name("unchanged_program.py"))]
PARTS = ("calls", "graph", "compiled")


def aotkern(*arguments: str, caches: Path) -> subprocess.Popen:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{Path(__file__).parent}",
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    command = [sys.executable, "-m", "aotkern", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process: subprocess.Popen) -> str:
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error[-3000:]
    return out


@pytest.fixture(scope="module")
def recorded(torch, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A bundle of what the program compiles, and what each part of it printed when it compiled."""
    triton = pytest.importorskip("triton")
    if not tritons.tested(triton.__version__, Backend.CUDA):
        pytest.skip(f"Triton {triton.__version__} was not tested")
    folder = tmp_path_factory.mktemp("unchanged")
    trace, capability = folder / "t.jsonl", "".join(map(str, torch.cuda.get_device_capability(0)))
    printed = {}
    for part in PARTS:
        record = ("record", "--append") if trace.exists() else ("record",)
        printed[part] = done(aotkern(*record, "-o", str(trace), "--", *PROGRAM, part, caches=folder / "recorded"))
    build = ("build", "--from", str(trace), "--generated", "-t", f"cuda:{capability}", "-o", str(folder / "out"))
    done(aotkern(*build, "--no-cache", "-j", "4", caches=folder / "built"))
    return folder, printed


def served(folder: Path, part: str, caches: Path) -> subprocess.Popen:
    """The part in a fresh process, in mode `error`; its document goes to a file."""
    run = ("run", "--bundle", str(folder / "out"), "--on-miss", "error", "--")
    return aotkern(*run, *PROGRAM, part, caches=caches)


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_compiled_and_every_bit_is_the_same(recorded, part, tmp_path):
    folder, printed = recorded
    process = served(folder, part, tmp_path)
    out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error[-3000:]
    assert out == printed[part]
    assert out.split()
    assert " 0 missed" in error
    assert not list(tmp_path.glob("triton/**/*.cubin"))


def test_what_inductor_generated_is_in_the_trace_as_text(recorded):
    folder, _ = recorded
    trace = Trace.parse((folder / "t.jsonl").read_bytes(), "t.jsonl")
    assert not trace.unbuildable
    generated = [row for row in trace.recorded if row.text]
    assert len(generated) >= 3
    assert all(row.module.startswith(GENERATED) and str(folder) not in row.text for row in generated)


def test_eight_ranks_start_at_once(recorded, tmp_path):
    folder, printed = recorded
    ranks = [served(folder, "calls", tmp_path / str(rank)) for rank in range(8)]
    assert [done(rank) for rank in ranks] == [printed["calls"]] * 8


def test_a_watch_around_it_sees_no_compile(recorded, tmp_path):
    folder, _ = recorded
    served = (sys.executable, "-m", "aotkern", "run", "--bundle", str(folder / "out"), "--", *PROGRAM, "calls")
    watched = aotkern("audit", "jit", "--json", "--", *served, caches=tmp_path)
    out, error = watched.communicate(timeout=500)
    rows = [row for row in json.loads(out)["kernels"] if row["routes"] != {"launcher": row["compiles"]}]
    assert rows == [], error[-2000:]
