"""What bundles cost their users: size, verification, opening, choosing a variant, loading.

In this process, on the files as they are. Sizes stand beside a zip and per-file zstd of the same code objects with the
manifest, which is what one would ship without aotkern. Times of a device are measured where there is one that the
bundle fits; on the null driver loads and launches go nowhere, and what remains is the loader's own work.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

import aotkern
from aotkern.arguments import Pointer
from aotkern.bench.measurement import Measurement
from aotkern.bench.record import Cell, Row, Table
from aotkern.bench.timing import Sampler, interleaved, timed
from aotkern.bundle import LEVEL, Bundle
from aotkern.errors import AotkernError
from aotkern.loader.choosing import load_one
from aotkern.spec import ArgumentSpec, Fixed, Group

_BURST = 20
_LAUNCH_ROUNDS = 50
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the same content, packed in several ways.

    Attributes:
        files: The code objects, each once, and the manifest, as they are.
        zipped: One zip of them, deflated as well as zlib can.
        zstd: Each compressed on its own, with the bundle's zstd level.
        bundle: The bundle.
    """

    files: int
    zipped: int
    zstd: int
    bundle: int


def sizes(bundle: Bundle) -> Sizes:
    """How large a bundle's content is in other forms.

    Raises:
        IntegrityError: Its content is not what its manifest says.
    """
    contents = dict(_contents(bundle))
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    return Sizes(
        sum(map(len, contents.values())),
        len(zipped(contents)),
        sum(len(compressor.compress(data)) for data in contents.values()),
        len(bundle.data),
    )


def _contents(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    yield "manifest.json", bundle.manifest.to_bytes()
    for entry in bundle.manifest.objects:
        yield f"{entry.digest.hex}.bin", bundle.object(entry.digest)


def zipped(contents: dict[str, bytes]) -> bytes:
    """A zip of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), data, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def measure(paths: list[Path], rounds: int) -> tuple[Table, ...]:
    """Size, verification and loading of these bundles, which take turns in each round.

    Raises:
        InputError: A file cannot be read.
        IntegrityError: One does not verify.
    """
    names = [path.name for path in paths]
    labels = dict(zip(names if len(set(names)) == len(names) else map(str, paths), paths, strict=True))
    bundles = {label: Bundle.open(path) for label, path in labels.items()}
    for bundle in bundles.values():
        bundle.verify()
    size = [Row(name, _size_cells(bundle, sizes(bundle))) for name, bundle in bundles.items()]
    columns = ("file", "variants", "objects", "objects + manifest", "zip", "zstd each", "bundle", "share")
    return (
        Table("size", columns, tuple(size)),
        _verification(bundles, labels, rounds),
        *_loading(bundles, labels, rounds),
    )


def _size_cells(bundle: Bundle, found: Sizes) -> tuple[Cell, ...]:
    counts = (len(bundle.manifest.variants), len(bundle.manifest.objects))
    packed = (found.files, found.zipped, found.zstd, found.bundle)
    share = Measurement.single("%", 100 * found.bundle / found.files)
    return (
        *map(str, counts),
        *(Measurement.single("B", count) for count in packed),
        share,
    )


def _verification(bundles: Mapping[str, Bundle], paths: Mapping[str, Path], rounds: int) -> Table:
    """Opening checks every hash; verification reads every code object and holds it against the manifest."""
    code = {name: sum(entry.size for entry in bundle.manifest.objects) for name, bundle in bundles.items()}
    opening = interleaved({name: timed(partial(Bundle.open, paths[name]), scale=1e3) for name in bundles}, rounds, 1)
    whole = interleaved({name: timed(partial(_verified, paths[name])) for name in bundles}, rounds, 1)
    rows = [
        Row(
            name,
            (
                Measurement.of("ms", opening[name]),
                Measurement.of("ms", (1e3 * sample for sample in whole[name])),
                Measurement.of("MB/s", (code[name] / 1e6 / sample for sample in whole[name])),
            ),
        )
        for name in bundles
    ]
    return Table("verification", ("file", "open, all hashes", "open and verify", "code verified"), tuple(rows))


def _verified(path: Path) -> None:
    Bundle.open(path).verify()


def _loading(bundles: Mapping[str, Bundle], paths: Mapping[str, Path], rounds: int) -> tuple[Table, ...]:
    """Open and load every variant, on the null driver and on a device where one fits; then launch on the null driver.

    Modules stay on a device that they were loaded onto, as they do in a program.
    """
    samplers: dict[str, Sampler] = {}
    launches: dict[str, Sampler] = {}
    absent: list[Row] = []
    for name, bundle in bundles.items():
        target = str(bundle.manifest.target)
        samplers[f"{name}, null driver"] = _loader(paths[name], f"null:{target}")
        device = f"{name}, {bundle.manifest.target.backend} device"
        try:
            aotkern.load(paths[name])
            samplers[device] = _loader(paths[name], None)
        except AotkernError as error:
            absent.append(Row(device, (None,), f"not measured: {' '.join(str(error).split())[:200]}"))
        launches.update(_launches(name, paths[name], target))
    loaded = interleaved(samplers, rounds, 1)
    rows = [Row(name, (Measurement.of("ms", samples),)) for name, samples in loaded.items()]
    launched = interleaved(launches, max(rounds, _LAUNCH_ROUNDS), 3)
    bursts = [Row(name, (Measurement.of("us", samples),)) for name, samples in launched.items()]
    return (
        Table("open, check every hash, load every variant", ("file and driver", "time"), (*rows, *absent)),
        Table(
            "launch on the null driver: read the arguments, choose, pack", ("file and kernel", "time"), tuple(bursts)
        ),
    )


def _loader(path: Path, device: str | None) -> Sampler:
    return timed(lambda: aotkern.load(path, device=device).preload(), scale=1e3)


def _launches(label: str, path: Path, target: str) -> Iterator[tuple[str, Sampler]]:
    """For each kernel a burst of launches of its first variant, with arguments that are made up to fit it.

    No real device is asked to run them, since what code does with made-up arguments is anybody's guess.
    """
    loaded = load_one(path, device=f"null:{target}")
    for kernel in loaded.manifest.kernels:
        key = next(entry.key for entry in loaded.manifest.variants if entry.kernel == kernel.name)
        arguments = {parameter: made_up(spec) for parameter, spec in key.arguments}
        options = {option: constant.value for option, constant in key.options}
        launch = partial(loaded[kernel.name][(1,)], **arguments, **options)
        yield f"{label}, {kernel.name}", timed(launch, times=_BURST, scale=1e6)


def made_up(spec: ArgumentSpec) -> Any:
    """An argument that a variant with this specification serves."""
    if isinstance(spec, Group):
        return tuple(made_up(item) for item in spec.items)
    if isinstance(spec, Fixed):
        return spec.constant
    if spec.is_pointer:
        return Pointer(1 << 20 if spec.divisible else (1 << 20) + 8, spec.element, 4096 if spec.small else 1 << 32)
    if spec.type.startswith(("fp", "bf")):
        return 0.5
    if spec.type in ("u1", "i1"):
        return True
    large = {"i64": 1 << 40, "u64": 1 << 63}.get(spec.type, 32)
    return large if spec.divisible else large + 1
