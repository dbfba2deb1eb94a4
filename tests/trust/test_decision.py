"""The decision about a bundle: what is accepted, and each attack with its refusal."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

pytest.importorskip("cryptography")

from vouching import GFX950, NOW, bundle, key, key_table, rule_table, sealed, statement, trust

from aotkern.bundle import Bundle
from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, TrustError
from aotkern.trust import Approval, Audit, Statement, require
from aotkern.trust.dsse import Envelope, Signature, to_bytes
from aotkern.trust.statement import PAYLOAD_TYPE
from aotkern.trust.trustfile import Trust

FILE = "pack.gfx942.aotk"
DATA = bundle()
A, B, C = key(1), key(2), key(3)
KEYS = (key_table("a", A), key_table("b", B), key_table("c", C))
ONE_OF_A = trust(*KEYS, rule_table("a"))
TWO_OF_THREE = trust(*KEYS, rule_table("a b c", threshold=2))
CLEAN = Audit("identity", "clean", Digest.of(b"report"))


def ask(
    signatures: bytes | None, by: Trust = ONE_OF_A, data: bytes = DATA, file: str = FILE, **more: object
) -> Approval:
    return require(data, file, signatures, by, NOW, **more)


def refused(expected: str, signatures: bytes | None, by: Trust = ONE_OF_A, **more: object) -> TrustError:
    with pytest.raises(TrustError, match=expected) as caught:
        ask(signatures, by, **more)
    return caught.value


def test_a_signed_bundle_is_opened_from_the_bytes_that_were_signed() -> None:
    approval = ask(sealed(statement(DATA, audits=[CLEAN]), A))
    assert approval.signers == ("a",)
    assert approval.bundle.data is DATA
    assert (approval.statement.sequence, approval.statement.audits) == (5, (CLEAN,))
    assert approval.statement.manifest == approval.bundle.manifest.digest


def test_signing_does_not_depend_on_what_it_is_written_with() -> None:
    """Canonical: the same facts in another order give the same payload and the same signature."""
    again = Statement.parse(statement(DATA), "x").to_bytes()
    assert sealed(again, A) == sealed(statement(DATA), A)


# Attacks on the pair of bundle and signature.


def test_a_changed_byte_anywhere_in_the_bundle() -> None:
    signatures = sealed(statement(DATA), A)
    for place in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[place] ^= 1
        refused("subject: expected a statement about sha256", signatures, data=bytes(damaged))


def test_a_rebuilt_bundle_with_another_manifest() -> None:
    refused("a statement about sha256", sealed(statement(DATA), A), data=bundle("other"))


def test_a_changed_statement() -> None:
    """Whoever can write the file but not sign: the payload is exchanged, the signature kept."""
    (line,) = sealed(statement(bundle("other")), A).splitlines()
    value = json.loads(line)
    value["payload"] = base64.b64encode(statement(DATA)).decode()
    refused("the signature of key a is not over these bytes", dumps(value).encode() + b"\n")


def test_swapped_signatures_of_two_packages() -> None:
    other = bundle("two")
    refused("a statement about", sealed(statement(other, "more.gfx942.aotk"), A))
    refused("a statement about", sealed(statement(DATA), A), data=other, file="more.gfx942.aotk")


def test_a_package_with_its_own_signature_under_the_name_of_another() -> None:
    everything = trust(*KEYS, rule_table("a", bundle='"*"'))
    other = bundle("two")
    signatures = sealed(statement(other, "more.gfx942.aotk"), A)
    assert ask(signatures, everything, data=other, file="more.gfx942.aotk")
    refused("about 'pack.gfx942.aotk', found about 'more.gfx942.aotk'", signatures, everything, data=other)


def test_a_stripped_signature() -> None:
    refused("expected a signature beside it, found none", None)
    refused("1 to 32 lines", b"")


def test_an_older_release_with_its_own_good_signature() -> None:
    old = sealed(statement(DATA, sequence=5), A)
    refused("sequence: expected at least 6, found 5, an older release", old, trust(*KEYS, rule_table("a", sequence=6)))
    refused("expected at least 7", old, at_least=7)
    assert ask(old, trust(*KEYS, rule_table("a", sequence=5)), at_least=5)


def test_the_newest_of_several_accepted_statements_counts() -> None:
    both = sealed(statement(DATA, sequence=9), A) + sealed(statement(DATA, sequence=5), A)
    assert ask(both, at_least=9).statement.sequence == 9


# Attacks on keys.


def test_an_unknown_key() -> None:
    refused(f"key {key(9).public.id.short} is not in the trust file", sealed(statement(DATA), key(9)))


def test_a_signature_under_the_id_of_a_trusted_key() -> None:
    payload = statement(DATA)
    envelope = Envelope(PAYLOAD_TYPE, payload, ())
    forged = envelope.signed(Signature(A.public.id, key(9).sign(envelope.message)))
    refused("is not over these bytes", to_bytes([forged]))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [("2026-01-01", "2026-06-30", "has not counted since"), ("2026-07-02", "2027-01-01", "does not count before")],
)
def test_a_key_out_of_its_time(start: str, end: str, expected: str) -> None:
    refused(expected, sealed(statement(DATA), A), trust(key_table("a", A, start, end), rule_table("a")))


def test_rotation_takes_one_overlap() -> None:
    """During the overlap both signatures are there; afterwards the new key alone carries the bundle."""
    rotating = trust(
        key_table("old", A, "2026-01-01", "2026-08-01"),
        key_table("new", B, "2026-06-01", "2027-06-01"),
        rule_table("old new"),
    )
    signatures = sealed(statement(DATA), A, B)

    def signers(when: datetime) -> Sequence[str]:
        return require(DATA, FILE, signatures, rotating, when).signers

    assert signers(NOW - timedelta(days=60)) == ("old",)
    assert signers(NOW) == ("old", "new")
    assert signers(NOW + timedelta(days=60)) == ("new",)


def test_a_key_that_is_not_for_this_bundle() -> None:
    error = refused("signatures by 1 keys that count for it, found 0", sealed(statement(DATA), B))
    assert "key b does not count for this bundle" in str(error)


def test_a_bundle_that_no_rule_is_about() -> None:
    refused(
        "no rule for pack on hip:gfx942", sealed(statement(DATA), A), trust(*KEYS, rule_table("a", target='"cuda:*"'))
    )
    refused("no rule for pack", sealed(statement(DATA), A), trust(*KEYS, rule_table("a", bundle='"more"')))


def test_a_signer_who_claims_another_target_than_the_bundle_has() -> None:
    """Scope is judged by content: a key for gfx942 signs a gfx950 bundle as if it were for gfx942."""
    data = bundle(target=GFX950)
    honest = json.loads(statement(data, "pack.gfx950.aotk"))
    honest["subject"][0]["name"] = FILE
    honest["predicate"]["target"] = "hip:gfx942"
    only_942 = trust(*KEYS, rule_table("a", target='"hip:gfx942"'))
    refused("expected a file name such as NAME.gfx950.aotk", sealed(dumps(honest).encode(), A), only_942, data=data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "more"),
        ("manifest", str(Digest.of(b"x"))),
        ("toolchain", {"triton": "9"}),
        ("sources", {"k": "v"}),
        ("provenance", {}),
    ],
)
def test_a_signer_who_says_what_the_bundle_is_not(field: str, value: object) -> None:
    said = json.loads(statement(DATA))
    said["predicate"][field] = value
    refused(
        f"{field}: expected what the bundle holds",
        sealed(dumps(said).encode(), A),
        trust(*KEYS, rule_table("a", bundle='"*"')),
    )


# Thresholds.


def test_a_threshold_needs_different_keys_under_one_statement() -> None:
    payload = statement(DATA)
    assert ask(sealed(payload, A, C), TWO_OF_THREE).signers == ("a", "c")
    assert ask(sealed(payload, A) + sealed(payload, B), TWO_OF_THREE).signers == ("a", "b"), "two lines, one statement"
    refused("signatures by 2 keys that count for it, found 1", sealed(payload, A), TWO_OF_THREE)


def test_the_same_key_twice_does_not_count_twice() -> None:
    payload = statement(DATA)
    refused("found 1", sealed(payload, A) + sealed(payload, A), TWO_OF_THREE)
    envelope = json.loads(sealed(payload, A))
    envelope["signatures"] *= 2
    refused("each key once", dumps(envelope).encode() + b"\n", TWO_OF_THREE)


def test_one_signature_under_two_key_ids_counts_once() -> None:
    envelope = Envelope(PAYLOAD_TYPE, statement(DATA), ())
    value = A.sign(envelope.message)
    refused(
        "found 1",
        to_bytes([envelope.signed(Signature(A.public.id, value)).signed(Signature(B.public.id, value))]),
        TWO_OF_THREE,
    )


def test_signers_of_different_statements_do_not_add_up() -> None:
    refused("found 1", sealed(statement(DATA, sequence=5), A) + sealed(statement(DATA, sequence=6), B), TWO_OF_THREE)


def test_signatures_that_do_not_count_do_no_harm() -> None:
    """Anybody may add a line or a signature; it must not take away what others said."""
    payload = statement(DATA)
    noise = sealed(payload, key(9)) + sealed(b"[]", key(9)) + sealed(statement(bundle("x")), A)
    assert ask(noise + sealed(payload, A)).signers == ("a",)


# Revocation, audits, types.


@pytest.mark.parametrize("digest", [Digest.of(DATA), Bundle.decode(DATA, FILE).manifest.digest])
def test_a_revoked_file_or_manifest(digest: Digest) -> None:
    by = trust(*KEYS, rule_table("a"), revoked=[str(digest)])
    refused("revoked by the trust file", sealed(statement(DATA), A), by)


def test_audits_that_the_rule_asks_for() -> None:
    by = trust(*KEYS, rule_table("a", audits='["identity", "numerics"]'))
    numerics = Audit("numerics", "clean", Digest.of(b"n"))
    assert ask(sealed(statement(DATA, audits=[CLEAN, numerics]), A), by)
    error = refused("identity: clean, found no report", sealed(statement(DATA), A), by)
    assert len(error.problems) == 2
    bad = Audit("numerics", "findings", Digest.of(b"m"))
    refused("numerics: clean, found findings", sealed(statement(DATA, audits=[CLEAN, bad]), A), by)
    refused("found clean, findings", sealed(statement(DATA, audits=[CLEAN, numerics, bad]), A), by)


def test_a_payload_of_another_type() -> None:
    """Bytes that were signed as something else are no statement, though they read as one."""
    payload = statement(DATA)
    other = sealed(payload, A, payload_type="text/plain")
    refused("payloadType: expected application/vnd.in-toto", other)
    relabelled = json.loads(other)
    relabelled["payloadType"] = PAYLOAD_TYPE
    refused("is not over these bytes", dumps(relabelled).encode() + b"\n")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1", "_type"),
        (("predicateType",), "https://slsa.dev/provenance/v1", "predicateType"),
        (("predicate",), None, "exactly the fields"),
        (("predicate", "extra"), 1, "exactly the fields"),
        (("predicate", "sequence"), -1, "an integer"),
        (("predicate", "sequence"), True, "an integer"),
        (("predicate", "target"), "gfx999", "limits are known"),
        (("predicate", "target"), "gfx942", "canonical JSON"),
        (("predicate", "audits"), [["identity", "clean"]], "exactly the fields"),
        (("predicate", "audits"), {}, "a list of lists"),
        (("subject",), [], "one bundle"),
        (("subject",), [{"name": FILE, "digest": {"sha256": Digest.of(DATA).hex}}] * 2, "one bundle"),
        (("subject", 0, "digest"), {"sha1": "00"}, "exactly the fields sha256"),
        (("subject", 0, "digest"), {"sha256": Digest.of(DATA).hex.upper()}, "lower-case hex"),
    ],
)
def test_a_signed_payload_that_is_no_statement_of_this_version(
    path: tuple[object, ...], value: object, expected: str
) -> None:
    said = json.loads(statement(DATA))
    place = said
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    refused(expected, sealed(dumps(said).encode(), A))


def test_a_signed_payload_in_another_spelling() -> None:
    refused("canonical JSON", sealed(json.dumps(json.loads(statement(DATA))).encode(), A))


def test_a_time_without_a_zone_is_no_time() -> None:
    with pytest.raises(InputError, match="a time with its zone"):
        require(DATA, FILE, None, ONE_OF_A, datetime(2026, 7, 1))


def test_a_broken_bundle_with_a_good_signature_is_not_handed_out() -> None:
    payload = statement(DATA).replace(Digest.of(DATA).hex.encode(), Digest.of(DATA[:-1]).hex.encode())
    with pytest.raises(IntegrityError, match="bytes, as the header says"):
        ask(sealed(payload, A), data=DATA[:-1])


def test_nothing_is_parsed_before_a_signature_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("parsed without a signature that counts")

    monkeypatch.setattr(Statement, "parse", never)
    monkeypatch.setattr(Bundle, "decode", never)
    payload = base64.b64decode(json.loads(sealed(b"{", A))["payload"])
    refused("not in the trust file", sealed(payload, key(9)))
