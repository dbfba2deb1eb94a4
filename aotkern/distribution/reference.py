"""References to an OCI registry: `registry.example/team/kernels:v3`, or `...@sha256:...` for exact content."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotkern.digest import Digest
from aotkern.errors import InputError

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_SPELLING = re.compile(
    r"(?P<registry>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:[0-9])|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An address in a registry; `str` and `parse` are inverses.

    Attributes:
        registry: Host, with a port where it has one. Always written out: there is no default registry.
        repository: Path inside the registry.
        name: A tag, which may mean something else tomorrow, or a digest, which may not.
    """

    registry: str
    repository: str
    name: str | Digest

    @classmethod
    def parse(cls, text: str, where: str = "reference") -> Reference:
        """Read a reference.

        Raises:
            InputError: Not a reference with a registry and with a tag or a digest.
        """
        match = _SPELLING.fullmatch(text)
        if match is None or len(text) > 512:
            raise InputError.one(where, "HOST[:PORT]/REPOSITORY with :TAG or @sha256:DIGEST", repr(text)[:160])
        name = Digest.parse(match["digest"], where) if match["digest"] else match["tag"]
        return cls(match["registry"], match["repository"], name)

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}{'@' if isinstance(self.name, Digest) else ':'}{self.name}"

    def at(self, digest: Digest) -> Reference:
        """The same repository, at exact content."""
        return Reference(self.registry, self.repository, digest)
