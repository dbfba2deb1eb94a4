"""Signature files on disk: making them beside a bundle, and asking for a decision about a bundle that lies there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from aotkern import bundle as bundle_file
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError, Problem, TrustError
from aotkern.trust import dsse
from aotkern.trust.decision import Approval, Vouched, newest_sequence, require, vouched
from aotkern.trust.dsse import Envelope, Signature
from aotkern.trust.keys import SigningKey
from aotkern.trust.statement import PAYLOAD_TYPE, Statement, Words, write_moment
from aotkern.trust.trustfile import Trust

LOCK_SECONDS = 10
"""How long a signer waits for another one who signs the same bundle."""


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


def sign(
    bundles: Mapping[Path, Words],
    key: SigningKey,
    now: datetime,
    *,
    fresh: bool = False,
) -> tuple[Signed, ...]:
    """Sign bundles as one release, after checking all of them. The bundles' bytes stay as they are.

    Each bundle gets a statement of its own beside it; each statement names all bundles of the release. What lies in
    the signature file is never taken over: other statements about these bytes stay as they are (nobody loses a
    signature), statements about other bytes are dropped. To stand behind words that are there already, see `join`.

    Args:
        bundles: Files `NAME.TARGET.aotk`, and what is said of each; the `release` of these words is filled in here.
        key: Who signs.
        now: The time, with its zone: a sequence number from the future is refused.
        fresh: Drop every other statement, too: the way back from words that should not have been signed.

    Raises:
        InputError: A file cannot be read or written, a bundle's name does not fit its target, or a sequence number
            or an expiry that no reader would accept.
        IntegrityError: A bundle is damaged.
        TrustError: A signature file that is there is malformed, or says of these bytes what is not so.
    """
    for words in bundles.values():
        _check_times(words, now)
    opened = {path: _verified(path) for path in bundles}
    release = {path.name: bundle.digest for path, bundle in opened.items()}
    if len(release) != len(bundles) or not bundles:
        names = ", ".join(path.name for path in bundles) or "none"
        raise InputError.one("bundles", "one or more, with different file names", names)
    statements = {
        path: Statement.about(opened[path], path.name, replace(words, release=release))
        for path, words in bundles.items()
    }
    return tuple(
        _add_signature(path, opened[path], statement, key, fresh=fresh) for path, statement in statements.items()
    )


def join(bundle: Path, key: SigningKey, trust: Trust, now: datetime, statement: Digest) -> Signed:
    """Put one more signature under a statement that a trusted signer has signed: several then vouch for equal words.

    Args:
        bundle: The file.
        key: Who signs.
        trust: Whose word counts: nothing is joined under which none of its keys for this bundle has signed.
        now: The time of the check, with its zone.
        statement: Which statement: the signer has read it; see `joinable`.

    Raises:
        InputError: A file cannot be read or written, or there is no such statement.
        IntegrityError: The bundle is damaged.
        TrustError: The statement is not vouched for, is revoked, has expired, or is not true of the bundle.
    """
    opened = _verified(bundle)
    offered = joinable(bundle, trust, now)
    chosen = next((row.statement for row in offered if row.statement.id == statement), None)
    if chosen is None:
        found = ", ".join(str(row.statement.id) for row in offered) or "none that a trusted key has signed"
        raise InputError.one(str(signature_path(bundle)), f"the statement {statement}", found)
    _check_times(chosen.words, now)
    if wrong := tuple(chosen.mismatches(opened, str(signature_path(bundle)))):
        raise TrustError(wrong)
    return _add_signature(bundle, opened, chosen, key)


def joinable(bundle: Path, trust: Trust, now: datetime) -> tuple[Vouched, ...]:
    """The statements beside a bundle that a key of the trust file has signed, newest last.

    Raises:
        InputError: A file cannot be read.
        TrustError: There is no signature file, it is malformed, or nothing in it is vouched for; every reason.
    """
    path = signature_path(bundle)
    signatures = read_signatures(bundle)
    if signatures is None:
        raise TrustError.one(str(path), "a signature file with a statement to join", "none")
    digest = Digest.of(bundle_file.read(bundle))
    found: list[Vouched] = []
    problems: list[Problem] = []
    for envelope in dsse.parse(signatures, str(path)):
        try:
            found.append(vouched(envelope, bundle.name, digest, trust, now))
        except TrustError as error:
            problems.extend(error.problems)
    if not found:
        raise TrustError(problems)
    return tuple(sorted(found, key=lambda row: row.statement.sequence))


def _check_times(words: Words, now: datetime) -> None:
    """Refuse what every reader would refuse, or what would shut out every later release."""
    newest = newest_sequence(now)
    problems: list[Problem] = []
    if words.sequence > newest:
        found = f"{words.sequence}: no later release could have a higher number in honest time"
        problems.append(Problem("sequence", f"at most {newest}, the present time", found))
    if words.expires is not None and words.expires <= now:
        problems.append(Problem("expires", "a time to come", write_moment(words.expires)))
    if problems:
        raise InputError(problems)


def _verified(path: Path) -> Bundle:
    opened = Bundle.open(path)
    opened.verify()
    return opened


def _add_signature(
    bundle: Path, opened: Bundle, statement: Statement, key: SigningKey, *, fresh: bool = False
) -> Signed:
    """Read, add and write, while no other signer does the same."""
    path = signature_path(bundle)
    payload = statement.to_bytes()
    with _alone(bundle):
        there = {} if fresh else _about(read_signatures(bundle), opened, path)
        envelope = there.get(payload, Envelope(PAYLOAD_TYPE, payload, ()))
        envelope = envelope.signed(Signature(key.public.id, key.sign(envelope.message)))
        there[payload] = envelope
        try:
            bundle_file.publish(path, dsse.to_bytes(list(there.values())))
        except OSError as error:
            found = error.strerror or str(error)
            raise InputError.one(str(path), "a place that can be written", found) from error
    return Signed(path, statement, len(envelope.signatures))


@contextlib.contextmanager
def _alone(bundle: Path) -> Iterator[None]:
    """One signer at a time: the lock is on the bundle file, which nobody replaces while it is being signed."""
    with bundle.open("rb") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > deadline:
                    found = f"a lock that another process has held for {LOCK_SECONDS} seconds"
                    raise InputError.one(str(bundle), "one signer at a time", found) from error
                time.sleep(0.05)
        yield


def _about(data: bytes | None, bundle: Bundle, path: Path) -> dict[bytes, Envelope]:
    """The envelopes in a signature file whose statements are about this bundle, by payload."""
    found: dict[bytes, Envelope] = {}
    for number, envelope in enumerate(dsse.parse(data, str(path)) if data is not None else (), 1):
        if envelope.payload_type != PAYLOAD_TYPE:
            continue
        where = f"{path}: statement {number}"
        statement = Statement.parse(envelope.payload, where)
        if statement.digest != bundle.digest:
            continue
        # What is false is not carried on beside true words.
        if wrong := tuple(statement.mismatches(bundle, where)):
            raise TrustError(wrong)
        found[envelope.payload] = envelope
    return found


def release_problems(approvals: Mapping[Path, Approval]) -> Iterator[tuple[Path, Problem]]:
    """Where bundles that are used together are not of one release.

    A statement names every bundle that was signed together with its own. Another bundle of the same name must be one
    of them: gfx942 code of one release beside gfx950 code of another was never tested together.
    """
    for path, approval in approvals.items():
        release = approval.statement.release
        for other in approvals.values():
            file, name = other.statement.file, other.statement.name
            if len(release) == 1 or name != approval.statement.name:
                continue
            signed, found = release.get(file), other.bundle.digest
            if signed != found:
                expected = f"{file} of the same release, {signed or 'which has none'}"
                yield path, Problem(f"{path}: release", expected, str(found))


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
    data = bundle_file.read(bundle)
    return require(data, bundle.name, read_signatures(bundle), trust, now, at_least=at_least)
