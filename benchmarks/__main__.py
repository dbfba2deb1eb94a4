"""The one entry of the benchmarks.

python -m benchmarks                        # everything that can run here
python -m benchmarks build size             # some of it
python -m benchmarks --json-dir DIR         # and write DIR/NAME.json, which the page is made from
python -m benchmarks --page                 # docs/benchmarks.md and README's figures, from audits/benchmarks/*.json
python -m benchmarks --list
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from aotkern.errors import AotkernError
from aotkern.report import bench as report
from benchmarks import page, readme
from benchmarks.common import NotHereError, Options

BENCHMARKS = {
    "build": "variants a second, memory, a rebuild with nothing changed",
    "size": "bundles beside Triton's cache folder, zips and per-file zstd",
    "audits": "identity and verification of 1,000 variants, numerics in the emulator",
    "jit-watch": "what the JIT audit costs launches that hit",
    "scale": "builds, stores and bundles of 1,000 to 10,000 variants, and a line to a million",
    "emulator": "wave instructions a second",
    "report-page": "the HTML report of 2,000 variants in headless Chromium",
    "against": "the same commands from another revision of aotkern (--ref)",
    "launch": "a launch: aotkern, Triton, torch's static launcher, the bare driver call (NVIDIA GPU)",
    "cold-start": "a fresh process until all variants are loaded (NVIDIA GPU)",
    "decode": "decode in both designs against float64 over 40 shapes (NVIDIA GPU)",
    "kernels": "decode in both designs over 40 shapes, beside plain torch (NVIDIA GPU)",
    "serving": "a served workload with the kernels compiled when called, and prebuilt (NVIDIA GPU)",
    "unchanged": "Liger-Kernel's operators by JIT, cold and warm, and prebuilt (NVIDIA GPU)",
}
"""Each is a module of this folder, with underscores, that has `measure(options) -> Run`."""

SCRIPTS = {
    "h200_jit_watch.py": "the JIT audit on hits, eight processes",
    "mutations.py": "flipped bits in executed instructions, and what the numerics audit sees of them",
}
"""Longer experiments with arguments of their own; each says how to run it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(BENCHMARKS))
    parser.add_argument("--json-dir", type=Path, help="where to write the results")
    parser.add_argument("--bundles", type=Path, help="on a GPU machine: what benchmarks/prepare.py made")
    parser.add_argument("--ref", default="", help="a revision to compare with")
    parser.add_argument("--quick", action="store_true", help="few variants and rounds: does it work?")
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.md and README's figures, and leave")
    parser.add_argument("--list", action="store_true", help="say what there is and leave")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if options.page:
        runs = page.results()
        page.PAGE.write_text(page.made(runs), "utf-8")
        readme.README.write_text(readme.put(readme.README.read_text("utf-8"), readme.section(runs)), "utf-8")
        return 0
    if options.list:
        for name, what in {**BENCHMARKS, **SCRIPTS}.items():
            print(f"{name:22} {what}")
        return 0
    failed = False
    with tempfile.TemporaryDirectory(prefix="aotkern-bench-") as shared:
        for name in options.names or BENCHMARKS:
            failed |= not one(name, options, Path(shared), chosen=bool(options.names))
    return int(failed)


def one(name: str, options: argparse.Namespace, shared: Path, *, chosen: bool) -> bool:
    """Run one benchmark, show it, and write its results; whether it ended as it should."""
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=shared) as folder:
        try:
            run = module.measure(Options(Path(folder), shared, options.quick, options.bundles, options.ref))
        except NotHereError as reason:
            print(f"{name}: not measured: {reason}\n", flush=True)
            return not chosen
        except AotkernError as error:
            print(f"{name}: failed: {error}\n", file=sys.stderr, flush=True)
            return False
    if options.quick:
        run = replace(
            run, bars=(), notes=(*run.notes, "A quick run: it shows that the benchmark works, and no figure.")
        )
    print(report.text(run), end="\n\n", flush=True)
    if options.json_dir:
        run.write(options.json_dir)
    return True


if __name__ == "__main__":
    sys.exit(main())
