"""What a build and its bundle cost at many variants: measured rates, and what follows from them for 1,000,000.

    python benchmarks/scale.py [--sizes 1000 4000 10000] [--json FILE] [--no-dask]

Kernel declarations are planned, stored, put into manifests and bundles, verified and opened by the real code; only the
compiler is left out at these sizes: a code object is one that Triton compiled for the same kernel, with other bytes
in its last instructions' padding, so that all are distinct. Compile rates come from real compiles. Each size runs in
fresh processes, whose peak memory is told. Seconds are processor seconds of the process that does the work, which other
work on the machine disturbs little; where a build waits for its planning worker, they are called wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
MANY = HERE / "many_kernels.py"
SHARES = (40, 40, 50)
"""Values of STEP in `many_kernels`, for 1,000 variants of gfx942."""


def source(count: int, folder: Path) -> Path:
    """A kernel file with `count` variants for gfx942."""
    text = MANY.read_text()
    for before in sorted(set(SHARES)):
        text = text.replace(f"range({before})", f"range({before * count // 1000})")
    path = folder / "scaled_kernels.py"
    path.write_text(text.replace('("gfx942", "gfx950", "cuda:90")', '("gfx942",)'))
    return path


def clock() -> float:
    """Processor seconds of this process, all threads together."""
    return time.process_time()


def peak() -> int:
    """Peak resident bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Fake:
    """An executor that plans as usual and answers compiles from one compiled variant of each kernel."""

    def __init__(self, setting: Any) -> None:
        from aotkern.build.pool import Pool

        self._pool = Pool(setting, 1)
        self.times: dict[str, float] = {"plan": 0.0, "made up": 0.0, "kept": 0.0}

    def __enter__(self) -> Fake:
        self._pool.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)

    def plan(self, *arguments: Any) -> Any:
        started = time.perf_counter()
        result = self._pool.plan(*arguments)
        self.times["plan"] = time.perf_counter() - started
        self.times["after plan, bytes"] = peak()
        return result

    def compile(self, keys: Any, seconds: float, done: Any, failed: Any) -> None:
        from aotkern import codeobject
        from aotkern.digest import Digest

        del failed
        templates: dict[str, tuple[dict[str, Any], bytes, int]] = {}
        started = clock()
        for number, key in enumerate(keys):
            kernel = key.partition("[")[0]
            if kernel not in templates:
                made = self._pool.compile_one(key, seconds)
                templates[kernel] = (*made, end_of_code(made[1]))
            answer, template, end = templates[kernel]
            data = template[: end - 8] + number.to_bytes(8, "little") + template[end:]
            code = codeobject.read(data, "made up")
            row = {**answer, "digest": str(Digest.of(data)), "code": code.to_json()}
            between = clock()
            self.times["made up"] += between - started
            done(key, row, data)
            started = clock()
            self.times["kept"] += started - between


def end_of_code(data: bytes) -> int:
    """Where the code of an ELF ends; the last bytes before are padding."""
    import io

    from elftools.elf.elffile import ELFFile

    text = ELFFile(io.BytesIO(data)).get_section_by_name(".text")
    return int(text["sh_offset"] + text["sh_size"])


def build(count: int, folder: Path) -> dict[str, float]:
    """Plan, keep, assemble, publish; then the same again from the store."""
    from aotkern.build import builder
    from aotkern.build.executor import EXECUTORS
    from aotkern.build.registry import Source
    from aotkern.target import Target

    made: list[Fake] = []

    def fake(setting: Any, *_: Any) -> Fake:
        made.append(Fake(setting))
        return made[-1]

    EXECUTORS["fake"] = fake  # type: ignore[index]
    request = builder.Request(
        (Source.parse(str(source(count, folder))),),
        (Target.parse("gfx942"),),
        dict(os.environ),
        store=folder / "store",
        executor="fake",
        limit=1 << 30,
    )
    started = clock()
    result = builder.compile_targets(request)
    used = clock() - started
    assert not result.failures, result.failures[0]
    times = made[0].times
    ((_, target),) = result.targets.items()
    compiled = peak()
    started = clock()
    published = builder.publish(target, folder, "scaled", {})
    publish = clock() - started
    manifest = len(target.manifest.to_bytes())
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    files = [path.stat().st_size for path in (folder / "store").glob("??/*")]
    return {
        "variants": len(target.manifest.variants),
        "plan, wall s": times["plan"],
        "store and check, s": times["kept"],
        "assemble and trim, s": used - times["kept"] - times["made up"],
        "publish, s": publish,
        "memory after the plan, MB": times["after plan, bytes"] / 1e6,
        "memory when all is compiled, MB": compiled / 1e6,
        "memory after publishing, MB": peak() / 1e6,
        "memory of the planning worker, MB": children / 1e6,
        "code, MB": sum(map(len, target.objects.values())) / 1e6,
        "manifest, MB": manifest / 1e6,
        "bundle, MB": published.size / 1e6,
        "store, MB": sum(files) / 1e6,
    }


