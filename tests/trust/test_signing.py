"""Signature files on disk: who signs what, what is kept, what is dropped, and that the bundle never changes."""

from __future__ import annotations

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from vouching import (
    GFX942,
    GFX950,
    NOW,
    bundle,
    key,
    key_table,
    rule_table,
    sealed,
    signed,
    statement,
    trust,
)

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, TrustError
from aotkern.trust import (
    Audit,
    Statement,
    Trust,
    Words,
    files,
    join,
    joinable,
    require_file,
    sign,
    signature_path,
)
from aotkern.trust import statement as statements
from aotkern.trust.dsse import Envelope, Signature, parse, to_bytes
from aotkern.trust.files import release_problems

A, B = key(1), key(2)
CLEAN = Audit("identity", "clean", Digest.of(b"report"))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "pack.gfx942.aotk"
    path.write_bytes(bundle())
    return path


def both(threshold: int = 1, **changes: object) -> Trust:
    return trust(key_table("a", A), key_table("b", B), rule_table("a b", threshold=threshold, **changes))


def kept(path: Path) -> list[tuple[int, int]]:
    """Sequence and number of signatures of each statement beside a bundle."""
    data = signature_path(path).read_bytes()
    return [(Statement.parse(item.payload, "x").sequence, len(item.signatures)) for item in parse(data, "x")]


def test_signing_leaves_the_bundle_alone_and_is_repeatable(pack: Path) -> None:
    before = pack.read_bytes()
    done = signed(pack, A, 3, CLEAN)
    first = done.path.read_bytes()
    assert (done.path.name, done.signatures) == ("pack.gfx942.aotk.sig", 1)
    assert signed(pack, A, 3, CLEAN).signatures == 1
    assert (done.path.read_bytes(), pack.read_bytes()) == (first, before)
    assert sorted(path.name for path in pack.parent.iterdir()) == [pack.name, done.path.name]
    assert require_file(pack, both(), NOW).statement.audits == (CLEAN,)


def forge(path: Path, sequence: int, *audits: Audit) -> bytes:
    """A statement that is true of the bundle where that can be checked, under a signature that is nothing."""
    payload = statement(path.read_bytes(), sequence=sequence, audits=audits)
    return to_bytes([Envelope(statements.PAYLOAD_TYPE, payload, (Signature(A.public.id, b"no signature"),))])


def test_signing_takes_nothing_from_what_lies_there(pack: Path) -> None:
    """Whoever can write the signature file must not put words into a signer's mouth."""
    lie = forge(pack, 1_700_000_000, CLEAN)
    for there in (lie, sealed(statement(pack.read_bytes(), sequence=4), B) + lie):
        signature_path(pack).write_bytes(there)
        done = signed(pack, B, 5)
        assert (done.statement.sequence, done.statement.audits, done.signatures) == (5, (), 1)
        approval = require_file(pack, trust(key_table("b", B), rule_table("b")), NOW)
        assert (approval.statement.sequence, approval.statement.audits) == (5, ())
        with pytest.raises(TrustError, match="identity: clean, found no report"):
            require_file(pack, trust(key_table("b", B), rule_table("b", audits='["identity"]')), NOW)


def test_a_second_signer_joins_the_statement_that_they_name(pack: Path) -> None:
    for sequence in (3, 4):
        signed(pack, A, sequence, CLEAN)
    offered = joinable(pack, both(), NOW)
    assert [(row.statement.sequence, row.signers) for row in offered] == [(3, ("a",)), (4, ("a",))]
    done = join(pack, B, both(), NOW, offered[-1].statement.id)
    expected = statement(pack.read_bytes(), sequence=4, audits=[CLEAN])
    assert (done.statement, done.signatures) == (Statement.parse(expected, "x"), 2)
    assert kept(pack) == [(3, 1), (4, 2)]
    assert require_file(pack, both(threshold=2), NOW).signers == ("a", "b")


def test_nobody_joins_what_no_trusted_key_has_signed(pack: Path) -> None:
    only_b = trust(key_table("a", A), key_table("b", B), rule_table("b"))
    with pytest.raises(TrustError, match="a signature file with a statement to join, found none"):
        joinable(pack, both(), NOW)
    lie = forge(pack, 9, CLEAN)
    signature_path(pack).write_bytes(lie)
    with pytest.raises(TrustError, match="the signature of key a is not over these bytes"):
        joinable(pack, both(), NOW)
    done = signed(pack, A, 3)
    with pytest.raises(TrustError, match="key a does not count for this bundle"):
        join(pack, B, only_b, NOW, done.statement.id)
    # The forged line stands beside the genuine one, and is not to be had by naming it.
    forged = Digest.of(statement(pack.read_bytes(), sequence=9, audits=[CLEAN]))
    with pytest.raises(InputError, match=f"the statement {forged}, found {done.statement.id}"):
        join(pack, B, both(), NOW, forged)


