"""Liger-Kernel's operators on an NVIDIA GPU: Triton's JIT cold and warm, and the same program with prebuilt binaries.

On the GPU machine, which need have neither a network nor the pinned toolchain:

    python benchmarks/unchanged.py --record liger.jsonl

On a machine without a GPU, with the GPU machine's version of Triton and liger-kernel:

    aotkern build --from liger.jsonl -t cuda:90 -t gfx942 -t gfx950 --name liger -o FOLDER

On the GPU machine again:

    python -m benchmarks unchanged --bundles FOLDER

Each round starts three fresh processes of the unchanged program `liger_steps.py`: with an empty Triton cache (cold),
with that cache again (warm), and served in mode `error` with another empty cache, in which no binary may appear: a
compile would end the program. Every result is compared, tensor by tensor. Where the bundle's Triton is the running
one, a difference from the JIT, beyond those between two runs of the JIT, is an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from aotkern.bench import Bar, Measurement, Row, Run, Table, observed
from aotkern.bundle import Bundle
from benchmarks import common
from benchmarks.common import Options

PROGRAM = [sys.executable, str(Path(__file__).with_name("liger_steps.py"))]
ROUNDS = 2
TIMES = {"import_s": "imports", "training_s": "first training step", "inference_s": "inference step"}
TOLERANCE = {"bfloat16": 2e-2, "float32": 1e-3}
"""Absolute and relative, for code that two compilers made."""


def start(command: list[str], cache: Path, out: Path) -> dict[str, Any]:
    """Run the program in a fresh process; what it wrote."""
    import torch

    environment = {**common.environment(cache), "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [*command, *PROGRAM, "--out", str(out)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command) or 'JIT'}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return {**json.loads(out.read_text()), "tensors": torch.load(out.with_suffix(".pt")), "said": done.stderr}


def differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, bool]:
    """Results that are not equal bit for bit, each with whether it is within tolerance.

    Raises:
        SystemExit: The runs have different results.
    """
    import torch

    found = {}
    for name in sorted(first["tensors"].keys() | second["tensors"].keys()):
        one, two = first["tensors"].get(name), second["tensors"].get(name)
        if one is None or two is None or one.shape != two.shape or one.dtype != two.dtype:
            raise SystemExit(f"{name}: the runs have different results")
        if first["digests"][name] != second["digests"][name]:
            tolerance = TOLERANCE.get(str(one.dtype).rpartition(".")[2], 0.0)
            found[name] = torch.allclose(one.double(), two.double(), rtol=tolerance, atol=tolerance)
    return found


def one_round(served: list[str], root: Path) -> dict[str, dict[str, Any]]:
    """The three processes."""
    found = {
        "JIT, cold": start([], root / "jit", root / "cold.json"),
        "JIT, warm cache": start([], root / "jit", root / "warm.json"),
        "prebuilt": start([*served, "--"], root / "none", root / "prebuilt.json"),
    }
    # Triton's own launcher stubs may go there, on versions that build them with a C compiler; binaries may not.
    if compiled := sorted(path.name for path in root.glob("none/**/*.cubin")):
        raise SystemExit(f"compiled while served: {', '.join(compiled)}")
    return found


def judged(one: dict[str, dict[str, Any]], *, same: bool) -> tuple[int, int]:
    """Tensors of a round, and how many of them are equal bit for bit to the JIT's."""
    cold = one["JIT, cold"]
    unstable, different = differing(cold, one["JIT, warm cache"]), differing(cold, one["prebuilt"])
    wrong = [name for name, close in different.items() if not close or (same and name not in unstable)]
    if wrong:
        raise SystemExit(f"prebuilt binaries computed something else: {', '.join(wrong)}")
    return len(cold["tensors"]), len(cold["tensors"]) - len(different)


def measure(options: Options) -> Run:
    common.needs_gpu()
    common.needs("liger_kernel")
    folder = common.prepared(options)
    bundles = [Bundle.open(path) for path in sorted(folder.glob("liger.*.aotk"))]
    if not bundles:
        raise common.NotHereError("needs liger.sm90.aotk in FOLDER; benchmarks/unchanged.py says how to make it")
    import triton

    built_by = {bundle.manifest.toolchain["triton"] for bundle in bundles}
    same = built_by == {triton.__version__}
    served = [sys.executable, "-m", "aotkern", "run", "--on-miss", "error"]
    served += [word for bundle in bundles for word in ("--bundle", bundle.where)]
    served += [] if same else ["--other-triton"]
    observation = observed("unchanged", f"{common.command('unchanged', options)} --bundles FOLDER", ("liger-kernel",))
    rounds, tensors, equal = [], 0, 0
    for number in range(1 if options.quick else ROUNDS):
        root = options.folder / str(number)
        root.mkdir()
        rounds.append(one_round(served, root))
        found = judged(rounds[-1], same=same)
        tensors, equal = tensors + found[0], equal + found[1]
    rows = tuple(
        Row(way, tuple(Measurement.of("s", [one[way]["times"][name] for one in rounds]) for name in TIMES))
        for way in rounds[0]
    )
    summary = rounds[-1]["prebuilt"]["said"].strip().splitlines()[-1].partition("; ")[2]
    notes = (
        f"{equal} of {tensors} tensors are equal bit for bit to the JIT's; bundles built by Triton "
        f"{', '.join(sorted(built_by))}, this is {triton.__version__}.",
        f"The served process: {summary}.",
        "Triton 3.6 builds a launcher for each signature with a C compiler, also for prebuilt binaries; later ones "
        "do not.",
    )
    bars = (Bar("tensors equal to the JIT's", "%", 100, False, 100 * equal / tensors),)
    return observation.run((Table("time to each step", ("way", *TIMES.values()), rows),), bars, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="where to write the trace")
    trace = parser.parse_args().record
    recording = [sys.executable, "-m", "aotkern", "record", "-o", str(trace.resolve()), "--"]
    with tempfile.TemporaryDirectory() as folder:
        start(recording, Path(folder) / "jit", Path(folder) / "step.json")
    print(trace.read_text().count("\n"), "lines in", trace)


if __name__ == "__main__":
    main()
