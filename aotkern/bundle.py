"""The bundle: manifest and code objects of one target in one file, `NAME.TARGET.aotk`.

    offset  bytes  content
    0       8      "AOTKERN" and a zero byte
    8       4      format version, little endian: 1
    12      4      size of the header in bytes, little endian
    16      32     SHA-256 of the header
    48             header, canonical JSON: sizes and digests of what follows, and the provenance of the build
                   manifest, one zstd frame
                   blocks, one zstd frame each: the code objects that a kernel was the first to use, end to end

Nothing follows the last block. Objects stand in the order of the manifest, so their places follow from their sizes.
Similar kernels compress jointly to a tenth of what they take one by one.

Every byte of the file is covered by a digest in the header, and the header by the digest before it; stored bytes are
hashed before they are decompressed, and each object again before it is handed out. Sizes are bounded before memory is
taken, by what is usual for a file of this size. Nothing outside the file is ever opened, and nothing is unpacked to
disk.

`Bundle.open` keeps the file open and reads what is asked for when it is asked for: header and manifest at once, a block
when one of its objects is wanted. All processes of a machine so share the system's pages of the file, and a file that
has changed or was cut by then is refused (`docs/adr/a-bundle-is-read-where-it-lies.md`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Union

import zstandard

from aotkern.canonical import MAX_BYTES, dumps, loads
from aotkern.codeobject.facts import CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, ProblemsError
from aotkern.fields import Fields
from aotkern.manifest import Manifest

SUFFIX = ".aotk"
SIGNATURE_SUFFIX = ".sig"
"""What a signature file's name has behind the name of the bundle."""

MAGIC = b"AOTKERN\0"
VERSION = 1
LEVEL = 19
"""zstd level of everything in a bundle; part of what makes its bytes reproducible."""

MAX_FILE = 2 << 30
MAX_HEADER = 16 << 20
MAX_CONTENT = 4 << 30
"""Most bytes that a whole bundle may decompress to."""
MAX_RATIO = 200
ALWAYS_CONTENT = 16 << 20
"""A bundle may decompress to so many times its size, and to so many bytes whatever its size. Similar kernels compress
to a tenth or a fortieth; each variant has digests, which compress to nothing less than themselves."""
MAX_TEXT_RATIO = 50
ALWAYS_TEXT = 1 << 20
"""The same for the manifest, which takes many times its size in memory. Manifests compress to a fifteenth."""

_PIECE = 1 << 20
"""How much of a file is read at once to be hashed."""


class StoredFile:
    """A file that is kept open: each slice is read from it at that moment, and one that is not all there is refused.

    Args:
        descriptor: Of a regular file, open for reading; closed with this object.
        size: Its size when it was opened.
        where: Names it in errors.
    """

    def __init__(self, descriptor: int, size: int, where: str) -> None:
        self._descriptor, self._size, self._where = descriptor, size, where

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """A copy of these bytes.

        Raises:
            IntegrityError: The file was cut since it was opened, or cannot be read any more.
        """
        start, stop, _ = part.indices(self._size)
        pieces: list[bytes] = []
        while start < stop:
            try:
                piece = os.pread(self._descriptor, stop - start, start)
            except OSError as error:
                found = f"{error.strerror or error} at byte {start}"
                raise IntegrityError.one(self._where, "a file that can be read", found) from error
            if not piece:
                found = f"its end at byte {start}: the file changed"
                raise IntegrityError.one(self._where, f"{self._size} bytes, as when it was opened", found)
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __del__(self) -> None:
        os.close(self._descriptor)


Data = Union[bytes, StoredFile]
"""A file's bytes. Slices of either are copies."""

_PREFIX = struct.Struct("<8sII32s")


@dataclass(frozen=True, slots=True)
class Block:
    """One compressed part of the file.

    Attributes:
        stored: Bytes in the file.
        size: Bytes after decompression.
        digest: Of the stored bytes.
        objects: How many code objects it holds.
    """

    stored: int
    size: int
    digest: Digest
    objects: int = 0


def write(path: Path, manifest: Manifest, objects: Mapping[Digest, bytes], provenance: Mapping[str, str]) -> Digest:
    """Write a bundle: whole or not at all, and only after reading it back.

    Args:
        path: Where to; an existing file is replaced in one step.
        manifest: The content.
        objects: The bytes of every code object of the manifest.
        provenance: Facts for people about this build (revision, compressor). They do not change the manifest's digest.

    Returns:
        The digest of the whole file.

    Raises:
        IntegrityError: What would be written does not verify; nothing was published.
        OSError: The file cannot be written; nothing was published and no temporary file is left.
    """
    data = encode(manifest, objects, provenance)
    Bundle.decode(data, str(path)).verify()
    path.parent.mkdir(parents=True, exist_ok=True)
    publish(path, data)
    return Digest.of(data)


