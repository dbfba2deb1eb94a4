"""Size: bundles beside Triton's cache folder, zips and per-file zstd of the same variants.

    python -m benchmarks size

Triton's cache folder is what a plain loop over `triton.compile` leaves behind. The zip and the per-file zstd of code
objects hold each distinct code object once, and the manifest; the zip of the cache folder holds all that is in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from aotkern.bench import Bar, Measurement, Row, Run, Table, bundles, observed, plain, processes
from aotkern.build import environment as pinning
from aotkern.bundle import Bundle
from aotkern.target import Target
from benchmarks import common
from benchmarks.common import Options

COUNTS = (24, 200, 1000)
TARGET = Target.parse("gfx942")


def measure(options: Options) -> Run:
    common.needs("triton")
    observation = observed("size", common.command("size", options))
    counts = COUNTS[:1] if options.quick else COUNTS
    rows = tuple(row_of(count, options) for count in counts)
    columns = ("variants", "code objects", "Triton's cache folder", "zip of it", "objects + manifest", "zip",
               "zstd each", "bundle", "bundle / folder")  # fmt: skip
    table = Table("bytes of files, gfx942", columns, rows)
    worst = max(common.median(table, row.name, "bundle / folder") for row in rows)
    what = f"bundle against Triton's cache folder, {counts[0]} to {counts[-1]} variants, the largest share"
    return observation.run((table,), (Bar(what, "%", 3, at_most=True, measured=worst),))


def row_of(count: int, options: Options) -> Row:
    """The same variants in every form."""
    source = str(common.subset(count, options.folder))
    cache = options.folder / f"triton-{count}"
    private = {"TRITON_CACHE_DIR": str(cache), "TRITON_HOME": str(options.folder)}
    environment = {**processes.with_this_aotkern(os.environ), **pinning.pinned(), **private}
    processes.run(plain.command(TARGET, (), (source,)), environment)
    where = ("-t", str(TARGET), "-o", str(options.folder), "--name", f"sized{count}")
    processes.run(processes.aotkern("build", source, *where), common.environment(options.shared / "cache"))
    bundle = Bundle.open(options.folder / f"sized{count}.gfx942.aotk")
    contents = {str(path.relative_to(cache)): path.read_bytes() for path in files(cache)}
    folder, found = sum(map(len, contents.values())), bundles.sizes(bundle)
    packed = (folder, len(bundles.zipped(contents)), found.files, found.zipped, found.zstd, found.bundle)
    share = Measurement.single("%", 100 * found.bundle / folder)
    cells = (str(len(bundle.manifest.objects)), *(Measurement.single("B", size) for size in packed), share)
    return Row(str(count), cells)


def files(folder: Path) -> list[Path]:
    """All files of a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
