"""The local store: what was compiled before on this machine, by content digest.

Each entry is one file that carries its own digest; a damaged entry counts as absent and is replaced. Entries are
written whole or not at all, so any number of builds may share the folder without a lock, and a killed build leaves
nothing that another would wait for. A folder that cannot be written makes builds slower, not wrong.

An entry says only "some build put these bytes here". So the store serves builds, never proofs: the audits compile
everything anew.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from aotkern.bundle import publish
from aotkern.canonical import dumps, loads
from aotkern.codeobject.facts import CodeObject, Resources
from aotkern.digest import Digest
from aotkern.errors import IntegrityError
from aotkern.manifest import Launch

MAX_BYTES = 4 << 30
"""What a store may hold before the oldest entries are removed."""

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
    """A folder of entries.

    Attributes:
        root: The folder; it is made when first written.
        problem: Why the last entry could not be written, or nothing.
    """

    root: Path
    problem: str = field(default="")

    def _path(self, content: Digest) -> Path:
        return self.root / content.hex[:2] / content.hex

    def get(self, content: Digest) -> Entry | None:
        """The entry for this content, or None when there is none that is whole."""
        try:
            raw = self._path(content).read_bytes()
        except OSError:
            return None
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
        return Entry(facts, data) if whole else None

    def put(self, content: Digest, facts: dict[str, Any], data: bytes) -> None:
        """Keep a compiled variant. What goes wrong is noted in `problem`; the build goes on."""
        head = dumps({**facts, "content": str(content), "layout": _LAYOUT}).encode()
        body = head + b"\n" + data
        path = self._path(content)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            publish(path, str(Digest.of(body)).encode() + b"\n" + body, durable=False)
        except OSError as error:
            self.problem = f"{path.parent}: {error.strerror or error}"

    def trim(self, max_bytes: int = MAX_BYTES) -> None:
        """Remove what killed writers left, and the oldest entries above `max_bytes`."""
        try:
            files = [(entry, entry.stat()) for entry in self.root.glob("??/*")]
        except OSError:
            return
        total = sum(stat.st_size for _, stat in files)
        for path, stat in sorted(files, key=lambda pair: pair[1].st_mtime):
            # A young temporary file has a writer that is about to rename it.
            temporary = path.name.endswith(".tmp")
            stale = time.time() - stat.st_mtime > _STALE_SECONDS
            if not stale if temporary else total <= max_bytes:
                continue
            try:
                os.unlink(path)  # noqa: PTH108 - as quick as it gets, for thousands of files
                total -= stat.st_size
            except OSError:
                continue