def reuse(count: int, folder: Path) -> dict[str, float]:
    """The same build with everything in the store."""
    from aotkern.build import builder
    from aotkern.build.registry import Source
    from aotkern.target import Target

    request = builder.Request(
        (Source.parse(str(folder / "scaled_kernels.py")),),
        (Target.parse("gfx942"),),
        dict(os.environ),
        store=folder / "store",
        limit=1 << 30,
    )
    started = clock()
    result = builder.compile_targets(request)
    assert result.reused == count, (result.reused, count)
    return {"from the store, s": clock() - started, "from the store, memory, MB": peak() / 1e6}


def verify(_: int, folder: Path) -> dict[str, float]:
    """`aotkern verify`, in this process."""
    from aotkern.bundle import Bundle

    started = clock()
    bundle = Bundle.open(folder / "scaled.gfx942.aotk")
    opened = clock()
    memory = peak()
    bundle.verify()
    return {
        "open, s": opened - started,
        "open, memory, MB": memory / 1e6,
        "verify, s": clock() - opened,
        "verify, memory, MB": peak() / 1e6,
    }


def dispatch(_: int, folder: Path) -> dict[str, float]:
    """The tables that choose variants, one choice, and one miss; all without a device."""
    from aotkern.arguments import Pointer
    from aotkern.bundle import Bundle
    from aotkern.dispatch import Choice, Miss, Table, Variant, choose

    manifest = Bundle.open(folder / "scaled.gfx942.aotk").manifest
    kernel = max(manifest.kernels, key=lambda row: sum(v.kernel == row.name for v in manifest.variants))
    started = clock()
    variants = [Variant(v.key, manifest.options[v.options]) for v in manifest.variants if v.kernel == kernel.name]
    keys = clock()
    table = Table.make(kernel.name, kernel.parameters, variants)
    made = clock()
    tables = sum(map(sys.getsizeof, {id(bits): bits for bits in table.families}.values()))
    tables += sum(sys.getsizeof(test.variants) for tests in table.tests for test in tests)

    def values(step: int) -> tuple[Any, ...]:
        given = {
            "x": Pointer(address=4096, element="fp32", storage_bytes=4096),
            "out": Pointer(address=4096, element="fp32", storage_bytes=4096),
            "n": 16,
            "factor": 1.0,
        }
        given |= {"columns": 16, "stride": 16, "BLOCK": 256, "STEP": step}
        return tuple(given[parameter.name] for parameter in kernel.parameters)

    def timed(step: int, kind: type) -> float:
        def once() -> float:
            begun = clock()
            assert isinstance(choose(table, values(step), {}), kind)
            return clock() - begun

        return statistics.median(once() for _ in range(5))

    return {
        "dispatch, variants of the kernel": len(variants),
        "dispatch, keys, s": keys - started,
        "dispatch, table, s": made - keys,
        "dispatch, bit sets, MB": tables / 1e6,
        "dispatch, first choice, ms": timed(1, Choice) * 1e3,
        "dispatch, miss, ms": timed(-5, Miss) * 1e3,
    }


def rate(folder: Path) -> dict[str, float]:
    """How long one worker process compiles a variant, start-up apart, and what real bundles hold; three builds."""
    from aotkern.build import builder
    from aotkern.build.registry import Source
    from aotkern.target import Target

    path = source(200, folder)
    seconds: list[float] = []
    for _ in range(3):
        request = builder.Request((Source.parse(str(path)),), (Target.parse("gfx942"),), dict(os.environ))
        result = builder.compile_targets(request)
        seconds.append(statistics.mean(result.seconds.values()))
    count = len(result.seconds)
    ((_, target),) = result.targets.items()
    published = builder.publish(target, folder, "real", {})
    return {
        "variants": count,
        "compile, wall s a variant": statistics.median(seconds),
        "code, bytes a variant": sum(map(len, target.objects.values())) / count,
        "manifest, bytes a variant": len(target.manifest.to_bytes()) / count,
        "bundle, bytes a variant": published.size / count,
    }


