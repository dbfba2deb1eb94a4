"""Fetching a file from a remote, resumed where an earlier attempt ended, bounded and hashed.

What has arrived is kept in `.FILE.DIGEST.part` in the folder that the file is for. The part is locked while it is in
use (the kernel gives the lock back when a process dies), so that several processes that want one file fetch it once.
The bytes that are returned are the bytes that were hashed: they are in memory, and a part file is never given a name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from aotkern.digest import Digest
from aotkern.distribution.patience import ANSWER_SECONDS, seconds_for, within
from aotkern.distribution.remote import Piece
from aotkern.errors import InputError, IntegrityError, RemoteError

ATTEMPTS = 5
"""How often in a row a connection may end without progress before we give up."""
PROGRESS = 64 << 10
"""Bytes that count as progress of one connection: a remote that ends each after a byte is as good as none."""
PAUSE = 0.2
"""Seconds before a connection is tried again; doubled each time."""


def small(piece: Piece, limit: int) -> bytes:
    """A file that is worth no part: at most `limit` bytes.

    Raises:
        IntegrityError: It is larger, has another size than the remote said, or another digest.
        RemoteError: It did not arrive.
    """
    _bounded(piece, limit)

    def read() -> bytes:
        data = bytearray()
        for chunk in piece.read(0):
            data += chunk
            if len(data) > piece.size:
                break
        return bytes(data)

    return _hashed(piece, within(ANSWER_SECONDS, piece.where, read))


def fetch(piece: Piece, folder: Path, file: str, limit: int) -> bytes:
    """A file that is resumed when it was interrupted.

    Args:
        piece: What to fetch.
        folder: Where the part is kept; it exists.
        file: Its name there.
        limit: Most bytes that are accepted.

    Raises:
        IntegrityError: It is larger, has more bytes than the remote said, or another digest. The part is gone then.
        RemoteError: The connection ended too often, or it took too long; the part is kept for the next time.
        InputError: The folder cannot be written, or another process does not come to an end with the same file.
    """
    _bounded(piece, limit)
    return within(seconds_for(piece.size), piece.where, lambda: _fetch(piece, folder, file))


def _fetch(piece: Piece, folder: Path, file: str) -> bytes:
    part = folder / f".{file}.{piece.digest.short if piece.digest else 'unnamed'}.part"
    try:
        with _locked(part, seconds_for(piece.size)) as handle:
            resumed = handle.seek(0, os.SEEK_END) > 0
            try:
                data = _complete(piece, handle)
            except IntegrityError:
                # What was there may have been the start of something else: once more, from nothing.
                handle.truncate(0)
                if not resumed:
                    raise
                data = _complete(piece, handle)
            part.unlink(missing_ok=True)
    except IntegrityError:
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise InputError.one(str(part), "a file that can be written", error.strerror or str(error)) from error
    return data


def sweep(folder: Path, file: str) -> None:
    """Remove the parts of other downloads of a file that is in place now."""
    for part in folder.glob(f".{file}.*.part"):
        part.unlink(missing_ok=True)


def _bounded(piece: Piece, limit: int) -> None:
    if piece.size > limit:
        raise IntegrityError.one(piece.where, f"at most {limit} bytes", f"{piece.size} bytes")


def _complete(piece: Piece, handle: BinaryIO) -> bytes:
    failures = 0
    while (at := handle.seek(0, os.SEEK_END)) < piece.size:
        try:
            for chunk in piece.read(at):
                handle.write(chunk)
                if handle.tell() > piece.size:
                    raise IntegrityError.one(piece.where, f"{piece.size} bytes", "more")
            if handle.tell() < piece.size:
                raise RemoteError.one(piece.where, f"{piece.size} bytes", f"an end after {handle.tell()}")
        except RemoteError:
            failures = failures + 1 if handle.tell() < at + PROGRESS else 0
            if failures == ATTEMPTS:
                raise
            time.sleep(PAUSE * 2**failures)
    handle.seek(0)
    return _hashed(piece, handle.read(piece.size + 1))


def _hashed(piece: Piece, data: bytes) -> bytes:
    if len(data) != piece.size:
        found = "more" if len(data) > piece.size else f"{len(data)} bytes"
        raise IntegrityError.one(piece.where, f"{piece.size} bytes", found)
    if piece.digest is not None and (found_digest := Digest.of(data)) != piece.digest:
        raise IntegrityError.one(piece.where, str(piece.digest), str(found_digest))
    return data


@contextlib.contextmanager
def _locked(path: Path, seconds: float) -> Iterator[BinaryIO]:
    """The part file, ours alone. A link in its place is not followed."""
    deadline = time.monotonic() + seconds
    while True:
        handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "rb+")
        with handle:
            _lock(handle, path, deadline)
            # Whoever had the lock before us may have removed the file: then this lock is on nothing.
            try:
                same = os.path.samestat(os.fstat(handle.fileno()), path.lstat())
            except FileNotFoundError:
                same = False
            if same:
                yield handle
                return


def _lock(handle: BinaryIO, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() > deadline:
            found = "a lock that another process has not given back"
            raise InputError.one(str(path), "a download that is ours alone", found)
        time.sleep(0.1)
