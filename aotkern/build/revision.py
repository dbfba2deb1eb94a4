"""Kernel sources of a git revision, exported into a folder of their own, and facts about the revision at hand."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from aotkern.build.registry import Source
from aotkern.errors import InputError, MissingToolError


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise MissingToolError("git", "for a baseline revision", "install git") from None
    if done.returncode:
        found = done.stderr.decode("utf-8", "replace").strip()
        raise InputError.one(f"git {' '.join(arguments[:2])} in {folder}", "success", found[:300])
    return done.stdout


def export(source: Source, revision: str, into: Path) -> tuple[Source, str]:
    """The same source as it was at `revision`, and the full name of that commit.

    The tree is exported whole, so that imports between its files keep working; the repository is not touched.

    Args:
        source: A source with a path inside a git repository.
        revision: Anything that names a commit.
        into: An empty folder.

    Raises:
        InputError: Not in a repository, no such revision, or the source did not exist then.
        MissingToolError: git is not installed.
    """
    path = located(source)
    folder = path if path.is_dir() else path.parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    commit = _git(top, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git(top, "archive", "--format=tar", commit))) as archive:
        _extract(archive, into)
    then = into / path.relative_to(top.resolve())
    if not then.exists():
        raise InputError.one(f"{path.relative_to(top.resolve())} at {revision}", "the kernel source", "nothing there")
    return Source(source.name, then), commit


def _extract(archive: tarfile.TarFile, into: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        archive.extractall(into, filter="data")
    else:  # Python 3.10 before its security releases; the archive is git's own, made a moment ago
        archive.extractall(into)  # noqa: S202


def located(source: Source) -> Path:
    """The file or folder of a source.

    Raises:
        InputError: It is a module that has no place in the file system.
    """
    if source.path is None:
        expected = "a kernel file or folder, because only those have revisions"
        raise InputError.one(source.name, expected, "no file of this name, so that it is taken for a module")
    return source.path.resolve()


def describe(source: Source) -> dict[str, str]:
    """Commit and state of the repository around a source, for the provenance of a bundle; empty outside of git."""
    if source.path is None:
        return {}
    folder = source.path if source.path.is_dir() else source.path.parent
    try:
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        dirty = bool(_git(folder, "status", "--porcelain", "--", str(source.path.resolve())).strip())
    except (InputError, MissingToolError):
        return {}
    return {"revision": commit, "sources": "modified" if dirty else "as committed"}
