"""Where a worker's kernel sources come from: which files it read, and, for a git revision, from where it imports.

A baseline is compiled from an exported revision. What belongs to the repository must then come from the export, however
Python would find it: by the import path, by an editable installation, by a namespace package, at import or in the
middle of a compile. `Redirect` sees to that for imports; `Reads` notes every file that is opened, so that whatever came
from elsewhere all the same can be named.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from aotkern.digest import Digest

_TOOLS = ("aotkern", "triton")
"""Packages that judge and compile: they are what they are, and named by the toolchain and aotkern's own digest."""

_METADATA = (".egg-info", ".dist-info")


@dataclass(frozen=True)
class Moved:
    """A work tree whose modules are to come from an export of one of its revisions.

    Attributes:
        tree: Top folder of the work tree, without links.
        export: Folder of the export, without links.
        ignored: What git ignores in the work tree, relative to it; folders end in `/`.
    """

    tree: str
    export: str
    ignored: tuple[str, ...] = ()


@dataclass
class Origins:
    """What workers read.

    Attributes:
        files: Every file that a kernel source or an import of it opened, with the digest of its content then. What is
            installed, and what belongs to Python, Triton or aotkern, is left out.
        modules: The file of every imported module, by name; Python's own, Triton's and aotkern's are left out.
    """

    files: dict[str, Digest] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def add(self, news: Mapping[str, Any]) -> None:
        """Take in what a worker says (see `Reads.news`). A file that changed in between counts as no known content."""
        for path, text in news.get("files", ()):
            digest = Digest.parse(text)
            self.files[path] = digest if self.files.get(path, digest) == digest else Digest.of(b"several contents")
        self.modules.update(news.get("modules", ()))

    def merge(self, other: Origins) -> None:
        """Take in what another worker read."""
        self.add({"files": [(path, str(digest)) for path, digest in other.files.items()], "modules": other.modules})


@cache
def _installed_roots() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.realpath(sysconfig.get_path(name)) for name in names})


@cache
def _tool_roots() -> tuple[str, ...]:
    specs = map(importlib.util.find_spec, _TOOLS)
    return tuple(os.path.realpath(os.path.dirname(str(spec.origin))) for spec in specs if spec)  # noqa: PTH120


def inside(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or lies in one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def installed(path: str) -> bool:
    """Whether a file is installed: by a package manager, with Python, or as part of what judges and compiles."""
    parts = path.split("/")
    apart = "site-packages" in parts or "dist-packages" in parts
    return apart or inside(path, _installed_roots()) or inside(path, _tool_roots())


@cache
def repository_of(folder: str) -> str:
    """The top of the work tree that a folder lies in; empty outside of any."""
    while not os.path.lexists(os.path.join(folder, ".git")):  # noqa: PTH118 - asked for every file that is read
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return ""
        folder = parent
    return folder


class Reads:
    """Every file that this process opens to read, from now on.

    Args:
        besides: Folders whose files do not count.
    """

    def __init__(self, besides: Sequence[str]) -> None:
        self._besides = tuple(map(os.path.realpath, besides))
        self._new: set[str] = set()
        self._told: set[str] = set()
        self._modules: set[str] = set()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, (str, bytes)) and not (isinstance(flags, int) and flags & os.O_WRONLY):
                self._new.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100
        elif event == "import" and isinstance(args[1], str):  # a shared object, which the linker opens
            self._new.add(os.path.abspath(args[1]))  # noqa: PTH100

    def news(self) -> dict[str, Any]:
        """What was read and imported since this was asked last; empty when nothing was."""
        new, self._new = self._new, set()
        paths = sorted({os.path.realpath(path) for path in new} - self._told)
        self._told.update(paths)
        files = [[path, str(Digest.of(Path(path).read_bytes()))] for path in paths if self._counts(path)]
        self._new.difference_update(paths)  # which were opened just now, to hash them
        modules = {name: path for name, path in _modules() if name not in self._modules}
        self._modules.update(modules)
        found = {"files": files, "modules": modules}
        return {name: rows for name, rows in found.items() if rows}

    def _counts(self, path: str) -> bool:
        if inside(path, self._besides) or installed(path) or inside(path, ("/proc", "/sys", "/dev")):
            return False
        metadata = any(part.endswith(_METADATA) for part in path.split("/"))
        return not metadata and os.path.isfile(path)  # noqa: PTH113


