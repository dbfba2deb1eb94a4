"""Signature files on disk: making them beside a bundle, and asking for a decision about a bundle that lies there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aotkern import bundle as bundles
from aotkern.bundle import Bundle
from aotkern.errors import InputError, TrustError
from aotkern.trust import dsse
from aotkern.trust.decision import Approval, require
from aotkern.trust.dsse import Envelope, Signature
from aotkern.trust.keys import SigningKey
from aotkern.trust.statement import PAYLOAD_TYPE, Audit, Statement
from aotkern.trust.trustfile import Trust


@dataclass(frozen=True, slots=True)
class Signed:
    """What `sign` did.

    Attributes:
        path: The signature file.
        statement: What was signed.
        signatures: How many signatures that statement has now.
    """

    path: Path
    statement: Statement
    signatures: int


def signature_path(bundle: Path) -> Path:
    """The place of a bundle's signature file: beside it, with `.sig` behind the name."""
    return bundle.with_name(bundle.name + dsse.SUFFIX)


def read_signatures(bundle: Path) -> bytes | None:
    """The signature file of a bundle, or None when there is none.

    Raises:
        InputError: It is there and cannot be read.
    """
    path = signature_path(bundle)
    try:
        with path.open("rb") as file:
            return file.read(dsse.MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError.one(str(path), "a signature file that can be read", error.strerror or str(error)) from error


def sign(bundle: Path, key: SigningKey, sequence: int | None, reports: Sequence[Audit], clock: int) -> Signed:
    """Sign a bundle, after checking all of it, and put the signature beside it. The bundle's bytes stay as they are.

    With neither a sequence number nor reports, a statement about these bytes that is there already gets one more
    signature: that is how several signers come to stand behind one statement. Otherwise a new statement is added.
    Statements about other bytes (an earlier build under this name) are dropped.

    Args:
        bundle: A file `NAME.TARGET.aotk`.
        key: Who signs.
        sequence: The number of this release, or None for that of the statement that is there, or else `clock`.
        reports: What the audits said about it.
        clock: The time in seconds since 1970: a number that grows by itself.

    Raises:
        InputError: A file cannot be read or written, or the bundle's name does not fit its target.
        IntegrityError: The bundle is damaged.
        TrustError: The signature file that is there is malformed, or says of these bytes what is not so.
    """
    opened = Bundle.open(bundle)
    opened.verify()
    path = signature_path(bundle)
    there = _statements(read_signatures(bundle), opened, path)
    if sequence is None and not reports and there:
        statement = max((statement for statement, _ in there.values()), key=lambda item: item.sequence)
    else:
        statement = Statement.about(opened, bundle.name, clock if sequence is None else sequence, reports)
    payload = statement.to_bytes()
    _, envelope = there.get(payload, (statement, Envelope(PAYLOAD_TYPE, payload, ())))
    envelope = envelope.signed(Signature(key.public.id, key.sign(envelope.message)))
    there[payload] = statement, envelope
    try:
        bundles.publish(path, dsse.to_bytes([envelope for _, envelope in there.values()]))
    except OSError as error:
        raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error
    return Signed(path, statement, len(envelope.signatures))


def _statements(data: bytes | None, bundle: Bundle, path: Path) -> dict[bytes, tuple[Statement, Envelope]]:
    """The statements about this bundle in a signature file, by payload."""
    found: dict[bytes, tuple[Statement, Envelope]] = {}
    for number, envelope in enumerate(dsse.parse(data, str(path)) if data is not None else (), 1):
        if envelope.payload_type != PAYLOAD_TYPE:
            continue
        where = f"{path}: statement {number}"
        statement = Statement.parse(envelope.payload, where)
        if statement.digest != bundle.digest:
            continue
        # A second signer puts their name under the first one's words: only when they are so.
        if wrong := tuple(statement.mismatches(bundle, where)):
            raise TrustError(wrong)
        found[envelope.payload] = statement, envelope
    return found


def require_file(bundle: Path, trust: Trust, now: datetime, *, at_least: int = 0) -> Approval:
    """Decide about a bundle on disk, under its own name, by the signature file beside it; see `decision.require`.

    Args:
        bundle: The file.
        trust: Whose word counts.
        now: The time of the check, with its zone.
        at_least: The lowest acceptable sequence number.

    Raises:
        InputError: A file cannot be read.
        TrustError: Not accepted.
        IntegrityError: Too large, or accepted by its signers but not a sound bundle.
    """
    data = bundles.read(bundle)
    return require(data, bundle.name, read_signatures(bundle), trust, now, at_least=at_least)
