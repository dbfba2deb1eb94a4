"""What compiles: Triton's version, the revision of its AMD code generator, and a digest over its files.

The version alone does not say what compiles: a patched bitcode library or a rebuilt `libtriton.so` keeps it. The digest
covers the front end, the compiler, the language and the back ends with their libraries and programs, by content and by
path inside the package, never by where the package is installed, and never by the Python that it is built for: builds
of one library for several Pythons count as one, see `wheels`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from aotkern.build import wheels
from aotkern.digest import Digest
from aotkern.errors import MissingToolError

_PARTS = ("__init__.py", "_utils.py", "knobs.py", "_C", "backends", "compiler", "language", "runtime", "tools")
_REMEMBERED_BYTES = 1 << 20
"""From this size on, a memo may answer for a file's content; smaller files are read each time, in milliseconds."""
IN_LIBTRITON = "in libtriton"
"""The AMD code generator of versions that do not keep it in a shared object of its own: the digest covers it."""
_IGNORED_SUFFIXES = (".pyc", ".pyi")
# Profilers and headers for launcher stubs: they lie in the package, but no code object is made from them.
_IGNORED_NAMES = ("libproton.so", "cupti", "cupti-blackwell", "include", "__pycache__")


def describe(memo: Path | None = None) -> dict[str, str]:
    """Name what would compile here.

    Args:
        memo: A file that remembers the digests of large files, which take about a second to hash, as long as they are
            the same files that nobody wrote to (see `_stamp`). None hashes all in any case, which is what a proof does.

    Raises:
        MissingToolError: Triton is not installed.
    """
    try:
        import triton  # noqa: PLC0415 - the one heavy import, made by workers only
        from triton.backends.amd import compiler as amd  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError("triton", "to compile", "pip install 'aotkern[build]'") from error
    root = Path(triton.__file__).parent
    revision = getattr(amd, "get_amd_codegen_revision", None)
    return {
        "triton": str(triton.__version__),
        "amd_codegen": str(revision()) if revision is not None else IN_LIBTRITON,
        "triton_digest": str(_digest(root, memo)),
    }


def own() -> Digest:
    """A digest over aotkern's own Python files, by content and by path inside the package."""
    root = Path(__file__).parents[1]
    rows = [(path.relative_to(root).as_posix(), Digest.of(path.read_bytes())) for path in sorted(root.rglob("*.py"))]
    return Digest.of("".join(f"{name} {digest}\n" for name, digest in rows).encode())


def _files(root: Path) -> Iterator[Path]:
    for part in _PARTS:
        start = root / part
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            inside = path.relative_to(root).parts
            if path.is_file() and path.suffix not in _IGNORED_SUFFIXES and not set(inside) & set(_IGNORED_NAMES):
                yield path


def _digest(root: Path, memo: Path | None) -> Digest:
    known = _remembered(memo) if memo else {}
    total = hashlib.sha256()
    seen: dict[str, list[int | str]] = {}
    for path in _files(root):
        stamp = _stamp(path)
        row = known.get(str(path), [])
        if path.stat().st_size < _REMEMBERED_BYTES:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            digest = str(row[-1]) if row[:-1] == stamp else _hashed(path)
            seen[str(path)] = [*stamp, digest]
        total.update(f"{path.relative_to(root).as_posix()} {wheels.speaker(digest)}\n".encode())
    if memo is not None and seen != known:
        _remember(memo, seen)
    return Digest(total.hexdigest())


def _hashed(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _stamp(path: Path) -> list[int | str]:
    """What changes when a file is written or replaced: a restored time of modification is not enough to hide that.

    The time of the last status change is the kernel's own; no program can set it.
    """
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def trusted(found: os.stat_result) -> bool:
    """Whether only this user, or root, can have written a file or folder."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _remembered(memo: Path) -> dict[str, list[int | str]]:
    """The rows of a memo by path; none of one that is damaged, or that others could have written."""
    try:
        with memo.open("rb") as file:
            rows = json.load(file) if trusted(os.fstat(file.fileno())) else {}
    except (OSError, ValueError, RecursionError):
        return {}  # whatever is wrong with a memo, hashing answers the question
    return {name: row for name, row in rows.items() if _is_row(row)} if isinstance(rows, dict) else {}


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 6:
        return False
    digest = row[-1]
    return isinstance(digest, str) and len(digest) == 64 and not set(digest) - set("0123456789abcdef")


def _remember(memo: Path, rows: dict[str, list[int | str]]) -> None:
    from aotkern.bundle import publish  # noqa: PLC0415

    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        publish(memo, json.dumps(rows, indent=0).encode("ascii"), mode=0o644)  # others may not write it
    except OSError:
        return  # a read-only cache costs a second, nothing else
