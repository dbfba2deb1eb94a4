"""`keygen`, `sign` and `verify --require-signature`, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

import jsonschema
from vouching import GFX950, bundle, rule_table

from aotkern import schemas

BUNDLE = "pack.gfx942.aotk"


def aotkern(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    done = subprocess.run(
        [sys.executable, "-m", "aotkern", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def document(folder: Path, *arguments: str) -> dict[str, object]:
    """What a command prints for machines, held against its schema."""
    found = json.loads(aotkern(folder, *arguments, "--json")[1])
    jsonschema.Draft202012Validator(schemas.load(found["schema"].split("/")[0].partition(".")[2])).validate(found)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle, two keys and a trust file that asks for both of them."""
    (tmp_path / BUNDLE).write_bytes(bundle())
    tables = []
    for name in ("one", "two"):
        code, table = aotkern(tmp_path, "keygen", f"{name}.pem", "--name", name)
        assert code == 0, table
        tables.append(table)
    text = "\n".join(["version = 1", "revoked = []", *tables, rule_table("one two", threshold=2)])
    (tmp_path / "trust.toml").write_text(text)
    return tmp_path


def test_from_key_to_acceptance(folder: Path) -> None:
    verify = ("verify", BUNDLE, "--require-signature", "trust.toml")
    assert aotkern(folder, *verify) == (1, f"REFUSED {BUNDLE}: expected a signature beside it, found none\n")
    code, said = aotkern(folder, "sign", BUNDLE, "--key", "one.pem", "--sequence", "7")
    assert code == 0
    assert f"{BUNDLE}.sig: 1 signature under this statement, sha256:" in said.splitlines()[-1]
    code, said = aotkern(folder, *verify)
    assert code == 1
    assert "signatures by 2 keys that count for it, found 1 (one)" in said
    code, said = aotkern(folder, "sign", BUNDLE, "--list", "--trust", "trust.toml")
    assert (code, " by one: sequence 7, no audits" in said) == (0, True)
    joining = ("--join", said.split()[1], "--trust", "trust.toml")
    code, said = aotkern(folder, "sign", BUNDLE, "--key", "two.pem", *joining)
    assert (code, f"{BUNDLE}.sig: 2 signatures under this statement" in said) == (0, True)
    code, said = aotkern(folder, *verify)
    assert code == 0
    assert ", signed by one and two (7), sha256:" in said
    assert aotkern(folder, "verify", BUNDLE)[0] == 0


def test_the_documents(folder: Path) -> None:
    report = {"schema": "aotkern.identity/1", "verdict": "clean", "target": "hip:gfx942"}
    (folder / "report.json").write_text(json.dumps(report))
    signed = document(folder, "sign", BUNDLE, "--key", "one.pem", "--audit", "report.json")
    (made,) = signed["signed"]
    assert (signed["verdict"], made["signatures"]) == ("clean", 1)
    assert [row["kind"] for row in made["audits"]] == ["identity"]
    verify = ("verify", BUNDLE, "--require-signature", "trust.toml")
    found = document(folder, *verify)
    assert (found["verdict"], len(found["bundles"][0]["problems"])) == ("findings", 1)
    (offered,) = document(folder, "sign", BUNDLE, "--list", "--trust", "trust.toml")["statements"]
    assert (offered["statement"], offered["signers"]) == (made["statement"], ["one"])
    joining = ("--join", made["statement"], "--trust", "trust.toml")
    document(folder, "sign", BUNDLE, "--key", "two.pem", *joining)
    (row,) = document(folder, *verify)["bundles"]
    assert (row["signers"], row["sequence"]) == (["one", "two"], made["sequence"])
    (folder / BUNDLE).write_bytes(bundle()[:-1])
    refused = document(folder, "sign", BUNDLE, "--key", "two.pem")
    assert (refused["verdict"], len(refused["problems"])) == ("findings", 1)


def test_what_cannot_be_told_is_not_a_finding(folder: Path) -> None:
    for arguments, expected in (
        (("verify", BUNDLE, "--require-signature", "none.toml"), "a trust file that can be read"),
        (("verify", BUNDLE, "--require-signature", "one.pem"), "TOML"),
        (("sign", BUNDLE, "--key", "none.pem"), "a file that can be read"),
        (("sign", BUNDLE, "--key", "one.pem.pub"), "a private key"),
        (("sign", BUNDLE, "--key", "one.pem", "--audit", "one.pem"), "a report in JSON"),
        (("sign", "none.gfx942.aotk", "--key", "one.pem"), "a bundle that can be read"),
        (("sign", BUNDLE), "--key: expected a private key"),
        (("sign", BUNDLE, "--list"), "--trust: expected a trust file"),
        (("sign", BUNDLE, "--key", "one.pem", "--trust", "trust.toml"), "--list or --join beside it"),
        (("sign", BUNDLE, "--key", "one.pem", "--join", "x", "--sequence", "1", "--trust", "trust.toml"), "words of"),
        (("sign", BUNDLE, "--key", "one.pem", "--sequence", str(2**48 - 1)), "at most"),
    ):
        code, said = aotkern(folder, *arguments)
        assert (code, expected in said) == (2, True), (arguments, said)