def test_what_is_joined_is_true_of_the_bundle(pack: Path) -> None:
    said = json.loads(statement(pack.read_bytes()))
    said["predicate"]["provenance"] = {"revision": "f" * 40}
    payload = dumps(said).encode()
    signature_path(pack).write_bytes(sealed(payload, A))
    with pytest.raises(TrustError, match="provenance: expected what the bundle holds"):
        join(pack, B, both(), NOW, Digest.of(payload))
    with pytest.raises(TrustError, match="provenance: expected what the bundle holds"):
        signed(pack, B)
    assert signed(pack, B, fresh=True).signatures == 1


@pytest.mark.parametrize("sequence", [2**48 - 1, int(NOW.timestamp()) + 86_401])
def test_a_number_from_the_future_is_neither_signed_nor_joined_nor_accepted(pack: Path, sequence: int) -> None:
    with pytest.raises(InputError, match="sequence: expected at most"):
        signed(pack, A, sequence)
    payload = statement(pack.read_bytes(), sequence=sequence)
    signature_path(pack).write_bytes(sealed(payload, A))
    with pytest.raises(TrustError, match="a number from the future"):
        require_file(pack, both(), NOW)
    with pytest.raises(InputError, match="sequence: expected at most"):
        join(pack, B, both(), NOW, Digest.of(payload))


def test_words_that_should_not_have_been_signed_are_taken_back(pack: Path) -> None:
    wrong = signed(pack, A, 900)
    assert signed(pack, A, 7, fresh=True).statement.sequence == 7
    assert kept(pack) == [(7, 1)]
    # Who has the earlier file revokes its statement by name.
    signature_path(pack).write_bytes(sealed(wrong.statement.to_bytes(), A))
    revoking = trust(key_table("a", A), rule_table("a"), revoked=[str(wrong.statement.id)])
    with pytest.raises(TrustError, match="a statement that is not revoked"):
        require_file(pack, revoking, NOW)
    signed(pack, A, 7)
    assert require_file(pack, revoking, NOW).statement.sequence == 7


def test_a_statement_ends(pack: Path) -> None:
    end = NOW + timedelta(days=30)
    (done,) = sign({pack: Words(5, (), end)}, A, NOW)
    assert require_file(pack, both(), end - timedelta(seconds=1)).statement == done.statement
    with pytest.raises(TrustError, match="a statement that still counts, found one that expired"):
        require_file(pack, both(), end)
    with pytest.raises(TrustError, match="expires within 29 days, found 2026-07-31"):
        require_file(pack, both(max_days=29), NOW)
    assert require_file(pack, both(max_days=30), NOW)
    with pytest.raises(InputError, match="expires: expected a time to come"):
        sign({pack: Words(5, (), NOW)}, A, NOW)
    signed(pack, A, 6, fresh=True)
    with pytest.raises(TrustError, match="expires within 30 days, found one that never does"):
        require_file(pack, both(max_days=30), NOW)


@pytest.fixture
def release(pack: Path) -> tuple[Path, Path]:
    other = pack.with_name("pack.gfx950.aotk")
    other.write_bytes(bundle("one", GFX950))
    return pack, other


def test_a_release_of_several_targets_is_signed_as_one(release: tuple[Path, Path]) -> None:
    sign({path: Words(7) for path in release}, A, NOW)
    approvals = {path: require_file(path, both(), NOW) for path in release}
    assert set(approvals[release[0]].statement.release) == {path.name for path in release}
    assert not list(release_problems(approvals))
    # A newer gfx950 beside the older gfx942: each is well signed, together they are no release.
    release[1].write_bytes(bundle("two", GFX950))
    sign({release[1]: Words(8)}, A, NOW)
    mixed = {path: require_file(path, both(), NOW) for path in release}
    ((path, problem),) = release_problems(mixed)
    assert path == release[0]
    assert "pack.gfx950.aotk of the same release" in problem.expected


def test_files_of_one_name_are_no_release(release: tuple[Path, Path]) -> None:
    twin = release[0].parent / "again" / release[0].name
    twin.parent.mkdir()
    twin.write_bytes(release[0].read_bytes())
    with pytest.raises(InputError, match="one or more, with different file names"):
        sign({release[0]: Words(1), twin: Words(1)}, A, NOW)
    with pytest.raises(InputError, match="one or more"):
        sign({}, A, NOW)


def test_signers_at_the_same_time_lose_nothing(pack: Path) -> None:
    signers = [key(number) for number in range(10, 26)]
    with ThreadPoolExecutor(len(signers)) as pool:
        list(pool.map(lambda one: signed(pack, one, 5), signers))
    (envelope,) = parse(signature_path(pack).read_bytes(), "x")
    assert {item.key for item in envelope.signatures} == {one.public.id for one in signers}


def test_a_signer_does_not_wait_for_ever(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0)
    with pack.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="one signer at a time, found a lock"):
            signed(pack, A)


