"""The local store: what was compiled before on this machine, by content digest.

It is a folder of its own inside the user's cache folder, marked with a `CACHEDIR.TAG`, and touches no name there that
it does not make itself: whoever points `AOTKERN_CACHE` at a folder with other things in it loses none of them.

Each entry is one file that carries its own digest; a damaged entry counts as absent and is replaced. Entries are
written whole or not at all, so any number of builds may share the folder without a lock, and a killed build leaves
nothing that another would wait for. A folder that cannot be written makes builds slower, not wrong.

An entry says only "some build put these bytes here". So one that somebody else than this user or root could have
written is not used; a bundle's provenance says how many of its variants came from here; and the store serves builds,
never proofs: the audits compile everything anew.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from aotkern.build.toolchain import trusted
from aotkern.bundle import publish
from aotkern.canonical import dumps, loads
from aotkern.codeobject.facts import CodeObject, Resources
from aotkern.digest import Digest
from aotkern.errors import IntegrityError
from aotkern.manifest import Launch

MAX_BYTES = 4 << 30
"""What a store may hold before the oldest entries are removed."""

FOLDER = "aotkern-store"
"""The store's own folder inside the user's cache folder."""

_MEMO = "toolchain"
_TAG = "CACHEDIR.TAG"
_MODE = 0o644  # a file that others may write is not believed
# By the Cache Directory Tagging Specification: backup programs leave such folders out.
_TAG_TEXT = b"""\
Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache of aotkern: compiled variants of Triton kernels. It may be removed at any time.
"""
_PART = re.compile(r"[0-9a-f]{2}", re.ASCII)
_ENTRY = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\.[^.]+\.tmp", re.ASCII)  # as `publish` names them
_STALE_SECONDS = 3600.0
# Entries of another aotkern may lack facts that this one needs, or have others.
_LAYOUT = ",".join(item.name for kind in (CodeObject, Resources, Launch) for item in fields(kind))


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled variant: the worker's answer and the bytes of the code object."""

    facts: dict[str, Any]
    data: bytes


@dataclass
class Store:
    """Entries in a folder of their own.

    Attributes:
        cache: The user's cache folder, absolute; the store's own folder in it is made when first written.
        problem: Why the store, or the last entry, could not be used, or nothing.
    """

    cache: Path
    problem: str = field(default="")

    def __post_init__(self) -> None:
        self.problem = self.problem or self._doubt()

    @property
    def root(self) -> Path:
        """The store's own folder."""
        return self.cache / FOLDER

    @property
    def memo(self) -> Path:
        """The file for `toolchain.describe`."""
        return self.root / _MEMO

    def _doubt(self) -> str:
        """Why what lies there is not to be believed, or nothing."""
        try:
            found = self.root.stat()
        except OSError:
            return ""  # there is none yet, or what is wrong with it is said by the first use
        if trusted(found):
            return ""
        mode = stat.S_IMODE(found.st_mode)
        return f"{self.root}: not used, because others could write it (owner {found.st_uid}, mode {mode:04o})"

    def _path(self, content: Digest) -> Path:
        return self.root / content.hex[:2] / content.hex

    def get(self, content: Digest) -> Entry | None:
        """The entry for this content, or None when there is none that is whole and that only we could have written."""
        raw = _read(self._path(content))
        digest, _, body = raw.partition(b"\n")
        head, separator, data = body.partition(b"\n")
        try:
            if not separator or digest.decode("ascii", "replace") != str(Digest.of(body)):
                return None
            facts = loads(head, "store entry")
            whole = facts["digest"] == str(Digest.of(data)) and facts["content"] == str(content)
            whole = whole and facts["layout"] == _LAYOUT
        except (IntegrityError, KeyError, TypeError):
            return None
        return Entry(facts, data) if whole and not self._doubt() else None

    def put(self, content: Digest, facts: dict[str, Any], data: bytes) -> None:
        """Keep a compiled variant. What goes wrong is noted in `problem`; the build goes on."""
        head = dumps({**facts, "content": str(content), "layout": _LAYOUT}).encode()
        body = head + b"\n" + data
        path = self._path(content)
        if doubt := self._doubt():
            self.problem = doubt
            return
        try:
            self.prepare()
            path.parent.mkdir(mode=0o755, exist_ok=True)
            publish(path, str(Digest.of(body)).encode() + b"\n" + body, durable=False, mode=_MODE)
        except OSError as error:
            self.problem = f"{path.parent}: {error.strerror or error}"

    def prepare(self) -> None:
        """Make the folder, which only this user may write, and its tag.

        Raises:
            OSError: It cannot be written.
        """
        if (self.root / _TAG).exists():
            return
        self.cache.mkdir(parents=True, exist_ok=True)
        if not self.root.is_dir():
            with suppress(FileExistsError):  # another build was quicker
                self.root.mkdir()
                self.root.chmod(0o755)  # whatever the umask says: a folder that a group may write is not believed
        publish(self.root / _TAG, _TAG_TEXT, durable=False, mode=_MODE)

    def entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Every file of the store that is an entry; names of any other form are somebody else's."""
        return self._files(_ENTRY)

    def _files(self, name: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
        """Regular files with such a name, in folders that the store made; no link is followed."""
        for folder in _scan(self.root):
            if not _PART.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
                continue
            for file in _scan(Path(folder.path)):
                inside = file.name.removeprefix(".").startswith(folder.name)
                if inside and name.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # another build trims, too
                        yield Path(file.path), file.stat(follow_symlinks=False)

    def trim(self, max_bytes: int = MAX_BYTES) -> None:
        """Remove what killed writers left, and the oldest entries above `max_bytes`."""
        try:
            entries, temporary = list(self.entries()), list(self._files(_TEMPORARY))
        except OSError:
            return
        # A young temporary file has a writer that is about to rename it.
        stale = [path for path, found in temporary if time.time() - found.st_mtime > _STALE_SECONDS]
        total = sum(found.st_size for _, found in entries)
        for path, found in sorted(entries, key=lambda pair: pair[1].st_mtime):
            if total <= max_bytes:
                break
            stale.append(path)
            total -= found.st_size
        for path in stale:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - as quick as it gets, for thousands of files

    def clear(self) -> None:
        """Remove every entry and the memo, and the folders that are empty then.

        Raises:
            OSError: Something of it cannot be removed.
        """
        folders: set[Path] = set()
        for path, _ in (*self.entries(), *self._files(_TEMPORARY)):
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        self.memo.unlink(missing_ok=True)
        for folder in folders:
            with suppress(OSError):  # somebody keeps something there
                folder.rmdir()


def _read(path: Path) -> bytes:
    """The content of a file that only this user or root could have written; nothing of any other."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        try:
            return file.read() if stat.S_ISREG(found.st_mode) and trusted(found) else b""
        except OSError:
            return b""


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as rows:
            return list(rows)
    except FileNotFoundError:
        return []
