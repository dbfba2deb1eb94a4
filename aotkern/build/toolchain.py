"""What compiles: Triton's version, the revision of its AMD code generator, and a digest over its files.

The version alone does not say what compiles: a patched bitcode library or a rebuilt `libtriton.so` keeps it. The digest
covers the front end, the compiler, the language and the back ends with their libraries and programs, by content and by
path inside the package, never by where the package is installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from aotkern.digest import Digest
from aotkern.errors import InputError, MissingToolError

_PARTS = ("__init__.py", "_utils.py", "knobs.py", "_C", "backends", "compiler", "language", "runtime", "tools")
IN_LIBTRITON = "in libtriton"
"""The AMD code generator of versions that do not keep it in a shared object of its own: the digest covers it."""
_IGNORED_SUFFIXES = (".pyc", ".pyi")
# Profilers and headers for launcher stubs: they lie in the package, but no code object is made from them.
_IGNORED_NAMES = ("libproton.so", "cupti", "cupti-blackwell", "include", "__pycache__")


def describe(memo: Path | None = None) -> dict[str, str]:
    """Name what would compile here.

    Args:
        memo: A file that remembers the digest of an installation whose files have not changed in size or time; hashing
            takes about a second. None hashes in any case, which is what a proof does.

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
    files = list(_files(root))
    stamps = [[str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    stamp = Digest.of(json.dumps([str(root), stamps]).encode())
    if memo is not None and (known := _remembered(memo, stamp)):
        return known
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            part = hashlib.sha256()
            while chunk := file.read(1 << 20):
                part.update(chunk)
        total.update(f"{path.relative_to(root).as_posix()} {part.hexdigest()}\n".encode())
    digest = Digest(total.hexdigest())
    if memo is not None:
        _remember(memo, stamp, digest)
    return digest


def _remembered(memo: Path, stamp: Digest) -> Digest | None:
    try:
        known, digest = memo.read_text("ascii").split()
        return Digest.parse(digest) if known == str(stamp) else None
    except (OSError, ValueError, InputError):
        return None  # whatever is wrong with a memo, hashing answers the question


def _remember(memo: Path, stamp: Digest, digest: Digest) -> None:
    from aotkern.bundle import publish  # noqa: PLC0415

    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        publish(memo, f"{stamp} {digest}\n".encode("ascii"))
    except OSError:
        return  # a read-only cache costs a second, nothing else
