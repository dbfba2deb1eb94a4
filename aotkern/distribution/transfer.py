"""Push and pull: what is checked before a bundle leaves, and before one that came gets its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aotkern import bundle as bundles
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.distribution import download
from aotkern.distribution.patience import ANSWER_SECONDS, within
from aotkern.distribution.remote import Offer, Package, Remote, Wanted, checked_name, file_name
from aotkern.errors import InputError, IntegrityError, ProblemsError
from aotkern.trust import Approval, Memory, Trust, dsse, require, require_file, signature_path
from aotkern.trust.files import read_signatures
from aotkern.trust.statement import name_of


@dataclass(frozen=True, slots=True)
class Pulled:
    """A bundle that is in place.

    Attributes:
        path: The file.
        digest: Its digest.
        address: Where it came from, as exact as the remote can say it.
        approval: Why it was accepted, or None when no signature was asked for.
        changed: False when the same bytes were there already.
    """

    path: Path
    digest: Digest
    address: str
    approval: Approval | None
    changed: bool


def package(path: Path, trust: Trust | None, now: datetime) -> Package:
    """A bundle that is fit to be sent: every byte of it checked, and vouched for where a trust file asks for that.

    Raises:
        InputError: A file cannot be read, or its name is not `NAME.TARGET.aotk`.
        IntegrityError: The bundle is damaged.
        TrustError: It would not be accepted.
    """
    bundle = require_file(path, trust, now).bundle if trust else Bundle.open(path)
    bundle.verify()
    manifest = bundle.manifest
    name = checked_name(name_of(path.name, manifest.target), str(path))
    return Package(name, manifest.target, bundle.content, read_signatures(path), manifest.digest)


def push(remote: Remote, packages: Sequence[Package]) -> str:
    """Hand bundles to a remote.

    Returns:
        The most exact address of what is there now.

    Raises:
        InputError: Two of them have the same name and target.
        RemoteError: The remote does not take them.
    """
    if len({item.file for item in packages}) != len(packages):
        raise InputError.one("bundles", "each name and target once", "one more than once")
    return remote.publish(packages)


def pull(
    remote: Remote,
    wanted: Wanted,
    folder: Path,
    trust: Trust | None,
    now: datetime,
    *,
    older: bool = False,
    memory: Memory | None = None,
) -> Pulled:
    """Fetch a bundle, check it, and only then put it and its signatures in place.

    Args:
        remote: Where from.
        wanted: What.
        folder: Where to; made when it does not exist.
        trust: Whose word counts, or None to take what is sound whoever made it.
        now: The time of the check, with its zone.
        older: Accept a lower sequence number than that of the bundle in place, and than the memory holds.
        memory: What was accepted here before, apart from the folder; it is told of what is accepted now.

    Raises:
        RemoteError: It is not there, or did not arrive.
        TrustError: Not vouched for, or older than what is in place.
        IntegrityError: What arrived is not a sound bundle for the target.
        InputError: The folder cannot be written.
    """
    offer = within(ANSWER_SECONDS, str(wanted.target), lambda: remote.find(wanted))
    path = folder / file_name(offer.name, wanted.target)
    signatures = download.small(offer.signatures, dsse.MAX_BYTES) if offer.signatures else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.one(str(folder), "a folder that can be made", error.strerror or str(error)) from error
    data, changed = _data(offer, path)
    # Only bytes in memory from here on: they are hashed, judged, opened and written, and never read again.
    approval = None
    if trust:
        known = 0 if older or memory is None else memory.lowest(offer.name, wanted.target, trust)
        at_least = 0 if older else max(known, _in_use(path, trust, now))
        approval = require(data, path.name, signatures, trust, now, at_least=at_least)
    bundle = approval.bundle if approval else Bundle.decode(data, path.name)
    if bundle.manifest.target != wanted.target:
        raise IntegrityError.one(offer.address, f"code for {wanted.target}", f"code for {bundle.manifest.target}")
    bundle.verify()
    if memory is not None and approval is not None:
        # Before the file is in place: a crash in between refuses an older release, and never accepts one.
        memory.remember(approval.statement)
    _publish(path, data if changed else None, signatures)
    download.sweep(folder, path.name)
    return Pulled(path, bundle.digest, offer.address, approval, changed)


def _data(offer: Offer, path: Path) -> tuple[bytes, bool]:
    """The bundle's bytes, and whether they had to be fetched."""
    if offer.bundle.digest is not None:
        try:
            data = bundles.read(path)
        except ProblemsError:
            data = b""
        if Digest.of(data) == offer.bundle.digest:
            return data, False
    return download.fetch(offer.bundle, path.parent, path.name, bundles.MAX_FILE), True


def _in_use(path: Path, trust: Trust, now: datetime) -> int:
    """The sequence number of what is in place; 0 where nothing is that would be accepted itself."""
    try:
        return require_file(path, trust, now).statement.sequence
    except ProblemsError:
        return 0


def _publish(path: Path, data: bytes | None, signatures: bytes | None) -> None:
    """Signatures first: a reader between the two steps sees a bundle that is refused, never one that should be."""
    beside = signature_path(path)
    try:
        if signatures is None:
            beside.unlink(missing_ok=True)
        elif signatures != read_signatures(path):
            bundles.publish(beside, signatures)
        if data is not None:
            bundles.publish(path, data)
    except OSError as error:
        raise InputError.one(str(path), "a place that can be written", error.strerror or str(error)) from error
