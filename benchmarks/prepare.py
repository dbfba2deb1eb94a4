"""Build what the GPU benchmarks and tests need, on a machine without a GPU.

    python benchmarks/prepare.py FOLDER [--target cuda:90] [--extension] [--decode]

FOLDER then holds `bench.sm90.aotk` and `gpu.sm90.aotk` (the benchmarks' and the GPU tests' kernels), and
`revision.txt`, which names the git revision; with `--decode`, `kernels.sm90.aotk` as well (the kernels that aotkern
ships, 220 variants; fifteen minutes of processor time); with `--extension`, what is written in C, for a machine without
a compiler. Take it to the GPU machine together with the repository, and run `benchmarks/gpu.sh FOLDER RESULTS` there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from aotkern.bench.observed import git_revision  # noqa: E402
from benchmarks import common  # noqa: E402

SOURCES = {"bench": HERE / "bench_kernels.py", "gpu": ROOT / "tests" / "gpu" / "gpu_kernels.py"}


def extension(folder: Path) -> None:
    """The C extension as one file for every Python from 3.10 on, and the loop around the bare driver call."""
    include = sysconfig.get_paths()["include"]
    for source, name in ((ROOT / "aotkern" / "_fastpath.c", "_fastpath.abi3.so"), (HERE / "bare.c", "bare.so")):
        command = ["cc", "-O3", "-fno-plt", "-shared", "-fPIC", f"-I{include}", source, "-o", folder / name, "-lm"]
        subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--extension", action="store_true")
    parser.add_argument("--decode", action="store_true")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    sources = {**SOURCES, **({"kernels": ROOT / "kernels"} if options.decode else {})}
    for name, source in sources.items():
        where = ("--name", name, "-t", options.target, "-o", options.folder, "-j", options.jobs)
        subprocess.run([sys.executable, "-m", "aotkern", "build", source, *where], cwd=ROOT, check=True)
    (options.folder / common.REVISION).write_text(git_revision(ROOT) + "\n", "utf-8")
    if options.extension:
        extension(options.folder)


if __name__ == "__main__":
    main()