def _modules() -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and top not in sys.stdlib_module_names and top not in _TOOLS:
            rows.append((name, os.path.realpath(file)))
    return rows


class Redirect(importlib.abc.MetaPathFinder):
    """A finder before all others: what they find in a work tree is taken from the export instead.

    Args:
        moved: The work trees.
    """

    def __init__(self, moved: Sequence[Moved]) -> None:
        self._moved = sorted(moved, key=lambda row: -len(row.tree))  # a submodule before what it lies in
        self._searching = threading.local()

    def install(self) -> None:
        """Begin, and look for modules at the export's places of the import path."""
        sys.path[:] = [self.place(path) or path for path in sys.path]
        sys.meta_path.insert(0, self)

    def place(self, path: str) -> str | None:
        """Where a file or folder of a work tree stands in the export, whether it is there or not; None for all others.

        A file that git ignores and the revision does not have is none of either: it stays where it is.
        """
        real = os.path.realpath(path)
        row = next((row for row in self._moved if inside(real, (row.tree,))), None)
        if row is None or inside(real, [other.export for other in self._moved]) or installed(real):
            return None
        if repository_of(real if os.path.isdir(real) else os.path.dirname(real)) != row.tree:  # noqa: PTH112, PTH120
            return None  # a repository inside of this one, which the revision does not hold
        inner = os.path.relpath(real, row.tree)
        there = os.path.normpath(os.path.join(row.export, inner))  # noqa: PTH118
        if not os.path.exists(there) and _ignored(inner, row.ignored):  # noqa: PTH110
            return None
        return there

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ask the other finders, and move what they find."""
        active: set[str] = self._searching.__dict__.setdefault("names", set())
        if fullname in active:
            return None
        active.add(fullname)
        try:
            others = (finder for finder in list(sys.meta_path) if finder is not self and hasattr(finder, "find_spec"))
            found = (finder.find_spec(fullname, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            active.discard(fullname)
        return self._there(spec) if spec is not None else self._left_behind(fullname, path)

    def _left_behind(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """A module of a package in the export that git ignores: it stands in the work tree alone."""
        trees = [
            os.path.join(row.tree, os.path.relpath(folder, row.export))  # noqa: PTH118
            for folder in map(os.path.realpath, path or ())
            for row in self._moved
            if inside(folder, (row.export,))
        ]
        spec = importlib.machinery.PathFinder.find_spec(name, trees) if trees else None
        stays = spec is not None and spec.has_location and spec.origin and self.place(spec.origin) is None
        return spec if stays else None

    def _there(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        folders = spec.submodule_search_locations
        moved = None if folders is None else [self.place(folder) or folder for folder in folders]
        there = self.place(spec.origin) if spec.has_location and spec.origin else None
        if there is None:
            if moved is None or moved == list(folders or ()):
                return spec
            if not spec.has_location:  # a namespace package: of its folders, those that the revision has
                moved = [folder for folder in moved if os.path.isdir(folder)]  # noqa: PTH112
                if not moved:
                    raise _absent(spec.name)
                spec = importlib.machinery.ModuleSpec(spec.name, None, is_package=True)
            spec.submodule_search_locations = moved
            return spec
        if not os.path.isfile(there):  # noqa: PTH113
            raise _absent(spec.name)
        made = importlib.util.spec_from_file_location(spec.name, there, submodule_search_locations=moved)
        if made is None:
            raise _absent(spec.name)
        return made


def _absent(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r} in the revision that is compiled", name=name)


def _ignored(inner: str, ignored: Iterable[str]) -> bool:
    return any(inner == row or (row.endswith("/") and f"{inner}/".startswith(row)) for row in ignored)
