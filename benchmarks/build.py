"""Build, rebuild, verify and size: the figures of the README's table.

    python benchmarks/build.py [--variants 160] [--json FILE]

Each figure is a wall time of a whole `aotkern` command in a fresh process, with the time of `aotkern --help` beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
MANY = HERE / "many_kernels.py"


def run(*arguments: str, cache: Path) -> float:
    """Wall seconds of one `aotkern` command."""
    command = [sys.executable, "-m", "aotkern", *arguments]
    env = {**os.environ, "AOTKERN_CACHE": str(cache), "PYTHONPATH": str(HERE.parent)}
    started = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def subset(count: int, folder: Path) -> Path:
    """A kernel file with `count` variants for gfx942 and as many for gfx950."""
    path = folder / "subset_kernels.py"
    text = MANY.read_text().replace("range(40)", f"range({count // 25})").replace("range(50)", f"range({count // 20})")
    path.write_text(text.replace('("gfx942", "gfx950", "cuda:90")', '("gfx942", "gfx950")'))
    return path


def speed(count: int, folder: Path) -> dict[str, float]:
    """Variants a second with one and two jobs, interleaved, three times; medians."""
    source = str(subset(count, folder))
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for jobs, seconds in times.items():
            arguments = ("build", source, "-t", "gfx942", "-o", str(folder / "speed"), "--no-cache", "-j", str(jobs))
            seconds.append(run(*arguments, cache=folder / "unused"))
    one, two = (statistics.median(times[jobs]) for jobs in (1, 2))
    return {"variants": count, "seconds, 1 job": one, "seconds, 2 jobs": two, "2 jobs over 1": one / two}


def rebuild(folder: Path) -> dict[str, float]:
    """A build of 1,000 variants, then the same again with nothing changed."""
    arguments = ("build", str(MANY), "-t", "gfx942", "-o", str(folder / "many"), "-j", "2")
    first = run(*arguments, cache=folder / "cache")
    again = [run(*arguments, cache=folder / "cache") for _ in range(5)]
    # What any build needs before it can look at the first variant: one build of a single tiny variant from the store.
    tiny = folder / "tiny_kernels.py"
    tiny.write_text(MANY.read_text().replace("range(40)", "range(1)").replace("range(50)", "range(1)"))
    small = ("build", str(tiny), "-t", "cuda:90", "-o", str(folder / "tiny"), "-j", "2")
    run(*small, cache=folder / "cache")
    startup = [run(*small, cache=folder / "cache") for _ in range(5)]
    return {
        "first build, s": first,
        "nothing changed, s": statistics.median(again),
        "of which start-up, s": statistics.median(startup),
        "beyond start-up, s": statistics.median(again) - statistics.median(startup),
    }


def verify(folder: Path) -> dict[str, float]:
    """Verification of the bundle of 1,000 variants."""
    bundle = folder / "many" / "many_kernels.gfx942.aotk"
    seconds = statistics.median(run("verify", str(bundle), cache=folder / "cache") for _ in range(5))
    manifest = json.loads(capture("manifest", str(bundle)))
    code = sum(entry["size"] for entry in manifest["objects"])
    return {
        "objects": len(manifest["objects"]),
        "code, MB": code / 1e6,
        "bundle, MB": bundle.stat().st_size / 1e6,
        "verify, s": seconds,
        "code verified, MB/s": code / 1e6 / seconds,
        "help, s": statistics.median(run("--help", cache=folder / "cache") for _ in range(5)),
    }


def capture(*arguments: str) -> str:
    """Standard output of one `aotkern` command."""
    command = [sys.executable, "-m", "aotkern", *arguments]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


CACHE_SCRIPT = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from aotkern.build import compiler, registry
from aotkern.spec import expand
from aotkern.target import Target
kernels = registry.load([registry.Source.parse(sys.argv[2])])
for kernel in kernels:
    for key in expand(kernel.declaration, kernel.parameters, Target.parse("gfx942")):
        compiler.compile_variant(kernel, key)
"""


def size(count: int, folder: Path) -> dict[str, float]:
    """The bundle against Triton's own cache folder of the same variants, in bytes of files."""
    source = str(subset(count, folder))
    cache = folder / "triton"
    env = {
        **os.environ,
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    subprocess.run([sys.executable, "-c", CACHE_SCRIPT, str(HERE.parent), source], env=env, check=True)
    run("build", source, "-t", "gfx942", "-o", str(folder / "sized"), cache=folder / "cache")
    bundle = (folder / "sized" / "subset_kernels.gfx942.aotk").stat().st_size
    files = [path.stat().st_size for path in cache.rglob("*") if path.is_file()]
    return {"variants": count, "Triton cache, bytes": sum(files), "bundle, bytes": bundle, "share": bundle / sum(files)}


def main() -> None:
    """Run everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", type=int, default=200, help="for speed and size; a multiple of 100")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aotkern-bench-"))
    try:
        results = {
            "speed": speed(options.variants, folder),
            "rebuild": rebuild(folder),
            "verify": verify(folder),
            "size": size(options.variants, folder),
        }
    finally:
        shutil.rmtree(folder)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }
    for name, values in results.items():
        for what, value in values.items():
            print(f"{name:8}  {what:22}  {value:.4g}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "command": sys.argv, "results": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