class Came:
    """Takes what was compiled, and counts."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __call__(self, key: str, answer: Any, data: bytes) -> None:
        assert (answer, len(data)) == (ANSWER, 8000)
        self.rows.append(key)


def echo(key: str, station: Any, seconds: float) -> Any:
    """A task that compiles nothing and returns as much as one that does."""
    from aotkern.build.dask_station import Outcome

    del station, key, seconds
    return Outcome("somewhere", ANSWER, bytes(8000))


ANSWER = {"code": {f"fact {number}": "x" * 40 for number in range(30)}}


def dask() -> dict[str, float]:
    """Seconds a task over the real driver loop and a real scheduler, with two worker processes; three runs."""
    from distributed import Client, LocalCluster

    from aotkern.build import dask_executor, toolchain
    from aotkern.build.dask_station import Job
    from aotkern.build.shipping import Shipment

    dask_executor.compile_variant = echo  # type: ignore[assignment]
    job = Job(Shipment({}, (), ()), {}, {}, str(toolchain.own()), {}, {})
    count, seconds, here = 2000, [], []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for _ in range(3):
            came: list[Any] = []
            run = dask_executor._Run(client, "here", job, 1.0, Came(came), came.append)
            started, used = time.perf_counter(), time.process_time()
            run.all([str(number) for number in range(count)])
            seconds.append((time.perf_counter() - started) / count)
            here.append((time.process_time() - used) / count)
            assert len(came) == count
    return {
        "tasks": count,
        "dask, wall s a task": statistics.median(seconds),
        "dask, s a task, driver and scheduler": statistics.median(here),
        "dask, memory, MB": peak() / 1e6,
    }


STAGES = {"build": build, "reuse": reuse, "verify": verify, "dispatch": dispatch}


def child(*arguments: str) -> dict[str, float]:
    """Run one stage in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--stage", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{arguments}\n{done.stdout}{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measured(sizes: list[int], with_dask: bool) -> dict[str, Any]:
    """All figures by size, and the rates."""
    rows: dict[str, Any] = {"sizes": {}}
    for size in sizes:
        folder = Path(tempfile.mkdtemp(prefix="aotkern-scale-"))
        try:
            row: dict[str, float] = {}
            for stage in STAGES:
                row |= child(stage, str(size), str(folder))
            rows["sizes"][size] = row
        finally:
            shutil.rmtree(folder)
    with tempfile.TemporaryDirectory() as place:
        rows["rate"] = child("rate", "0", place)
    if with_dask:
        rows["dask"] = child("dask", "0", ".")
    return rows


def growth(rows: dict[int, dict[str, float]], name: str) -> tuple[float, float]:
    """Exponent of the growth between the two largest sizes, and the value at the largest, for each variant."""
    import math

    small, large = sorted(rows)[-2:]
    first, second = rows[small][name], rows[large][name]
    power = math.log(second / first) / math.log(large / small) if first > 0 and second > 0 else 0.0
    return power, second / large


def at(rows: dict[int, dict[str, float]], name: str, count: int) -> float:
    """The line through the two largest sizes, at `count`; a parabola for what is known to grow with the square."""
    small, large = sorted(rows)[-2:]
    if name == "dispatch, bit sets, MB":
        return rows[large][name] * (count / large) ** 2
    slope = (rows[large][name] - rows[small][name]) / (large - small)
    return rows[large][name] + slope * (count - large)


def main() -> None:
    """Measure, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000, 10000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-dask", action="store_true")
    parser.add_argument("--stage", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        name, size, folder = options.stage
        if name in STAGES:
            result = STAGES[name](int(size), Path(folder))
        else:
            result = rate(Path(folder)) if name == "rate" else dask()
        print(json.dumps(result))
        return
    found = measured(options.sizes, not options.no_dask)
    rows = found["sizes"]
    print(" " * 48 + "".join(f"{size:>12}" for size in (*rows, "power", "1000000")))
    for name in rows[options.sizes[-1]]:
        cells = "".join(f"{row[name]:12.4g}" for row in rows.values())
        if len(rows) > 1:
            cells += f"{growth(rows, name)[0]:12.2f}{at(rows, name, 1_000_000):12.4g}"
        print(f"{name:48}{cells}")
    for part in ("rate", "dask"):
        for name, value in found.get(part, {}).items():
            print(f"{name:48}{value:12.4g}")
    if options.json:
        machine = {"processor": platform.processor() or platform.machine(), "cpus": os.cpu_count()}
        machine["python"] = platform.python_version()
        document = {"machine": machine, "command": sys.argv, **found}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