def test_a_damaged_bundle_is_a_finding_and_stays_unsigned(folder: Path) -> None:
    data = (folder / BUNDLE).read_bytes()
    (folder / BUNDLE).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, said = aotkern(folder, "sign", BUNDLE, "--key", "one.pem")
    assert (code, said.startswith("REFUSED")) == (1, True)
    assert not (folder / f"{BUNDLE}.sig").exists()


def test_without_the_library_only_signatures_are_out_of_reach(folder: Path) -> None:
    start = "import sys; sys.modules['cryptography'] = None; from aotkern.cli import main; main()"
    aotkern(folder, "sign", BUNDLE, "--key", "one.pem")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", start, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert run("verify", BUNDLE).returncode == 0
    for arguments in (("verify", BUNDLE, "--require-signature", "trust.toml"), ("keygen", "new.pem")):
        done = run(*arguments)
        assert (done.returncode, "pip install 'aotkern[signing]'" in done.stderr) == (2, True)
    assert not (folder / "new.pem").exists()


def test_keys_are_private_and_never_overwritten(folder: Path) -> None:
    private, public = folder / "one.pem", folder / "one.pem.pub"
    assert (private.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)
    before = private.read_bytes()
    for gone in ((), (public,)):
        for path in gone:
            path.unlink()
        assert aotkern(folder, "keygen", "one.pem")[0] == 2
    assert private.read_bytes() == before


def test_an_encrypted_key_needs_its_passphrase(folder: Path) -> None:
    (folder / "pass").write_text("correct horse\n")
    (folder / "empty").write_text("\n")
    assert aotkern(folder, "keygen", "safe.pem", "--passphrase-file", "pass")[0] == 0
    assert "ENCRYPTED" in (folder / "safe.pem").read_text()
    assert aotkern(folder, "sign", BUNDLE, "--key", "safe.pem")[0] == 2
    assert aotkern(folder, "sign", BUNDLE, "--key", "safe.pem", "--passphrase-file", "empty")[0] == 2
    assert aotkern(folder, "sign", BUNDLE, "--key", "safe.pem", "--passphrase-file", "pass")[0] == 0


def test_bundles_that_are_used_together_are_of_one_release(folder: Path) -> None:
    other = "pack.gfx950.aotk"
    (folder / other).write_bytes(bundle(target=GFX950))
    text = (folder / "trust.toml").read_text().replace("threshold = 2", "threshold = 1")
    (folder / "trust.toml").write_text(text)
    verify = ("verify", BUNDLE, other, "--require-signature", "trust.toml")
    assert aotkern(folder, "sign", BUNDLE, other, "--key", "one.pem", "--sequence", "7")[0] == 0
    assert aotkern(folder, *verify)[0] == 0
    (folder / other).write_bytes(bundle("newer", GFX950))
    assert aotkern(folder, "sign", other, "--key", "one.pem", "--sequence", "8")[0] == 0
    code, said = aotkern(folder, *verify)
    assert (code, f"REFUSED {BUNDLE}: release: expected {other} of the same release" in said) == (1, True)
    rows = document(folder, *verify)["bundles"]
    assert [len(row["problems"]) for row in rows] == [1, 0]
    assert aotkern(folder, "verify", other, "--require-signature", "trust.toml")[0] == 0


def test_a_report_counts_for_its_own_target_only(folder: Path) -> None:
    other = "pack.gfx950.aotk"
    (folder / other).write_bytes(bundle(target=GFX950))
    for target in ("gfx942", "gfx950", "gfx90a"):
        report = {"schema": "aotkern.identity/1", "verdict": "clean", "target": f"hip:{target}"}
        (folder / f"{target}.json").write_text(json.dumps(report))
    both = ("sign", BUNDLE, other, "--key", "one.pem")
    made = document(folder, *both, "--audit", "gfx942.json")["signed"]
    assert [len(row["audits"]) for row in made] == [1, 0]
    code, said = aotkern(folder, *both, "--audit", "gfx90a.json")
    assert (code, "a report about hip:gfx942" in said) == (2, True)
