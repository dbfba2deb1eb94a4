"""A folder at any address that fsspec understands (`s3://`, `gs://`, `file://`, ...) as a `Remote`.

The folder holds the same files as a folder on disk would: `NAME.TARGET.aotk` and, beside them, `.sig`. A store knows no
digests; what it gives is as good as the signatures and the hashes inside the bundle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import fsspec

from aotkern import bundle as bundles
from aotkern.distribution.remote import CHUNK, Offer, Package, Piece, Wanted, checked_name, signature_name
from aotkern.errors import InputError, MissingToolError, RemoteError


class Store:
    """A folder of bundles.

    Args:
        url: Its address.

    Raises:
        InputError: fsspec knows no such kind of address.
        MissingToolError: The library behind this kind of address is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise MissingToolError("a library of fsspec", f"for {url.partition(':')[0]}", str(error)) from None
        except ValueError as error:
            raise InputError.one(url, "an address that fsspec understands", str(error)[:200]) from None
        self._files, self._root = found[0], found[1].rstrip("/")

    def find(self, wanted: Wanted) -> Offer:
        """The bundle for a target, by its file name.

        Raises:
            RemoteError: The store cannot be read, has none, or several and no name was given.
        """
        ending = f".{wanted.target.slug}{bundles.SUFFIX}"
        with self._named(self.url):
            files = {str(path).rpartition("/")[2] for path in self._files.ls(self._root, detail=False)}
        names = [file.removesuffix(ending) for file in sorted(files) if file.endswith(ending)]
        fitting = [name for name in names if wanted.name in (None, name)]
        if len(fitting) != 1:
            expected = f"one file {wanted.name or 'NAME'}{ending}"
            raise RemoteError.one(self.url, expected, ", ".join(fitting or sorted(files)[:20])[:300] or "nothing")
        name = checked_name(fitting[0], self.url)
        signatures = signature_name(name + ending)
        return Offer(
            name,
            self._piece(name + ending),
            self._piece(signatures) if signatures in files else None,
            f"{self.url}/{name}{ending}",
        )

    def publish(self, packages: Sequence[Package]) -> str:
        """Write the files; each appears whole or not at all, and signatures before what they sign.

        Raises:
            RemoteError: The store cannot be written.
        """
        with self._named(self.url):
            self._files.makedirs(self._root, exist_ok=True)
            for package in packages:
                signatures = f"{self._root}/{signature_name(package.file)}"
                if package.signatures is not None:
                    self._write(signatures, package.signatures)
                elif self._files.exists(signatures):
                    self._files.rm(signatures)
                self._write(f"{self._root}/{package.file}", package.data)
        return self.url

    def _write(self, path: str, data: bytes) -> None:
        with self._files.transaction, self._files.open(path, "wb") as file:
            file.write(data)

    def _piece(self, file: str) -> Piece:
        path, where = f"{self._root}/{file}", f"{self.url}/{file}"
        with self._named(where):
            size = self._files.info(path).get("size")
        if not isinstance(size, int):
            raise RemoteError.one(where, "a file whose size the store knows", repr(size))
        return Piece(where, size, None, lambda offset: self._read(path, where, offset))

    def _read(self, path: str, where: str, offset: int) -> Iterator[bytes]:
        with self._named(where), self._files.open(path, "rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                yield chunk

    @contextlib.contextmanager
    def _named(self, where: str) -> Iterator[None]:
        """Gives the failures of any backend one name: backends raise OSErrors, and errors of their own libraries."""
        try:
            yield
        except (RemoteError, GeneratorExit):
            raise
        except Exception as error:
            raise RemoteError.one(where, "a store that answers", f"{type(error).__name__}: {error}"[:300]) from error
