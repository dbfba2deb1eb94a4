"""Scale: what a build and its bundle cost at many variants, and what follows from it for 1,000,000.

    python -m benchmarks scale

Kernel declarations are planned, stored, put into manifests and bundles, verified and opened by the real code; only the
compiler is left out at these sizes: a code object is one that Triton compiled for the same kernel, with other bytes
in its last instructions' padding, so that all are distinct. Compile rates come from real compiles. Each size runs in
fresh processes, whose peak memory is told. Seconds are processor seconds of the process that does the work, which other
work on the machine disturbs little; where a build waits for its planning worker, they are called wall seconds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotkern.bench import Measurement, Row, Run, Table, observed, processes
from benchmarks import common
from benchmarks.common import MANY, Options

SIZES = (1000, 4000, 10_000)
FAR = 1_000_000
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

    @property
    def origins(self) -> Any:
        return self._pool.origins

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
    files = [path.stat().st_size for path in (folder / "store").glob("aotkern-store/??/*")]
    return {
        "variants": len(target.manifest.variants),
        "plan, wall s": times["plan"],
        "check and store results, s": times["kept"],
        "assemble the manifest, trim the store, s": used - times["kept"] - times["made up"],
        "write the bundle and verify it, s": publish,
        "memory after the plan, MB": times["after plan, bytes"] / 1e6,
        "memory when all is compiled, MB": compiled / 1e6,
        "memory after the bundle was written, MB": peak() / 1e6,
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
    return {"the build again from the store, s": clock() - started}


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
        "variants of the largest kernel": len(variants),
        "its dispatch table with the keys, s": made - started,
        "its bit sets, MB": tables / 1e6,
        "its first choice in Python, ms": timed(1, Choice) * 1e3,
        "a miss, explained, ms": timed(-5, Miss) * 1e3,
    }


def rate(_: int, folder: Path) -> dict[str, float]:
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
        "compile, wall ms": statistics.median(seconds) * 1e3,
        "code, B": sum(map(len, target.objects.values())) / count,
        "manifest, B": len(target.manifest.to_bytes()) / count,
        "bundle, B": published.size / count,
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


def dask(*_: Any) -> dict[str, float]:
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
        "a task of Dask, wall ms": statistics.median(seconds) * 1e3,
        "of it driver and scheduler, ms": statistics.median(here) * 1e3,
    }


STAGES = {"build": build, "reuse": reuse, "verify": verify, "dispatch": dispatch}
RATES = {"rate": rate, "dask": dask}


def child(stage: str, size: int, folder: Path) -> dict[str, float]:
    """Run one stage in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale", stage, str(size), str(folder)]
    printed = processes.run(command, processes.with_this_aotkern(os.environ), common.ROOT)
    result: dict[str, float] = json.loads(printed.splitlines()[-1])
    return result


def measure(options: Options) -> Run:
    common.needs("triton")
    observation = observed("scale", common.command("scale", options), ("distributed",))
    columns: dict[int, dict[str, float]] = {}
    for size in SIZES[:1] if options.quick else SIZES:
        folder = options.folder / str(size)
        folder.mkdir()
        columns[size] = {name: value for stage in STAGES for name, value in child(stage, size, folder).items()}
    names = [name for name in columns[SIZES[0]] if name != "variants"]
    title = "the real code for one target and three kernels, compiles left out"
    headings = ("", *(f"{size:,} variants" for size in columns), *(() if options.quick else (f"a line to {FAR:,}",)))
    sizes = Table(title, headings, tuple(row(name, columns) for name in names))
    rates = [name for name in RATES if name != "dask" or importlib.util.find_spec("distributed")]
    found = {name: value for stage in rates for name, value in child(stage, 0, options.folder).items()}
    each = Table("a variant", ("", "each"), tuple(Row(plain(name), (cell(name, v),)) for name, v in found.items()))
    notes = (
        "Seconds are processor seconds, except where they are called wall.",
        f"{FAR:,}: the line through the two largest sizes, a parabola for bit sets; what today's code would need.",
    )
    return observation.run((sizes, each), notes=notes[: 1 if options.quick else 2])


def plain(name: str) -> str:
    """The name of a figure without its unit."""
    what, _, unit = name.rpartition(", ")
    return (f"{what}, wall" if unit.startswith("wall ") else what) or name


def cell(name: str, value: float) -> Measurement | str:
    """A figure in the unit that ends its name; a count without one."""
    unit = name.rpartition(", ")[2].split()[-1] if ", " in name else ""
    return Measurement.single(unit, value) if unit else f"{value:,.0f}"


def row(name: str, columns: Mapping[int, Mapping[str, float]]) -> Row:
    """One figure at all sizes, and where there are two, what it comes to at `FAR`."""
    cells = [cell(name, figures[name]) for figures in columns.values()]
    return Row(plain(name), (*cells, *([cell(name, far(name, columns))] if len(columns) > 1 else [])))


def far(name: str, columns: Mapping[int, Mapping[str, float]]) -> float:
    """The line through the two largest sizes, at `FAR`; a parabola for what is known to grow with the square."""
    small, large = sorted(columns)[-2:]
    first, second = columns[small][name], columns[large][name]
    if name == "its bit sets, MB":
        return second * (FAR / large) ** 2
    return second + (second - first) / (large - small) * (FAR - large)


if __name__ == "__main__":
    print(json.dumps({**STAGES, **RATES}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))))