def publish(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Put a file in place in one step; readers see the old one or the new one, never a part.

    Args:
        path: The file.
        data: Its content.
        durable: Wait until the disk has it, so that a power cut cannot leave an empty file under this name.
        mode: Its permissions, of which the user's umask takes away.

    Raises:
        OSError: The disk is full, or the folder cannot be written; no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    # O_EXCL follows no link, so neither a planted link nor a racing writer is written through.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the new name, too; some file systems know no such thing."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: Path) -> bytes:
    """The bytes of a bundle file, in memory, of which nothing is known yet.

    Raises:
        InputError: The file cannot be read.
        IntegrityError: It is larger than a bundle may be.
    """
    stored = _stored(path)
    return stored[: len(stored)]


def _stored(path: Path) -> StoredFile:
    """Open a file; nothing is waited for, as opening a pipe would."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError.one(str(path), "a bundle that can be read", reason) from error
    state = os.fstat(descriptor)
    stored = StoredFile(descriptor, state.st_size, str(path))
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "a pipe, a device or a socket"
        raise InputError.one(str(path), "a bundle that can be read", kind)
    if state.st_size > MAX_FILE:
        raise IntegrityError.one(str(path), f"a bundle of at most {MAX_FILE} bytes", f"{state.st_size} bytes")
    return stored


def _digest(data: Data, start: int, stop: int) -> Digest:
    """The digest of a part, read piece by piece."""
    digest = hashlib.sha256()
    _hash(digest, data, start, stop)
    return Digest(digest.hexdigest())


def _hash(digest: hashlib._Hash, data: Data, start: int, stop: int) -> None:
    for at in range(start, stop, _PIECE):
        digest.update(data[at : min(at + _PIECE, stop)])


def encode(manifest: Manifest, objects: Mapping[Digest, bytes], provenance: Mapping[str, str]) -> bytes:
    """The bytes of a bundle; see `write`."""
    if missing := [entry.digest for entry in manifest.objects if entry.digest not in objects]:
        raise IntegrityError.one("code objects", "an object for every variant", f"none with {missing[0]}")
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True, threads=0)
    text = manifest.to_bytes()
    contents = [text, *(b"".join(objects[digest] for digest in group) for group in _groups(manifest))]
    counts = [0, *(len(group) for group in _groups(manifest))]
    frames = [compressor.compress(content) for content in contents]
    rows = [
        [len(frame), len(content), str(Digest.of(frame)), count]
        for frame, content, count in zip(frames, contents, counts, strict=True)
    ]
    header = dumps({"manifest": rows[0], "blocks": rows[1:], "provenance": dict(provenance)}).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest())
    return b"".join([prefix, header, *frames])


def _groups(manifest: Manifest) -> list[list[Digest]]:
    """Objects in manifest order, divided by the kernel that uses them first."""
    first: dict[Digest, str] = {}
    for variant in manifest.variants:
        first.setdefault(variant.object, variant.kernel)
    return [list(group) for _, group in groupby(first, key=lambda digest: first[digest])]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: the bytes that were hashed are the bytes that are used.

    Attributes:
        where: The file's name, for errors.
        data: The whole file, kept open or in memory.
        head: What stands before the blocks, in memory.
        blocks: The object blocks, in order.
        manifest: Its content.
        provenance: Facts about its build, for people.
    """

    where: str
    data: Data
    head: bytes
    blocks: tuple[Block, ...]
    manifest: Manifest
    provenance: Mapping[str, str]

    @classmethod
    def open(cls, path: Path | str) -> Bundle:
        """Read a bundle and check every hash in it.

        Raises:
            InputError: The file cannot be read.
            IntegrityError: It is not a bundle, was cut or damaged, has another format version, or is too large.
        """
        path = Path(path)
        return cls.decode(_stored(path), str(path))

    @classmethod
    def decode(cls, data: Data, where: str) -> Bundle:
        """As `open`, from bytes that are already here."""
        # 1. The header, whose digest stands before it.
        header, head = _header(data, where)
        start = len(head)
        problems: list[Problem] = []
        form = Fields(header, f"{where}: header", ("manifest", "blocks", "provenance"), problems)
        text, *blocks = (_block(row) for row in (form.row("manifest", 4), *form.rows("blocks", 4)))
        provenance = form.texts("provenance", plain=True)
        if problems:
            raise IntegrityError(problems)
        # 2. The sizes, before anything is allocated by them.
        total, stored = sum(b.size for b in (text, *blocks)), start + sum(b.stored for b in (text, *blocks))
        if text.size > MAX_BYTES or text.objects:
            expected = f"a manifest of at most {MAX_BYTES} bytes, and no objects in the manifest's row"
            raise IntegrityError.one(f"{where}: header", expected, f"{text.size} bytes, {text.objects} objects")
        most = min(MAX_CONTENT, max(ALWAYS_CONTENT, MAX_RATIO * len(data)))
        if total > most:
            raise IntegrityError.one(f"{where}: header", f"at most {most} bytes of content", f"{total} bytes")
        most = max(ALWAYS_TEXT, MAX_TEXT_RATIO * text.stored)
        if text.size > most:
            expected = f"a manifest of at most {most} bytes for {text.stored} compressed ones"
            raise IntegrityError.one(f"{where}: header", expected, f"{text.size} bytes")
        if stored != len(data):
            raise IntegrityError.one(where, f"{stored} bytes, as the header says", f"{len(data)} bytes")
        # 3. Every stored byte, before any is decompressed.
        frame = data[start : start + text.stored]
        at = start
        for number, block in enumerate((text, *blocks)):
            found = _digest(data, at, at + block.stored) if number else Digest.of(frame)
            if found != block.digest:
                name = f"block {number}" if number else "manifest"
                raise IntegrityError.one(f"{where}: {name} at byte {at}", str(block.digest), str(found))
            at += block.stored
        # 4. The manifest.
        manifest_bytes = _decompress(frame, text, f"{where}: manifest")
        _check_density(manifest_bytes, f"{where}: manifest")
        manifest = Manifest.parse(manifest_bytes, f"{where}: manifest", lazily=True)
        manifest.check_references(f"{where}: manifest")
        bundle = cls(where, data, head + frame, tuple(blocks), manifest, provenance)
        bundle._check_layout()
        return bundle

    def _check_layout(self) -> None:
        sizes = [entry.size for entry in self.manifest.objects]
        at = 0
        for number, block in enumerate(self.blocks):
            inside = sum(sizes[at : at + block.objects])
            at += block.objects
            if inside != block.size or not block.objects:
                where = f"{self.where}: block {number + 1}"
                raise IntegrityError.one(where, f"{block.size} bytes of objects", f"{inside} in the manifest")
        if at != len(sizes):
            raise IntegrityError.one(f"{self.where}: header", f"{len(sizes)} objects", f"{at} in its blocks")

    @cached_property
    def digest(self) -> Digest:
        """The digest of the whole file."""
        digest = hashlib.sha256(self.head)
        _hash(digest, self.data, len(self.head), len(self.data))
        return Digest(digest.hexdigest())

    @property
    def content(self) -> bytes:
        """The whole file, in memory."""
        return self.head + self.data[len(self.head) :]

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, int, int]]:
        """Block number, offset inside it and size of each object, by the hex digits of its digest."""
        places: dict[str, tuple[int, int, int]] = {}
        entries = iter(self.manifest.objects)
        for number, block in enumerate(self.blocks):
            at = 0
            for _ in range(block.objects):
                entry = next(entries)
                places[entry.digest.hex] = (number, at, entry.size)
                at += entry.size
        return places

    @cached_property
    def _content(self) -> dict[int, bytes]:
        return {}

    def _block_bytes(self, number: int) -> bytes:
        if number not in self._content:
            end = len(self.data) - sum(block.stored for block in self.blocks[number + 1 :])
            block = self.blocks[number]
            frame = self.data[end - block.stored : end]
            where = f"{self.where}: block {number + 1}"
            if (found := Digest.of(frame)) != block.digest:
                raise IntegrityError.one(where, f"{block.digest}, as when it was opened", f"{found}: the file changed")
            self._content[number] = _decompress(frame, block, where)
        return self._content[number]

    def object(self, digest: Digest) -> bytes:
        """The bytes of one code object, hashed.

        Raises:
            InputError: The bundle has no such object.
            IntegrityError: The bytes at its place have another digest.
        """
        place = self._places.get(digest.hex)
        if place is None:
            raise InputError.one(self.where, "the digest of one of its code objects", str(digest))
        number, start, size = place
        data = self._block_bytes(number)[start : start + size]
        if hashlib.sha256(data).hexdigest() != digest.hex:
            where = f"{self.where}: block {number + 1} at byte {start}"
            raise IntegrityError.one(where, str(digest), str(Digest.of(data)))
        return data

    def problems(self, known: dict[Digest, CodeObject] | None = None) -> Iterator[Problem]:
        """Everything that is wrong beyond the hashes: the manifest in itself, and each code object against it.

        Args:
            known: What was read from code objects by the digest of their bytes; more is added. Two bundles that are
                compared share most of them.
        """
        known = {} if known is None else known
        from aotkern import codeobject  # noqa: PLC0415 - reading ELF costs an import that a loader does not need

        try:
            self.manifest.check(f"{self.where}: manifest", self.manifest_bytes())
        except ProblemsError as error:
            yield from error.problems
            return
        for entry in self.manifest.objects:
            place = f"{self.where}: object {entry.digest.short}"
            try:
                data = self.object(entry.digest)  # which has hashed it
                code = known.get(entry.digest) or known.setdefault(entry.digest, codeobject.read(data, place))
            except ProblemsError as error:
                yield from error.problems
                continue
            if code.target != self.manifest.target:
                yield Problem(place, f"an ELF for {self.manifest.target}", f"one for {code.target}")
            elif code != entry.code:
                yield Problem(place, "the facts that the manifest states", _difference(entry.code, code))

    def verify(self, known: dict[Digest, CodeObject] | None = None) -> None:
        """Check everything that can be checked without running the code.

        Args:
            known: As for `problems`.

        Raises:
            IntegrityError: With every problem found.
        """
        error = IntegrityError(self.problems(known))
        if error.problems:
            raise error

    def manifest_bytes(self) -> bytes:
        """The text of the manifest as it stands in the file."""
        frame = self.head[_PREFIX.size + _PREFIX.unpack_from(self.head)[2] :]
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_FILE)


