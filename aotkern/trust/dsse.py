"""Signature files: DSSE envelopes, one canonical JSON document a line. Reading and writing; no cryptography.

An envelope carries a payload, the type of that payload, and signatures over both (Dead Simple Signing Envelope,
version 1). What aotkern writes can be read by any implementation of that protocol. It reads only the canonical
spelling: sorted keys, no spaces, exactly the fields below, base64 without spare bits. A signature file therefore has
one byte sequence for one content, and a byte that was changed on the way is never overlooked.

Lines with the same payload are one envelope: the files of two signers may simply be put behind each other.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from aotkern.bundle import SIGNATURE_SUFFIX
from aotkern.canonical import dumps, loads
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, Problem, TrustError
from aotkern.fields import Fields

SUFFIX = SIGNATURE_SUFFIX
"""What a signature file's name has behind the name of the bundle."""

MAX_BYTES = 4 << 20
MAX_ENVELOPES = 32
MAX_SIGNATURES = 32
"""Most signatures of one envelope. Like the other bounds far above honest use: they limit the work of a refusal."""


_PAYLOAD_TYPE = re.compile(r"[!-~]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of an envelope.

    Attributes:
        key: Id of the key that is said to have made it. Nothing vouches for that but the signature itself.
        value: The signature; 64 bytes for ed25519.
    """

    key: Digest
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with signatures. Nothing is known of either until somebody has verified them.

    Attributes:
        payload_type: What the payload is; signed along with it, so that it cannot be taken for something else.
        payload: The signed bytes.
        signatures: In the order in which they were added; each key at most once.
    """

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def message(self) -> bytes:
        """What the signatures are made over."""
        return pae(self.payload_type, self.payload)

    def signed(self, signature: Signature) -> Envelope:
        """This envelope with one signature more; an earlier one by the same key is replaced."""
        others = tuple(other for other in self.signatures if other.key != signature.key)
        return Envelope(self.payload_type, self.payload, (*others, signature))

    def to_line(self) -> bytes:
        """The canonical line."""
        rows = [{"keyid": str(item.key), "sig": _encode(item.value)} for item in self.signatures]
        value = {"payload": _encode(self.payload), "payloadType": self.payload_type, "signatures": rows}
        return dumps(value).encode() + b"\n"


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding of DSSE version 1: type and payload, each behind its length in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def to_bytes(envelopes: Sequence[Envelope]) -> bytes:
    """A signature file with these envelopes."""
    return b"".join(envelope.to_line() for envelope in envelopes)


def parse(data: bytes, where: str) -> tuple[Envelope, ...]:
    """Read a signature file.

    Args:
        data: The file.
        where: Names it in the error.

    Raises:
        TrustError: Not a signature file in canonical spelling, or more of anything than the bounds allow.
    """
    if len(data) > MAX_BYTES:
        raise TrustError.one(where, f"signatures of at most {MAX_BYTES} bytes", f"{len(data)} bytes")
    *lines, rest = data.split(b"\n")
    if rest or not 0 < len(lines) <= MAX_ENVELOPES:
        found = "an unfinished last line" if rest else f"{len(lines)} lines"
        raise TrustError.one(where, f"1 to {MAX_ENVELOPES} lines, each ended by a line feed", found)
    merged: dict[tuple[str, bytes], Envelope] = {}
    for number, line in enumerate(lines, 1):
        envelope = _envelope(line, f"{where}: line {number}")
        name = (envelope.payload_type, envelope.payload)
        base = merged.get(name, Envelope(*name, ()))
        for signature in envelope.signatures:
            base = base.signed(signature)
        merged[name] = base
    return tuple(merged.values())


def _envelope(line: bytes, where: str) -> Envelope:
    try:
        value = loads(line, where)
    except IntegrityError as error:
        raise TrustError(error.problems) from None
    problems: list[Problem] = []
    form = Fields(value, where, ("payload", "payloadType", "signatures"), problems)
    rows = form.items("signatures", ("keyid", "sig"))
    payload, payload_type = form.parsed("payload", _decode), form.label("payloadType")
    signatures = [(row.parsed("keyid", Digest.parse), row.parsed("sig", _decode)) for row in rows[:MAX_SIGNATURES]]
    if not 0 < len(rows) <= MAX_SIGNATURES:
        problems.append(Problem(f"{where}.signatures", f"1 to {MAX_SIGNATURES} signatures", str(len(rows))))
    if _PAYLOAD_TYPE.fullmatch(payload_type) is None:
        problems.append(Problem(f"{where}.payloadType", "a media type", repr(payload_type)[:60]))
    if problems:
        raise TrustError(problems)
    envelope = Envelope(payload_type, payload or b"", tuple(Signature(k, v) for k, v in signatures if k and v))
    if len({item.key for item in envelope.signatures}) != len(rows):
        raise TrustError.one(f"{where}.signatures", "each key once", "a key more than once")
    if envelope.to_line() != line + b"\n":
        raise TrustError.one(where, "canonical JSON (sorted keys, no spaces)", "another spelling")
    return envelope


def _encode(data: bytes) -> str:
    return base64.standard_b64encode(data).decode()


def _decode(text: str, where: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    if not data or _encode(data) != text:
        raise InputError.one(where, "bytes in base64", repr(text)[:60])
    return data
