"""`push` and `pull`, as a user runs them, against a registry on loopback and a folder."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("requests")

import jsonschema
import registries
from vouching import GFX950, bundle, key, key_table, rule_table, signed, trust_text

from aotkern import schemas

PACK = "pack.gfx942.aotk"


@pytest.fixture
def fake() -> Iterator[tuple[registries.FakeRegistry, str]]:
    with registries.fake() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Signed bundles for two targets, and a trust file that counts for this century."""
    for name, data in ((PACK, bundle()), ("pack.gfx950.aotk", bundle(target=GFX950))):
        (tmp_path / name).write_bytes(data)
        signed(tmp_path / name, key(1))
    always = key_table("a", key(1), "2000-01-01", "2100-01-01")
    (tmp_path / "trust.toml").write_text(trust_text(always, rule_table("a")))
    (tmp_path / "other.toml").write_text(trust_text(always, rule_table("a", bundle='"more"')))
    return tmp_path


def aotkern(folder: Path, *arguments: str, without: str = "") -> tuple[int, str]:
    """Exit code and everything printed; `without` names a library that is not there."""
    start = f"import sys; sys.modules[{without!r}] = None if {without!r} else sys; from aotkern.cli import main; main()"
    environ = {**os.environ, "DOCKER_CONFIG": str(folder / "docker"), "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments], cwd=folder, capture_output=True, text=True, check=False, env=environ
    )
    return done.returncode, done.stdout + done.stderr


def document(folder: Path, *arguments: str) -> dict[str, object]:
    """What a command prints for machines, held against its schema."""
    found = json.loads(aotkern(folder, *arguments, "--json")[1])
    jsonschema.Draft202012Validator(schemas.load(found["schema"].split("/")[0].partition(".")[2])).validate(found)
    return found


def test_to_a_registry_and_back(folder: Path, fake: tuple[registries.FakeRegistry, str]) -> None:
    to = f"{fake[1]}/team/pack:v1"
    code, said = aotkern(folder, "push", PACK, "pack.gfx950.aotk", to, "--plain-http")
    assert code == 0, said
    pinned = said.splitlines()[-1].removeprefix("to ")
    assert pinned.startswith(f"{fake[1]}/team/pack@sha256:")
    pull = ("--target", "gfx942", "--out", "in", "--require-signature", "trust.toml", "--plain-http")
    for source, word in ((to, "pulled"), (pinned, "unchanged")):
        code, said = aotkern(folder, "pull", source, *pull)
        assert (code, said.split(",")[0]) == (0, f"{word} in/{PACK}: signed by a"), said
    assert (folder / "in" / PACK).read_bytes() == (folder / PACK).read_bytes()
    fake[0].tamper = lambda path, body: bytes(len(body)) if "/blobs/" in path else body
    (folder / "in" / PACK).unlink()
    code, said = aotkern(folder, "pull", to, *pull)
    assert (code, said.startswith("REFUSED")) == (1, True)
    assert not (folder / "in" / PACK).exists()


def test_the_documents(folder: Path) -> None:
    store = f"file://{folder}/store"
    pushed = document(folder, "push", PACK, store)
    assert (pushed["verdict"], pushed["bundles"]) == (
        "clean",
        [{"file": PACK, "target": "hip:gfx942", "signed": True}],
    )
    pull = ("pull", store, "-t", "gfx942", "-o", "in")
    refused = document(folder, *pull, "--require-signature", "other.toml")
    assert (refused["verdict"], len(refused["problems"])) == ("findings", 1)
    pulled = document(folder, *pull, "--require-signature", "trust.toml")
    assert (pulled["signers"], pulled["changed"]) == (["a"], True)
    assert document(folder, *pull, "--unsigned")["signers"] == []
    assert document(folder, "push", PACK, store, "--require-signature", "other.toml")["verdict"] == "findings"


def test_login_from_the_docker_configuration(folder: Path, fake: tuple[registries.FakeRegistry, str]) -> None:
    fake[0].login = "bearer"
    (folder / "docker").mkdir()
    auth = base64.b64encode(f"{registries.USER}:{registries.PASSWORD}".encode()).decode()
    (folder / "docker" / "config.json").write_text(json.dumps({"auths": {fake[1]: {"auth": auth}}}))
    assert aotkern(folder, "push", PACK, f"{fake[1]}/team/pack:v1", "--plain-http")[0] == 0
    wrong = base64.b64encode(b"alice:other").decode()
    (folder / "docker" / "config.json").write_text(json.dumps({"auths": {fake[1]: {"auth": wrong}}}))
    assert aotkern(folder, "push", PACK, f"{fake[1]}/team/pack:v1", "--plain-http")[0] == 2


def test_what_cannot_be_told(folder: Path) -> None:
    store = f"file://{folder}/store"
    aotkern(folder, "push", PACK, store)
    for arguments, expected in (
        (("pull", store, "-t", "gfx942"), "expected one of the two, found neither"),
        (("pull", store, "-t", "gfx942", "--unsigned", "--require-signature", "trust.toml"), "found both"),
        (("pull", store, "-t", "gfx942", "--require-signature", "none.toml"), "a trust file that can be read"),
        (("pull", store, "-t", "gfx950", "--unsigned"), "one file NAME.gfx950.aotk"),
        (("pull", store, "-t", "gfx9", "--unsigned"), "--target"),
        (("pull", "team/pack:v1", "-t", "gfx942", "--unsigned"), "HOST[:PORT]/REPOSITORY"),
        (("push", PACK, "nonsense://x"), "an address that fsspec understands"),
        (("push", "trust.toml", store), "REFUSED"),
    ):
        code, said = aotkern(folder, *arguments)
        assert (code, expected in said) == (1 if expected == "REFUSED" else 2, True), (arguments, said)


@pytest.mark.parametrize(
    ("without", "source", "extra"),
    [
        ("requests", "registry.example/team/pack:v1", "aotkern[oci]"),
        ("fsspec", "file:///nowhere", "aotkern[stores]"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(folder: Path, without: str, source: str, extra: str) -> None:
    code, said = aotkern(folder, "pull", source, "-t", "gfx942", "--unsigned", without=without)
    assert (code, extra in said) == (2, True), said
    assert aotkern(folder, "verify", PACK, without=without)[0] == 0