def _header(data: Data, where: str) -> tuple[object, bytes]:
    """The header's values, and the bytes up to its end."""
    if len(data) < _PREFIX.size:
        raise IntegrityError.one(where, f"a bundle of at least {_PREFIX.size} bytes", f"{len(data)} bytes")
    prefix = data[: _PREFIX.size]
    magic, version, size, digest = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise IntegrityError.one(f"{where}: byte 0", f"the bundle mark {MAGIC!r}", repr(magic))
    if version != VERSION:
        raise IntegrityError.one(f"{where}: byte 8", f"bundle format version {VERSION}", f"version {version}")
    if size > MAX_HEADER or size > len(data) - _PREFIX.size:
        raise IntegrityError.one(f"{where}: byte 12", "a header that fits in the file", f"{size} bytes")
    header = data[_PREFIX.size : _PREFIX.size + size]
    if hashlib.sha256(header).digest() != digest:
        raise IntegrityError.one(f"{where}: header", f"sha256:{digest.hex()}", str(Digest.of(header)))
    return loads(header, f"{where}: header"), prefix + header


_BYTES_FOR_A_CONTAINER = 16
_ALWAYS_CONTAINERS = 1_000


def _check_density(text: bytes, where: str) -> None:
    """Refuse a manifest of more lists and objects than one of its size has: each costs hundreds of bytes of memory.

    Raises:
        IntegrityError: With both numbers. A usual manifest has one for each 70 bytes.
    """
    most = _ALWAYS_CONTAINERS + len(text) // _BYTES_FOR_A_CONTAINER
    found = text.count(b"[") + text.count(b"{")
    if found > most:
        raise IntegrityError.one(where, f"at most {most} lists and objects in {len(text)} bytes", f"{found}")


def _block(row: Fields) -> Block:
    return Block(row.count("0"), row.count("1"), row.parsed("2", Digest.parse) or Digest(""), row.count("3"))


def _decompress(frame: bytes, block: Block, where: str) -> bytes:
    try:
        declared = zstandard.frame_content_size(frame)
        if declared != block.size:
            raise IntegrityError.one(where, f"{block.size} bytes of content", f"a frame of {declared}")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=block.size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise IntegrityError.one(where, "a zstd frame", str(error)) from error
    if len(data) != block.size:
        raise IntegrityError.one(where, f"{block.size} bytes of content", f"{len(data)}")
    return data


def _difference(stated: object, found: object) -> str:
    names: Sequence[str] = getattr(type(stated), "__slots__", ())
    different = [name for name in names if getattr(stated, name) != getattr(found, name)]
    return ", ".join(f"{name} {getattr(found, name)!r}"[:120] for name in different)
