"""Liger-Kernel's operators on one NVIDIA GPU: Triton's JIT cold and warm, and the same program with prebuilt binaries.

On the GPU machine, which need have no network and no pinned toolchain:

    PYTHONPATH=. python benchmarks/h200_run_unchanged.py record --trace liger.jsonl

On a machine without a GPU, with the pinned Triton and the same version of liger-kernel:

    aotkern build --from liger.jsonl -t cuda:90 -t gfx942 -t gfx950 -o bundles

On the GPU machine again:

    PYTHONPATH=. python benchmarks/h200_run_unchanged.py run --bundles bundles --json unchanged.json

`run` starts three fresh processes of the unchanged program `liger_steps.py` in turn: with an empty Triton cache (cold),
with that cache again (warm), and served in mode `error` with another empty cache, in which no binary may appear: a
compile would end the program. It reports times to the end of the first training step and of an inference step, and
compares results tensor by tensor with those of the JIT.

What can be said depends on the versions. Where the bundle's Triton is the running one, results must be equal bit for
bit. Where it is another tested one, bundles are used by permission (`--other-triton`), the code is another compiler's,
and equality is reported, not required; what is required then is that every result is within tolerance of the JIT's.
Fused operators that add with atomics may differ between two runs of the JIT itself: the warm run against the cold one
shows which do, and is the yardstick.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton

from aotkern.bundle import Bundle

PROGRAM = [sys.executable, str(Path(__file__).with_name("liger_steps.py"))]
TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 1e-3}
"""Absolute and relative, for code that two compilers made."""


def start(command: list[str], cache: Path, out: Path) -> dict[str, Any]:
    """Run the program in a fresh process; what it wrote."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    program = [*command, *PROGRAM, "--out", str(out)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command) or 'JIT'}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return {**json.loads(out.read_text()), "tensors": torch.load(out.with_suffix(".pt")), "said": done.stderr[-2000:]}


def compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """How two runs' results differ."""
    names, rows = first["tensors"].keys() | second["tensors"].keys(), {}
    for name in sorted(names):
        one, two = first["tensors"].get(name), second["tensors"].get(name)
        if one is None or two is None or one.shape != two.shape or one.dtype != two.dtype:
            sys.exit(f"{name}: the runs have different results")
        if first["digests"][name] != second["digests"][name]:
            tolerance = TOLERANCE.get(one.dtype, 0.0)
            difference = (one.double() - two.double()).abs().max().item()
            close = torch.allclose(one.double(), two.double(), rtol=tolerance, atol=tolerance)
            rows[name] = {"largest_difference": difference, "within_tolerance": close}
    return {"tensors": len(names), "equal": len(names) - len(rows), "different": rows}


def run(bundles: Path, output: Path | None) -> int:
    """The three processes, the comparison, and the verdict."""
    found = [Bundle.open(path) for path in sorted(bundles.glob("*.aotk"))]
    built_by = {bundle.manifest.toolchain["triton"] for bundle in found}
    same = built_by == {triton.__version__}
    served = [sys.executable, "-m", "aotkern", "run", "--bundle", str(bundles), "--on-miss", "error"]
    served += [] if same else ["--other-triton"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cold = start([], root / "jit", root / "cold.json")
        warm = start([], root / "jit", root / "warm.json")
        prebuilt = start([*served, "--"], root / "none", root / "prebuilt.json")
        # Triton's own launcher stubs may go there, on versions that build them with a C compiler; binaries may not.
        compiled = sorted(path.name for path in root.glob("none/**/*.cubin"))
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "built_by": sorted(built_by),
        "times": {"cold": cold["times"], "warm": warm["times"], "prebuilt": prebuilt["times"]},
        "compiled_while_served": compiled,
        "warm_against_cold": compared(cold, warm),
        "prebuilt_against_cold": compared(cold, prebuilt),
        "served": prebuilt["said"].strip().splitlines()[-1:],
    }
    text = json.dumps(report, indent=2)
    print(text)
    if output:
        output.write_text(text + "\n")
    different = report["prebuilt_against_cold"]["different"]
    unstable = report["warm_against_cold"]["different"]
    wrong = [name for name, row in different.items() if not row["within_tolerance"]]
    unequal = [name for name in different if name not in unstable] if same else []
    return 1 if compiled or wrong or unequal else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("--trace", type=Path, required=True)
    serve = commands.add_parser("run")
    serve.add_argument("--bundles", type=Path, required=True)
    serve.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        sys.exit(run(options.bundles, options.json))
    with tempfile.TemporaryDirectory() as folder:
        recording = [sys.executable, "-m", "aotkern", "record", "-o", str(options.trace), "--"]
        start(recording, Path(folder) / "jit", Path(folder) / "step.json")
    print(options.trace.read_text().count("\n"), "lines in", options.trace)


if __name__ == "__main__":
    main()
