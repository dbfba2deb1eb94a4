"""Kernel sources of a git revision, exported into a folder of their own; and what a build can say of its own sources.

Two questions are asked of what the workers read (`origins.Origins`). Of a build: is it what a commit holds? Of a
baseline: did anything of the repository come from outside of the revision?
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from aotkern.build import git
from aotkern.build.git import Tree
from aotkern.build.origins import Moved, Origins, inside, installed, repository_of
from aotkern.build.registry import Source
from aotkern.digest import Digest
from aotkern.errors import InputError, MissingToolError

_NAMED = 3
"""How many files a sentence names before it counts the others."""


@dataclass(frozen=True)
class Export:
    """Sources as they were at a revision.

    Attributes:
        sources: The sources there.
        commit: The full name of the commit.
        moved: The work trees, and where their files are instead.
    """

    sources: tuple[Source, ...]
    commit: str
    moved: tuple[Moved, ...]


def export(sources: Sequence[Source], revision: str, into: Path) -> Export:
    """Write the tree of a revision, with its submodules, and find the sources in it.

    Nothing of the repository is changed. All sources must lie in one repository.

    Args:
        sources: Sources with a place inside a git repository.
        revision: Anything that names a commit.
        into: An empty folder.

    Raises:
        InputError: Not in a repository or in several, no such revision, or a source did not exist then.
        MissingToolError: git is not installed.
    """
    into = into.resolve()
    paths = [located(source) for source in sources]
    tops = sorted({git.top_of(path) for path in paths})
    if len(tops) > 1:
        raise InputError.one("KERNELS", "kernels of one git repository", " and ".join(map(str, tops)))
    (top,) = tops
    asked = ("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    commit = git.git(top, *asked).decode().strip()
    moved = tuple(_written(top, commit, into / "tree", into))
    then: list[Source] = []
    for source, path in zip(sources, paths, strict=True):
        inner = path.relative_to(top)
        there = into / "tree" / inner
        if not there.exists():
            raise InputError.one(f"{inner} at {revision}", "the kernel source", "nothing there")
        # A module keeps its name: the workers import it, and are led into the export.
        then.append(Source(source.name, there if source.path else None, source.allow_stale))
    return Export(tuple(then), commit, moved)


def _written(top: Path, commit: str, tree: Path, scratch: Path) -> Iterator[Moved]:
    """Write one commit's files, then its submodules where the work tree has them."""
    tree.mkdir(parents=True, exist_ok=True)
    # An index of its own. Not `git archive`, which leaves out what `export-ignore` names.
    index = scratch / f"index-{len(list(scratch.glob('index-*')))}"
    plain = ("-c", "core.sparseCheckout=false", "-c", "core.fsmonitor=false", f"--work-tree={top}")
    git.git(top, *plain, "read-tree", commit, index=index)
    git.git(top, *plain, "checkout-index", "--all", "--force", "--quiet", f"--prefix={tree}/", index=index)
    yield Moved(str(top), str(tree), git.ignored(top))
    for name, inner in Tree.of(top, commit).submodules.items():
        if repository_of(str(top / name)) == str(top / name):  # else it is not checked out, and nothing comes from it
            yield from _written(top / name, inner, tree / name, scratch)


def located(source: Source) -> Path:
    """The file or folder of a source.

    Raises:
        InputError: It is a module that is installed, or has no place in the file system.
    """
    if source.path is not None:
        return source.path.resolve()
    place = _module_place(source.name)
    if place is None or installed(str(place)):
        expected = "a kernel file or folder, or a module in a git repository, because only those have revisions"
        found = f"a module at {place}" if place else "no file of this name, so that it is taken for a module"
        raise InputError.one(source.name, expected, found)
    return place


