"""Taking single binaries out of service, without a rebuild: a list of what must not be launched.

An entry is the text of a variant's key, or the digest of a code object or of a variant's content: `sha256:` and at
least 12 hex digits, or the digits alone, as `aotkern show` prints them. In `AOTKERN_DENY` entries are separated by line
feeds or semicolons; `@FILE` is a file with an entry a line, in which a line that begins with `#` says nothing.

A variant that is denied does not exist for the choice: another may serve the call, and where none does, the miss names
the entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aotkern.errors import InputError
from aotkern.manifest import Manifest, VariantEntry

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


@dataclass(frozen=True, slots=True)
class Deny:
    """The entries, each as it was written."""

    entries: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str | Iterable[str], where: str = "deny") -> Deny:
        """Read a list of entries.

        Args:
            text: Entries separated by line feeds or semicolons, or one after the other.
            where: Names the list in errors.

        Raises:
            InputError: An entry is neither a key nor a digest, or a file cannot be read.
        """
        entries = dict.fromkeys(_entries(text, where))
        for entry in entries:
            if not _DIGEST.fullmatch(entry) and "](" not in entry:
                expected = "keys of variants, or digests with at least 12 hex digits"
                raise InputError.one(where, expected, repr(entry)[:200])
        return cls(tuple(entries))

    def of(self, variant: VariantEntry) -> str:
        """The entry by which a variant is denied; empty when none denies it."""
        for entry in self.entries:
            digest = _DIGEST.fullmatch(entry)
            if digest is None:
                hit = entry == variant.text
            else:
                hit = variant.object.hex.startswith(digest[1]) or variant.content.hex.startswith(digest[1])
            if hit:
                return entry
        return ""

    def idle(self, manifests: Iterable[Manifest]) -> tuple[str, ...]:
        """The entries that deny nothing in any of these manifests."""
        if not self.entries:
            return ()
        variants = [variant for manifest in manifests for variant in manifest.variants]
        return tuple(entry for entry in self.entries if not any(Deny((entry,)).of(item) for item in variants))


def _entries(text: str | Iterable[str], where: str) -> Iterator[str]:
    pieces = re.split(r"[\n;]", text) if isinstance(text, str) else text
    for piece in map(str.strip, pieces):
        if not piece.startswith("@"):
            yield from [piece] if piece else []
            continue
        try:
            lines = Path(piece[1:]).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError.one(where, f"a list {piece[1:]!r} that can be read", reason) from error
        yield from (line.strip() for line in lines if line.strip() and not line.startswith("#"))
