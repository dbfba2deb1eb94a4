"""Signature files on disk: who signs what, what is kept, what is dropped, and that the bundle never changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from vouching import GFX942, GFX950, NOW, bundle, key, key_table, rule_table, sealed, statement, trust

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, TrustError
from aotkern.trust import Audit, Signed, Statement, Trust, require_file, sign, signature_path
from aotkern.trust import statement as statements
from aotkern.trust.dsse import parse

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
    signed = sign(pack, A, 3, [CLEAN], 100)
    first = signed.path.read_bytes()
    assert (signed.path.name, signed.signatures) == ("pack.gfx942.aotk.sig", 1)
    assert sign(pack, A, 3, [CLEAN], 200).signatures == 1
    assert (signed.path.read_bytes(), pack.read_bytes()) == (first, before)
    assert sorted(path.name for path in pack.parent.iterdir()) == [pack.name, signed.path.name]
    assert require_file(pack, both(), NOW).statement.audits == (CLEAN,)


def test_a_second_signer_joins_the_newest_statement(pack: Path) -> None:
    for sequence in (3, 4):
        sign(pack, A, sequence, [CLEAN], 0)
    assert sign(pack, B, None, (), 999) == Signed(
        signature_path(pack), Statement.parse(statement(pack.read_bytes(), sequence=4, audits=[CLEAN]), "x"), 2
    )
    assert kept(pack) == [(3, 1), (4, 2)]
    assert require_file(pack, both(threshold=2), NOW).signers == ("a", "b")


def test_the_clock_is_the_sequence_where_none_is_given(pack: Path) -> None:
    assert sign(pack, A, None, (), 1_700_000_000).statement.sequence == 1_700_000_000


def test_statements_about_an_earlier_build_are_dropped(pack: Path) -> None:
    sign(pack, A, 3, (), 0)
    pack.write_bytes(bundle("rebuilt"))
    with pytest.raises(TrustError, match="subject"):
        require_file(pack, both(), NOW)
    sign(pack, B, None, (), 4)
    assert kept(pack) == [(4, 1)]


def test_nobody_signs_under_words_that_are_not_so(pack: Path) -> None:
    said = json.loads(statement(pack.read_bytes()))
    said["predicate"]["provenance"] = {"revision": "f" * 40}
    signature_path(pack).write_bytes(sealed(dumps(said).encode(), A))
    with pytest.raises(TrustError, match="provenance: expected what the bundle holds"):
        sign(pack, B, None, (), 0)


def test_a_damaged_bundle_or_signature_file_is_not_signed(pack: Path) -> None:
    signature_path(pack).write_bytes(b"{}\n")
    with pytest.raises(TrustError, match="exactly the fields"):
        sign(pack, A, None, (), 0)
    signature_path(pack).unlink()
    pack.write_bytes(pack.read_bytes()[:-1])
    with pytest.raises(IntegrityError):
        sign(pack, A, None, (), 0)
    assert not signature_path(pack).exists()


@pytest.mark.parametrize("name", ["pack.aotk", "pack.gfx950.aotk", ".gfx942.aotk", "pack.gfx942.bin"])
def test_the_name_says_the_target(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bundle())
    with pytest.raises(InputError, match=r"a file name such as NAME\.gfx942\.aotk"):
        sign(tmp_path / name, A, None, (), 0)


def test_a_link_in_place_of_the_signature_file_is_replaced_not_followed(pack: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    signature_path(pack).symlink_to(outside)
    sign(pack, A, None, (), 0)
    assert not outside.exists()
    assert not signature_path(pack).is_symlink()


def test_a_folder_that_cannot_be_read_or_written_is_an_input_error(pack: Path) -> None:
    signature_path(pack).mkdir()
    with pytest.raises(InputError, match="a signature file that can be read"):
        require_file(pack, both(), NOW)
    with pytest.raises(InputError, match="a bundle that can be read"):
        require_file(pack.with_name("none.gfx942.aotk"), both(), NOW)


def test_at_least_reaches_the_decision(pack: Path) -> None:
    sign(pack, A, 3, (), 0)
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
