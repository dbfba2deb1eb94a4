"""Plain stores through fsspec: a folder in memory, a folder on disk, and what has no backend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from registries import TRUST, Outgoing
from vouching import GFX942, GFX950, NOW, bundle, key, key_table, rule_table, trust

pytest.importorskip("fsspec")

import fsspec

from aotkern.distribution import Wanted, package, pull, push
from aotkern.distribution.stores import Store
from aotkern.errors import InputError, IntegrityError, MissingToolError, RemoteError, TrustError
from aotkern.trust import signature_path


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return "memory://kernels/v1"
    return f"file://{tmp_path}/store/v1"


def send(url: str, outgoing: Outgoing, *targets: object) -> str:
    return push(Store(url), [package(outgoing.path(target), None, NOW) for target in targets])


def files(url: str) -> dict[str, bytes]:
    system, root = fsspec.core.url_to_fs(url)
    return {path.rpartition("/")[2]: system.cat_file(path) for path in system.ls(root, detail=False)}


def test_there_and_back(url: str, outgoing: Outgoing) -> None:
    assert send(url, outgoing, GFX942, GFX950) == url
    assert files(url) == {path.name: path.read_bytes() for path in outgoing.folder.iterdir()}
    for target in (GFX942, GFX950):
        done = pull(Store(url + "/"), Wanted(target), outgoing.into, TRUST, NOW)
        assert done.path.read_bytes() == outgoing.path(target).read_bytes()
        assert done.address == f"{url}/pack.{target.slug}.aotk"
    assert len(list(outgoing.into.iterdir())) == 4


def test_names_choose(url: str, outgoing: Outgoing) -> None:
    outgoing.make(GFX942, "more", "two")
    push(Store(url), [package(outgoing.path(GFX942, name), None, NOW) for name in ("pack", "more")])
    with pytest.raises(RemoteError, match=r"one file NAME\.gfx942\.aotk, found more, pack"):
        pull(Store(url), Wanted(GFX942), outgoing.into, None, NOW)
    assert pull(Store(url), Wanted(GFX942, "more"), outgoing.into, None, NOW).path.name == "more.gfx942.aotk"
    with pytest.raises(RemoteError, match=r"one file none\.gfx942\.aotk"):
        pull(Store(url), Wanted(GFX942, "none"), outgoing.into, None, NOW)


def test_an_unsigned_push_takes_an_old_signature_away(url: str, outgoing: Outgoing) -> None:
    send(url, outgoing, GFX942)
    signature_path(outgoing.path()).unlink()
    send(url, outgoing, GFX942)
    assert list(files(url)) == ["pack.gfx942.aotk"]
    with pytest.raises(TrustError, match="found none"):
        pull(Store(url), Wanted(GFX942), outgoing.into, TRUST, NOW)


def test_what_a_store_serves_is_judged_like_anything(url: str, outgoing: Outgoing) -> None:
    send(url, outgoing, GFX942)
    system, root = fsspec.core.url_to_fs(url)
    good = outgoing.path().read_bytes()
    for data, by, error in (
        (bundle("other"), TRUST, TrustError),
        (good[:-1], TRUST, TrustError),
        (good[:-1], None, IntegrityError),
        (bundle("one", GFX950), None, IntegrityError),
        (b"", None, IntegrityError),
    ):
        system.pipe_file(f"{root}/pack.gfx942.aotk", data)
        with pytest.raises(error):
            pull(Store(url), Wanted(GFX942), outgoing.into, by, NOW)
        assert list(outgoing.into.iterdir()) == []
    strict = trust(key_table("a", key(1)), rule_table("a", sequence=6))
    system.pipe_file(f"{root}/pack.gfx942.aotk", good)
    with pytest.raises(TrustError, match="an older release"):
        pull(Store(url), Wanted(GFX942), outgoing.into, strict, NOW)


def test_a_part_of_a_store_is_resumed(url: str, outgoing: Outgoing) -> None:
    send(url, outgoing, GFX942)
    outgoing.into.mkdir()
    (outgoing.into / ".pack.gfx942.aotk.unnamed.part").write_bytes(outgoing.path().read_bytes()[:50])
    assert pull(Store(url), Wanted(GFX942), outgoing.into, TRUST, NOW).changed


def test_nothing_there(url: str, outgoing: Outgoing) -> None:
    with pytest.raises(RemoteError, match="a store that answers"):
        pull(Store(url + "/none"), Wanted(GFX942), outgoing.into, None, NOW)


def test_addresses_without_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="an address that fsspec understands"):
        Store("nonsense://x")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingToolError, match="s3fs"):
        Store("s3://bucket/x")