def _module_place(name: str) -> Path | None:
    """Where a module is, found without importing it or a package around it."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return Path(spec.origin).resolve() if spec.has_location and spec.origin and not inner else None
    for folder in map(Path, spec.submodule_search_locations):
        place = folder.joinpath(*inner).resolve()
        if place.is_dir():
            return place
        if inner and place.with_name(f"{place.name}.py").is_file():
            return place.with_name(f"{place.name}.py")
    return None


def strangers(moved: Sequence[Moved], origins: Origins) -> str:
    """What a baseline took from outside of its revision, in words; nothing if all of the repository came from it."""
    trees, exports = [row.tree for row in moved], [row.export for row in moved]
    read = [
        path
        for path in origins.files
        if inside(path, trees) and not inside(path, exports) and repository_of(str(Path(path).parent)) in trees
    ]
    names = {path: name for name, path in origins.modules.items()}
    found = [f"{names.get(path, Path(path).name)} ({path})" for path in sorted(read)]
    for row in moved:
        then = [str(path.relative_to(row.export)) for path in Path(row.export).rglob("*.py")]
        found += _copies(Path(row.export), then, origins, exports)
    return _sentence(found, "outside the revision")


def copies(sources: Sequence[Source], origins: Origins) -> str:
    """What a build took from other places although its repository has it, in words; nothing where there is none."""
    tops = set()
    for source in sources:
        try:
            tops.add(git.top_of(located(source)))
        except (InputError, MissingToolError):
            continue  # no repository, so there is nothing that it could have instead
    found: list[str] = []
    for top in sorted(tops):
        found += _copies(top, git.current(top), origins, [str(top)], git.followed(top))
    return _sentence(found, "outside the work tree")


def _sentence(found: Sequence[str], whence: str) -> str:
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more} came from {whence}"


def _copies(
    top: Path,
    names: Sequence[str],
    origins: Origins,
    own: Sequence[str],
    followed: Set[str] | None = None,
) -> list[str]:
    """Imported modules that a tree has too, under the same name and with other content.

    Args:
        top: The tree.
        names: Its files.
        origins: What the workers read.
        own: Folders that modules of this tree are imported from.
        followed: Those of the files that git follows; None if it is all of them.
    """
    there = {name for name in names if name.endswith(".py")}
    followed = there if followed is None else followed
    by_ending: dict[str, list[str]] = {}
    for name in there:
        by_ending.setdefault(name.rpartition("/")[2], []).append(name)
    found: list[str] = []
    for module, path in sorted(origins.modules.items()):
        if (inside(path, own) and not installed(path)) or not path.endswith(".py"):
            continue
        ending = module.replace(".", "/") + ("/__init__.py" if Path(path).name == "__init__.py" else ".py")
        same = [
            name
            for name in by_ending.get(ending.rpartition("/")[2], ())
            if (name == ending or name.endswith(f"/{ending}")) and _is_root(name.removesuffix(ending), ending, there)
        ]
        # What git follows is the source: `pip install .` leaves a copy of what it installed in `build/lib`, too.
        sources = [name for name in same if name in followed]
        enough = any if sources else all
        if same and not enough(_content(top / name) == _content(Path(path)) for name in sources or same):
            found.append(f"{module} ({path})")
    return found


def _is_root(folder: str, ending: str, there: set[str]) -> bool:
    """Whether a folder of a tree can be one that modules are imported from: it is not inside of a package itself."""
    if f"{folder}__init__.py" in there:
        return False
    return "/" in ending or folder in ("", "src/", "lib/", "python/")  # loose files have too common names elsewhere


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def describe(source: Source, origins: Origins) -> dict[str, str]:
    """Commit and state of what was built, for the provenance of a bundle; empty outside of git.

    `sources` is "as committed" only if the commit holds every file that the workers read in the repository, as they
    read it; else it is "modified", and `modified` names files. `outside` names imported modules that are neither in the
    repository nor installed.

    Args:
        source: The first source: its repository is meant.
        origins: What the workers read.
    """
    try:
        path = source.path or _imported(source.name, origins)
        if path is None:
            return {}
        top = git.top_of(path)
        commit = git.git(top, "rev-parse", "HEAD").decode().strip()
        tree = Tree.of(top, commit)
        changed = sorted(_changed(top, tree, origins.files))
    except (InputError, MissingToolError):
        return {}
    changed += [row.partition(" ")[0] for row in _copies(top, tuple(tree.files), origins, [str(top)])]
    facts = {"revision": commit, "sources": "modified" if changed else "as committed"}
    if changed:
        facts["modified"] = _list(changed)
    if outside := sorted(name for name, place in origins.modules.items() if _elsewhere(place, top)):
        facts["outside"] = _list(outside)
    return facts


def _imported(name: str, origins: Origins) -> Path | None:
    found = origins.modules.get(name)
    return Path(found) if found and not installed(found) else None


def _elsewhere(path: str, top: Path) -> bool:
    return not inside(path, [str(top)]) and not installed(path)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _changed(top: Path, tree: Tree, files: Mapping[str, Digest]) -> Iterator[str]:
    """The files that a commit does not hold as they were read, by path inside its work tree; errors as for `git`."""
    mine = [path for path in files if repository_of(str(Path(path).parent)) == str(top)]
    names = {os.path.relpath(path, top): path for path in mine}
    now = {name: _content(Path(path)) for name, path in names.items()}
    held = [name for name in names if name in tree.files and now[name] is not None and "\n" not in name]
    hashed = git.hashes(top, held) if held else {}
    for name, path in names.items():
        data = now[name]
        if data is None or Digest.of(data) != files[path] or hashed.get(name) != tree.files.get(name, "none"):
            yield name
    for inner, commit in tree.submodules.items():
        place = top / inner
        if not any(inside(path, [str(place)]) for path in files) or repository_of(str(place)) != str(place):
            continue
        if git.git(place, "rev-parse", "HEAD").decode().strip() != commit:
            yield inner
        yield from (f"{inner}/{name}" for name in _changed(place, Tree.of(place, commit), files))
    known = {str(top), *(str(top / inner) for inner in tree.submodules)}
    nested = {repository_of(str(Path(path).parent)) for path in files if inside(path, [str(top)])} - known
    # A repository inside of this one, which this one's commit says nothing of.
    yield from (os.path.relpath(folder, top) for folder in nested)
