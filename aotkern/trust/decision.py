"""May this bundle be used? A pure decision: every fact comes in as an argument, time included.

Nothing that is not vouched for is parsed: the file is hashed, signatures are verified, only then is the statement read,
and only when that is accepted is the bundle opened, from the very bytes that were hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError, Problem, TrustError
from aotkern.trust import dsse
from aotkern.trust.dsse import Envelope
from aotkern.trust.statement import PAYLOAD_TYPE, Statement, write_moment
from aotkern.trust.trustfile import Rule, Trust, TrustedKey

AHEAD = timedelta(days=1)
"""How far a sequence number, read as seconds since 1970, may lie after the check: clocks differ. A number from the
future could never be followed by a genuine release."""


def newest_sequence(now: datetime) -> int:
    """The highest sequence number that can be honest now."""
    return int((now + AHEAD).timestamp())


@dataclass(frozen=True, slots=True)
class Vouched:
    """A statement under which at least one good signature stands that counts for this bundle.

    Attributes:
        statement: What was signed.
        envelope: The envelope that holds it.
        rule: The rule that decides about the bundle.
        signers: Names of the keys that count.
        reasons: Why the other signatures are nothing.
    """

    statement: Statement
    envelope: Envelope
    rule: Rule
    signers: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    """That a bundle may be used.

    Attributes:
        bundle: The bundle, opened from the bytes that were signed: use this, and do not open the file again.
        statement: What was signed about it; with several accepted statements, that of the highest sequence number.
        signers: Names of the keys that counted.
    """

    bundle: Bundle
    statement: Statement
    signers: tuple[str, ...]


def require(
    data: bytes, file: str, signatures: bytes | None, trust: Trust, now: datetime, *, at_least: int = 0
) -> Approval:
    """Decide about a bundle.

    Args:
        data: The bundle file.
        file: The name under which it is wanted, `NAME.TARGET.aotk`; a signed bundle under another name is refused.
        signatures: The signature file, or None when there is none.
        trust: Whose word counts.
        now: The time of the check, with its zone.
        at_least: The lowest acceptable sequence number, beside that of the trust file: of what is in use already.

    Raises:
        TrustError: Not accepted; every reason of every statement.
        IntegrityError: Accepted by its signers, but not a sound bundle.
        InputError: `now` has no zone.
        MissingToolError: The cryptography library is not installed.
    """
    if now.tzinfo is None:
        raise InputError.one("now", "a time with its zone", now.isoformat())
    # 1. What is revoked needs no signatures.
    digest = Digest.of(data)
    if digest in trust.revoked:
        raise TrustError.one(file, "a bundle that is not revoked", f"{digest}, revoked by the trust file")
    # 2. Envelopes, one by one: signatures, then the statement, then what the trust file asks of it.
    if signatures is None:
        raise TrustError.one(file, "a signature beside it", "none")
    accepted: list[Vouched] = []
    problems: list[Problem] = []
    for number, envelope in enumerate(dsse.parse(signatures, f"{file}{dsse.SUFFIX}"), 1):
        check = _Check(f"{file}{dsse.SUFFIX}: statement {number}", trust, now)
        try:
            accepted.append(check.accept(envelope, file, digest, at_least))
        except TrustError as error:
            problems.extend(error.problems)
    if not accepted:
        raise TrustError(problems)
    best = max(accepted, key=lambda vouched: vouched.statement.sequence)
    statement, signers = best.statement, best.signers
    # 3. The bundle, which must be what the statement says: scope is judged by content, not by claims.
    bundle = Bundle.decode(data, file)
    if bundle.manifest.digest in trust.revoked:
        found = f"manifest {bundle.manifest.digest}, revoked by the trust file"
        raise TrustError.one(file, "a bundle that is not revoked", found)
    if wrong := tuple(statement.mismatches(bundle, f"{file}{dsse.SUFFIX}: statement")):
        raise TrustError(wrong)
    return Approval(bundle, statement, signers)


def vouched(envelope: Envelope, file: str, digest: Digest, trust: Trust, now: datetime) -> Vouched:
    """The statement of an envelope, read only when a key that counts for this bundle has signed it.

    Neither the threshold nor the other demands of the rule are asked: this is what a further signer may join.

    Args:
        envelope: What lies in the signature file.
        file: Name of the bundle file that the statement must be about.
        digest: Its digest.
        trust: Whose word counts.
        now: The time of the check, with its zone.

    Raises:
        TrustError: No signature that counts, or a statement about something else.
    """
    return _Check(f"{file}{dsse.SUFFIX}", trust, now).vouch(envelope, file, digest)


@dataclass(frozen=True, slots=True)
class _Check:
    where: str
    trust: Trust
    now: datetime

    def accept(self, envelope: Envelope, file: str, digest: Digest, at_least: int) -> Vouched:
        """A statement that meets all that its rule asks, or `TrustError`."""
        found = self.vouch(envelope, file, digest)
        if len(found.signers) < found.rule.threshold:
            names = f"{len(found.signers)} ({', '.join(found.signers)})"
            reasons = "; ".join([names, *found.reasons])
            expected = f"signatures by {found.rule.threshold} keys that count for it"
            raise TrustError.one(self.where, expected, reasons)
        if problems := tuple(self._asked(found.statement, found.rule, at_least)):
            raise TrustError(problems)
        return found

    def vouch(self, envelope: Envelope, file: str, digest: Digest) -> Vouched:
        """A statement with at least one signature that counts for this bundle, or `TrustError`."""
        if envelope.payload_type != PAYLOAD_TYPE:
            raise TrustError.one(f"{self.where}: payloadType", PAYLOAD_TYPE, repr(envelope.payload_type)[:100])
        keys, reasons = self._verified(envelope)
        if not keys:
            raise TrustError.one(self.where, "a signature by a key of the trust file", "; ".join(reasons))
        statement = Statement.parse(envelope.payload, self.where)
        if problems := tuple(self._about(statement, file, digest)):
            raise TrustError(problems)
        if (name := Digest.of(envelope.payload)) in self.trust.revoked:
            found = f"{name}, revoked by the trust file"
            raise TrustError.one(self.where, "a statement that is not revoked", found)
        rule = self.trust.rule(statement.name, statement.target)
        if rule is None:
            found = f"no rule for {statement.name} on {statement.target}"
            raise TrustError.one(self.where, "a bundle that a rule of the trust file is about", found)
        signers = tuple(key.name for key in keys if key.public.id in rule.keys)
        others = [key.name for key in keys if key.public.id not in rule.keys]
        reasons += [f"key {name} does not count for this bundle" for name in others]
        if not signers:
            expected = f"signatures by {rule.threshold} keys that count for it"
            raise TrustError.one(self.where, expected, "; ".join(["0", *reasons]))
        return Vouched(statement, envelope, rule, signers, tuple(reasons))

    def _verified(self, envelope: Envelope) -> tuple[list[TrustedKey], list[str]]:
        """The different keys that count now and whose signature is good; and why the other signatures are nothing."""
        keys: dict[Digest, TrustedKey] = {}
        reasons: list[str] = []
        for signature in envelope.signatures:
            key = self.trust.keys.get(signature.key)
            if key is None:
                reasons.append(f"key {signature.key.short} is not in the trust file")
            elif late := key.refusal(self.now):
                reasons.append(late)
            elif not key.public.verifies(signature.value, envelope.message):
                reasons.append(f"the signature of key {key.name} is not over these bytes")
            else:
                keys[signature.key] = key
        return list(keys.values()), reasons

    def _about(self, statement: Statement, file: str, digest: Digest) -> Iterator[Problem]:
        if statement.digest != digest:
            yield Problem(f"{self.where}: subject", f"a statement about {digest}", f"about {statement.digest}")
        if statement.file != file:
            yield Problem(f"{self.where}: subject", f"a statement about {file!r}", f"about {statement.file!r}"[:200])

    def _asked(self, statement: Statement, rule: Rule, at_least: int) -> Iterator[Problem]:
        lowest = max(rule.sequence, at_least)
        if statement.sequence < lowest:
            yield Problem(f"{self.where}: sequence", f"at least {lowest}", f"{statement.sequence}, an older release")
        yield from self._current(statement, rule)
        for kind in rule.audits:
            verdicts = sorted({audit.verdict for audit in statement.audits if audit.kind == kind})
            if verdicts != ["clean"]:
                yield Problem(f"{self.where}: audits", f"{kind}: clean", ", ".join(verdicts) or "no report")

    def _current(self, statement: Statement, rule: Rule) -> Iterator[Problem]:
        """What a statement says of times, held against the time of the check."""
        newest, expires = newest_sequence(self.now), statement.expires
        if statement.sequence > newest:
            found = f"{statement.sequence}, a number from the future"
            yield Problem(f"{self.where}: sequence", f"at most {newest}, the present time", found)
        if expires is not None and self.now >= expires:
            found = f"one that expired at {write_moment(expires)}"
            yield Problem(f"{self.where}: expires", "a statement that still counts", found)
        if rule.max_days is None:
            return
        latest = self.now + timedelta(days=rule.max_days)
        if expires is None or expires > latest:
            expected = f"a statement that expires within {rule.max_days} days"
            found = write_moment(expires) or "one that never does"
            yield Problem(f"{self.where}: expires", expected, found)
