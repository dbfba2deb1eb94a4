"""Kernel sources on their way to another machine: which files travel, and where they lie when they have arrived.

What travels is content: a package whole, and of a loose folder its Python files and packages, because a kernel file may
import those beside it. A source that is named as a module travels too, unless it is installed (in `site-packages`, or
with Python): what is installed is required where it is compiled, as Triton is. The kernels' digests say in the end
whether the same was found there.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path

from aotkern.build.registry import Source
from aotkern.build.traced import is_trace
from aotkern.errors import InputError
from aotkern.spec import named_in
from aotkern.trace import Trace

MAX_BYTES = 64 << 20
"""Most bytes of sources that travel."""

_IGNORED = ("__pycache__",)
_IGNORED_SUFFIXES = (".aotk", ".pyc")


@dataclass(frozen=True, slots=True)
class Shipment:
    """Sources as content.

    Attributes:
        files: Relative path, with `/`, and bytes of each file.
        sources: The sources, with paths relative to where the files are unpacked.
        paths: Folders, equally relative, in which modules of sources stand.
    """

    files: Mapping[str, bytes]
    sources: tuple[Source, ...]
    paths: tuple[str, ...]


def root_of(path: Path) -> Path:
    """The folder that belongs to a kernel file or folder: its outermost package, or the loose folder around it."""
    root = path if path.is_dir() else path.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    return root


def files_of(root: Path) -> Iterator[Path]:
    """What of such a folder travels; links are followed."""
    whole = (root / "__init__.py").is_file()
    for path in sorted(root.iterdir()):
        if _ignored(path.name):
            continue
        if path.is_file() and (whole or path.suffix == ".py"):
            yield path
        elif path.is_dir() and (whole or (path / "__init__.py").is_file()):
            yield from _everything(path)


def _everything(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not _ignored(name))
        yield from (Path(place, name) for name in sorted(names) if not _ignored(name))


def _ignored(name: str) -> bool:
    return name.startswith(".") or name in _IGNORED or name.endswith(_IGNORED_SUFFIXES)


def packed(sources: Iterable[Source]) -> Shipment:
    """Read what travels of these sources.

    Raises:
        InputError: It is more than `MAX_BYTES`, or cannot be read.
    """
    files: dict[str, bytes] = {}
    moved: list[Source] = []
    paths: list[str] = []
    for number, source in enumerate(sources):
        place = f"source{number}"
        if source.path is None:
            paths += _module(source.name, place, files)
            moved.append(source)
        elif is_trace(source):
            _add(files, ((f"{place}/{source.path.name}", source.path),))
            moved.append(replace(source, path=Path(place, source.path.name)))
            for top in _modules_of(source.path):
                paths += _module(top, f"{place}/{top}", files)
        else:
            path = source.path.resolve()
            root = root_of(path)
            _add(files, _renamed(root, f"{place}/{root.name}"))
            moved.append(replace(source, path=Path(place, root.name) / path.relative_to(root)))
    return Shipment(files, tuple(moved), tuple(paths))


def _add(files: dict[str, bytes], rows: Iterable[tuple[str, Path]]) -> None:
    total = sum(map(len, files.values()))
    for name, path in rows:
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise InputError.one(str(path), "a source that can be read", error.strerror or str(error)) from error
        total += len(files[name])
        if total > MAX_BYTES:
            expected = f"at most {MAX_BYTES >> 20} MiB of kernel sources to send to other machines"
            raise InputError.one(str(path.parent), expected, "more; put the kernels into a folder of their own")


def _renamed(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    return ((f"{name}/{path.relative_to(root).as_posix()}", path) for path in files_of(root))


def _modules_of(trace: Path) -> list[str]:
    """The top-level modules in which the kernels of a trace, and functions handed to them, are defined.

    A generated module is none of them, since its text is in the trace; those that the text imports are.
    """
    rows = Trace.parse(trace.read_bytes(), str(trace)).recorded
    texts = {row.module: row.text for row in rows if row.text}
    names = {name for row in rows for name in (row.module, *(of.module for of in named_in(row.key)))} - texts.keys()
    names.update(name for text in texts.values() for name in _imported(text))
    return sorted({name.partition(".")[0] for name in names})


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _module(name: str, place: str, files: dict[str, bytes]) -> list[str]:
    """Add the files of a module that is not installed; the folder to import it from, or nothing."""
    top = name.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or _installed(spec):
        return []
    if spec.submodule_search_locations is None:
        _add(files, _renamed(Path(str(spec.origin)).resolve().parent, place))
    for location in spec.submodule_search_locations or ():
        # By the name it is imported as, which need not be that of its folder.
        root = Path(location)
        _add(files, ((f"{place}/{top}/{path.relative_to(root).as_posix()}", path) for path in _everything(root)))
    return [place]


def _installed(spec: ModuleSpec) -> bool:
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    known = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for place in map(Path, places):
        inside = place.resolve()
        if {"site-packages", "dist-packages"} & set(inside.parts) or any(root in inside.parents for root in known):
            return True
    return spec.origin in ("built-in", "frozen")


def unpacked(shipment: Shipment, folder: Path) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Write the files into an empty folder; the sources and import paths there.

    Raises:
        InputError: A path leads out of the folder.
    """
    for name, data in shipment.files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise InputError.one(name, "a path inside the shipment", "one that leads out of it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sources = tuple(replace(s, path=folder / s.path if s.path else None) for s in shipment.sources)
    return sources, tuple(str(folder / path) for path in shipment.paths)