def test_statements_about_an_earlier_build_are_dropped(pack: Path) -> None:
    signed(pack, A, 3)
    pack.write_bytes(bundle("rebuilt"))
    with pytest.raises(TrustError, match="subject"):
        require_file(pack, both(), NOW)
    signed(pack, B, 4)
    assert kept(pack) == [(4, 1)]


def test_a_damaged_bundle_or_signature_file_is_not_signed(pack: Path) -> None:
    signature_path(pack).write_bytes(b"{}\n")
    with pytest.raises(TrustError, match="exactly the fields"):
        signed(pack, A)
    signature_path(pack).unlink()
    pack.write_bytes(pack.read_bytes()[:-1])
    with pytest.raises(IntegrityError):
        signed(pack, A)
    assert not signature_path(pack).exists()


@pytest.mark.parametrize("name", ["pack.aotk", "pack.gfx950.aotk", ".gfx942.aotk", "pack.gfx942.bin"])
def test_the_name_says_the_target(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bundle())
    with pytest.raises(InputError, match=r"a file name such as NAME\.gfx942\.aotk"):
        signed(tmp_path / name, A)


def test_a_link_in_place_of_the_signature_file_is_replaced_not_followed(pack: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    signature_path(pack).symlink_to(outside)
    signed(pack, A)
    assert not outside.exists()
    assert not signature_path(pack).is_symlink()


def test_a_folder_that_cannot_be_read_or_written_is_an_input_error(pack: Path) -> None:
    signature_path(pack).mkdir()
    with pytest.raises(InputError, match="a signature file that can be read"):
        require_file(pack, both(), NOW)
    with pytest.raises(InputError, match="a bundle that can be read"):
        require_file(pack.with_name("none.gfx942.aotk"), both(), NOW)


def test_at_least_reaches_the_decision(pack: Path) -> None:
    signed(pack, A, 3)
    assert require_file(pack, both(), NOW, at_least=3)
    with pytest.raises(TrustError, match="an older release"):
        require_file(pack, both(), NOW, at_least=4)


def report(kind: str, verdict: str = "clean", **more: object) -> bytes:
    return json.dumps({"schema": f"aotkern.{kind}/1", "verdict": verdict, "seconds": 0.5, **more}).encode()


def test_reports_become_audits() -> None:
    one = report("numerics", target="hip:gfx942")
    assert statements.audits(one, GFX942, "r") == (Audit("numerics", "clean", Digest.of(one)),)
    rows = [
        json.loads(report("identity", v, target=t)) for v, t in (("clean", "hip:gfx942"), ("findings", "hip:gfx950"))
    ]
    many = report("audit", "findings", reports=rows)
    assert statements.audits(many, GFX942, "r") == (Audit("identity", "clean", Digest.of(many)),)
    assert statements.audits(many, GFX950, "r") == (Audit("identity", "findings", Digest.of(many)),)


def test_a_gate_counts_as_a_whole_and_by_its_steps() -> None:
    steps = [
        {"name": "identity", "verdict": "clean", "report": json.loads(report("identity", target="hip:gfx942"))},
        {"name": "resources", "verdict": "findings", "report": json.loads(report("resources", target="hip:gfx950"))},
        {"name": "verify", "verdict": "could not tell", "report": None},
    ]
    data = report("gate", "findings", steps=steps)
    found = [(audit.kind, audit.verdict) for audit in statements.audits(data, GFX942, "r")]
    assert found == [("gate", "findings"), ("identity", "clean"), ("verify", "could not tell")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "a report in JSON"),
        (b"\xff", "a report in JSON"),
        (b"[" * 100_000, "a report in JSON"),
        (b"[]", "a report: `schema`"),
        (b"{}", "a report: `schema`"),
        (b'{"schema":"other/1","verdict":"clean"}', "a report: `schema`"),
        (b'{"schema":7,"verdict":"clean"}', "a report: `schema`"),
        (b'{"schema":"aotkern.x/1","verdict":["clean"]}', "a report: `schema`"),
        (b'{"schema":"aotkern.gate/1","verdict":"clean","steps":[{"name":1}]}', "a report: `schema`"),
        (b'{"schema":"aotkern.gate/1","verdict":"clean","steps":[7]}', "a report: `schema`"),
        (b'{"schema":"aotkern.audit/1","verdict":"clean","reports":[{}]}', "a report: `schema`"),
        (b'{"schema":"aotkern.x/1","verdict":""}', "a report: `schema`"),
        (b'{"reports":7}', "a report: `schema`"),
        (report("audit", reports=[]), "a report about hip:gfx942"),
        (report("identity", target="hip:gfx950"), "a report about hip:gfx942, found hip:gfx950"),
    ],
)
def test_what_is_no_report_about_the_bundle(data: bytes, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        statements.audits(data, GFX942, "report.json")
