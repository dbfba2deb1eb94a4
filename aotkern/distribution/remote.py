"""What a place that holds bundles must offer, whatever it is: the protocol between transfers and their remotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from aotkern import bundle as bundles
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.target import Target
from aotkern.trust import dsse

CHUNK = 1 << 18
"""Bytes that are read or written at a time."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks a remote for.

    Attributes:
        target: The target that the code must be for.
        name: Name of the bundle, or None where the remote has only one for the target.
    """

    target: Target
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A file at a remote.

    Attributes:
        where: Names it in errors.
        size: Its bytes, as the remote says.
        digest: Its digest where it is addressed by content, or None.
        read: Gives its bytes from an offset on; raises `RemoteError` when the connection ends early.
    """

    where: str
    size: int
    digest: Digest | None
    read: Callable[[int], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Offer:
    """A bundle that a remote has for what was wanted; all of it is hearsay until it was checked.

    Attributes:
        name: Name of the bundle.
        bundle: The bundle file.
        signatures: The signature file, where there is one.
        address: What it was found under, as exact as the remote can say it.
    """

    name: str
    bundle: Piece
    signatures: Piece | None
    address: str


@dataclass(frozen=True, slots=True)
class Package:
    """A bundle that is to be handed to a remote; it was checked.

    Attributes:
        name: The NAME of NAME.TARGET.aotk.
        target: What it is for.
        data: The bundle file.
        signatures: The signature file, or None.
        manifest: Digest of the manifest inside.
    """

    name: str
    target: Target
    data: bytes
    signatures: bytes | None
    manifest: Digest

    @property
    def file(self) -> str:
        """The name of the bundle file."""
        return file_name(self.name, self.target)


class Remote(Protocol):
    """A place that holds bundles."""

    def find(self, wanted: Wanted) -> Offer:
        """What fits; raises `RemoteError` when nothing or more than one does."""

    def publish(self, packages: Sequence[Package]) -> str:
        """Take bundles in, complete or not at all for each, and say the most exact address of what is there now."""


def file_name(name: str, target: Target) -> str:
    """`NAME.TARGET.aotk`."""
    return f"{name}.{target.slug}{bundles.SUFFIX}"


def signature_name(file: str) -> str:
    """The name of the signature file of a bundle file."""
    return file + dsse.SUFFIX


def checked_name(name: str, where: str) -> str:
    """A name that is safe as a part of a file name: no separators, no leading dot.

    Raises:
        InputError: Another text.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError.one(where, "a name of letters, digits, `.`, `_` and `-`", repr(name)[:120])
    return name
