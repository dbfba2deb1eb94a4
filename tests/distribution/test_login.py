"""Logging in: passwords, tokens, what `docker login` left, and what is not told to whom."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from registries import PASSWORD, TRUST, USER, FakeRegistry, Outgoing
from vouching import GFX942, NOW

from aotkern.distribution import Wanted, package, pull
from aotkern.distribution.login import Credentials, stored
from aotkern.distribution.reference import Reference
from aotkern.distribution.registry import Registry
from aotkern.errors import InputError, RemoteError

ALICE = Credentials(USER, PASSWORD)


def remote(host: str, credentials: Credentials | None, *, plain: bool = True) -> Registry:
    return Registry(Reference.parse(f"{host}/team/pack:v1"), credentials, plain=plain)


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_push_and_pull_log_in(fake: tuple[FakeRegistry, str], outgoing: Outgoing, login: str) -> None:
    registry, host = fake
    registry.login = login
    remote(host, ALICE).publish([package(outgoing.path(), None, NOW)])
    assert pull(remote(host, ALICE), Wanted(GFX942), outgoing.into, TRUST, NOW).changed


def test_anonymous_tokens(fake: tuple[FakeRegistry, str], outgoing: Outgoing) -> None:
    registry, host = fake
    registry.login = "bearer"
    remote(host, None).publish([package(outgoing.path(), None, NOW)])
    assert pull(remote(host, None), Wanted(GFX942), outgoing.into, TRUST, NOW).changed


@pytest.mark.parametrize("credentials", [None, Credentials(USER, "wrong")])
def test_a_refused_login_ends_after_one_try(
    fake: tuple[FakeRegistry, str], outgoing: Outgoing, credentials: Credentials | None
) -> None:
    registry, host = fake
    registry.login = "basic"
    with pytest.raises(RemoteError, match="401 log in with `docker login`") as caught:
        pull(remote(host, credentials), Wanted(GFX942), outgoing.into, TRUST, NOW)
    assert len(registry.requests) <= 2
    assert "wrong" not in str(caught.value)


def test_a_token_server_that_refuses(fake: tuple[FakeRegistry, str], outgoing: Outgoing) -> None:
    registry, host = fake
    registry.login = "bearer"
    with pytest.raises(RemoteError, match=r"a token from .*status 401 without one"):
        pull(remote(host, Credentials(USER, "wrong")), Wanted(GFX942), outgoing.into, TRUST, NOW)


@pytest.mark.parametrize("realm", ["ftp://x/token", "file:///etc/passwd", "//x", "x"])
def test_a_token_server_of_another_kind_is_not_asked(
    fake: tuple[FakeRegistry, str], outgoing: Outgoing, realm: str
) -> None:
    registry, host = fake
    registry.login, registry.realm = "bearer", realm
    with pytest.raises(RemoteError, match="a token server that is reached by https"):
        pull(remote(host, ALICE), Wanted(GFX942), outgoing.into, TRUST, NOW)


def test_a_secure_registry_may_not_name_an_insecure_token_server() -> None:
    found = remote("registry.example", ALICE, plain=False)
    with pytest.raises(RemoteError, match="reached by https"):
        found._login.answer('Bearer realm="http://registry.example/token"', "x")


def test_no_netrc_file_adds_anything(
    fake: tuple[FakeRegistry, str], outgoing: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, host = fake
    netrc = outgoing.folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login bob password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    remote(host, None).publish([package(outgoing.path(), None, NOW)])
    assert set(registry.authorizations) == {""}


def test_credentials_have_no_repr() -> None:
    assert PASSWORD not in repr(ALICE)


def config(folder: Path, **value: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(value))
    return path


def test_what_docker_login_left(tmp_path: Path) -> None:
    auth = base64.b64encode(b"alice:se:cret").decode()
    path = config(tmp_path, auths={"localhost:5000": {"auth": auth}, "empty.example": {}})
    assert stored(path, "localhost:5000") == Credentials("alice", "se:cret")
    assert stored(path, "empty.example") is None
    assert stored(path, "localhost:5001") is None
    assert stored(tmp_path / "none.json", "localhost:5000") is None


def helper(folder: Path, body: str) -> None:
    path = folder / "docker-credential-test"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_credential_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    helper(tmp_path, 'read host; echo "{\\"Username\\":\\"$1\\",\\"Secret\\":\\"$host\\"}"')
    by_host = config(tmp_path, credHelpers={"a.example": "test"})
    assert stored(by_host, "a.example") == Credentials("get", "a.example")
    assert stored(by_host, "b.example") is None
    everything = config(tmp_path, credsStore="test", auths={"b.example": {}})
    assert stored(everything, "b.example") == Credentials("get", "b.example")
    helper(tmp_path, "echo credentials not found; exit 1")
    assert stored(everything, "b.example") is None
    for body in ("echo hello", "echo '{}'", "echo '[]'"):
        helper(tmp_path, body)
        with pytest.raises(InputError, match="a credential helper that answers"):
            stored(everything, "b.example")
    with pytest.raises(InputError, match="docker-credential-absent"):
        stored(config(tmp_path, credsStore="absent"), "b.example")


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"auths":[]}', '{"auths":{"a":{"auth":"%"}}}', '{"auths":{"a":7}}', "\xff"]
)
def test_a_configuration_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="a docker configuration"):
        stored(path, "a")
