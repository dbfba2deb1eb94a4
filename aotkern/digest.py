"""Typed SHA-256 digests: the only names by which aotkern knows content."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from aotkern.errors import InputError

_TEXT = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 digest; `str` and `parse` are inverses, with one spelling: `sha256:` and 64 lower-case hex digits."""

    hex: str

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Digest:
        """The digest of these bytes."""
        return cls(hashlib.sha256(data).hexdigest())

    @classmethod
    def parse(cls, text: str, where: str = "digest") -> Digest:
        """Read the one spelling back.

        Raises:
            InputError: The text is not a digest.
        """
        digest = cls.read(text)
        if digest is None:
            raise InputError.one(where, "'sha256:' and 64 lower-case hex digits", repr(text)[:100])
        return digest

    @classmethod
    def read(cls, text: object) -> Digest | None:
        """As `parse`, with None for what is not a digest."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(match[1])

    @property
    def raw(self) -> bytes:
        """The 32 bytes."""
        return bytes.fromhex(self.hex)

    @property
    def short(self) -> str:
        """The first 12 hex digits, for people."""
        return self.hex[:12]

    def __str__(self) -> str:
        return f"sha256:{self.hex}"
