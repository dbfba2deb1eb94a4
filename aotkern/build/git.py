"""git, as far as aotkern asks it: a command's output, and the tree of a commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotkern.errors import InputError, MissingToolError

_SUBMODULE = "160000"


def git(folder: Path, *arguments: str, given: bytes = b"", index: Path | None = None) -> bytes:
    """The output of a git command.

    Args:
        folder: Where it runs.
        arguments: Its words.
        given: Its input.
        index: A file to use as the index, so that the repository's own is left alone.

    Raises:
        InputError: It failed.
        MissingToolError: git is not installed.
    """
    command = ["git", "-C", str(folder), *arguments]
    if index is not None:
        # `env` sets the one variable: nothing below the command line reads this process's environment.
        command = ["env", f"GIT_INDEX_FILE={index}", *command]
    try:
        done = subprocess.run(command, capture_output=True, check=False, input=given)
    except FileNotFoundError:
        raise MissingToolError("git", "for a baseline revision", "install git") from None
    if done.returncode:
        found = done.stderr.decode("utf-8", "replace").strip()
        raise InputError.one(f"git {' '.join(arguments[:2])} in {folder}", "success", found[:300])
    return done.stdout


def top_of(path: Path) -> Path:
    """The top folder of the work tree around a file or folder, without links; errors as for `git`."""
    folder = path if path.is_dir() else path.parent
    return Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n"))).resolve()


@dataclass(frozen=True)
class Tree:
    """What a commit holds.

    Attributes:
        files: Object name of each file, by path.
        submodules: Commit of each submodule, by path.
    """

    files: Mapping[str, str]
    submodules: Mapping[str, str]

    @classmethod
    def of(cls, top: Path, commit: str) -> Tree:
        """Ask git; errors as for `git`."""
        files: dict[str, str] = {}
        submodules: dict[str, str] = {}
        for row in git(top, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if row:
                head, _, name = row.partition(b"\t")
                mode, _, identity = head.decode().split(" ")
                (submodules if mode == _SUBMODULE else files)[os.fsdecode(name)] = identity
        return cls(files, submodules)


def hashes(top: Path, names: Sequence[str]) -> dict[str, str]:
    """The object names that files of a work tree would be committed as; errors as for `git`."""
    lines = "".join(f"{name}\n" for name in names)
    found = git(top, "hash-object", "--stdin-paths", given=os.fsencode(lines)).decode().split()
    return dict(zip(names, found, strict=True))


def ignored(top: Path) -> tuple[str, ...]:
    """What git ignores in a work tree, by path; a folder that is ignored whole ends in `/`. Errors as for `git`."""
    asked = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    return tuple(os.fsdecode(name) for name in git(top, *asked).split(b"\0") if name)


def followed(top: Path) -> frozenset[str]:
    """The files of a work tree that git follows, from the moment that they are added. Errors as for `git`."""
    names = git(top, "ls-files", "--cached", "-z").split(b"\0")
    return frozenset(os.fsdecode(name) for name in names if name)


def current(top: Path) -> tuple[str, ...]:
    """The files of a work tree that git does not ignore, committed or not. Errors as for `git`."""
    names = git(top, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split(b"\0")
    return tuple(os.fsdecode(name) for name in names if name)
