"""A registry, or somebody between it and us, that serves other bytes: refused, and nothing gets its name."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from registries import PASSWORD, TRUST, FakeRegistry, Outgoing, at
from registries import fake as another
from vouching import GFX942, GFX950, NOW, bundle, key, key_table, rule_table, sealed, statement, trust

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.distribution import Package, Pulled, Wanted, package, pull
from aotkern.distribution import artifact as artifacts
from aotkern.distribution.artifact import Artifact, Index
from aotkern.distribution.login import Credentials
from aotkern.distribution.reference import Reference
from aotkern.distribution.registry import Registry
from aotkern.errors import InputError, IntegrityError, ProblemsError, RemoteError, TrustError

Pull = Callable[..., Pulled]


@pytest.fixture(autouse=True)
def nothing_gets_its_name(outgoing: Outgoing) -> object:
    """Whatever a test does: unless it pulls something good, there is no file but parts."""
    yield
    if outgoing.into.exists():
        assert [path.name for path in outgoing.into.iterdir() if not path.name.endswith(".part")] == []


def is_blob(path: str) -> bool:
    return "/blobs/" in path


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (lambda body: bytes([body[0] ^ 1]) + body[1:], "expected sha256:"),
        (lambda body: body[:-1] + bytes([body[-1] ^ 1]), "expected sha256:"),
        (lambda body: body + b"\0", "found more"),
        (lambda body: body + bytes(1 << 22), "found more"),
        (lambda body: bytes(len(body)), "expected sha256:"),
        (gzip.compress, "expected|found"),
    ],
)
def test_other_bytes_for_a_blob(
    served: FakeRegistry, pulled: Pull, tamper: Callable[[bytes], bytes], expected: str
) -> None:
    served.tamper = lambda path, body: tamper(body) if is_blob(path) else body
    for by in (TRUST, None):
        with pytest.raises(IntegrityError, match=expected):
            pulled(by=by)


def test_a_shorter_blob_never_becomes_whole(served: FakeRegistry, pulled: Pull, outgoing: Outgoing) -> None:
    digest = str(Digest.of(outgoing.path().read_bytes()))
    served.tamper = lambda path, body: body[:-1] if path.endswith(digest) else body
    for by in (TRUST, None):
        with pytest.raises(RemoteError, match="416 fewer bytes"):
            pulled(by=by)


def test_other_bytes_for_a_manifest_that_was_named_by_digest(served: FakeRegistry, pulled: Pull) -> None:
    served.tamper = lambda path, body: body.replace(b"hip:gfx942", b"hip:gfx950") if "sha256:" in path else body
    with pytest.raises(IntegrityError, match="expected sha256:"):
        pulled()


def test_a_pinned_index_cannot_be_exchanged(
    served: FakeRegistry, fake: tuple[FakeRegistry, str], outgoing: Outgoing
) -> None:
    digest = served.tags["v1"]
    served.tamper = lambda path, body: Index().to_bytes() if path.endswith(digest) else body
    with pytest.raises(IntegrityError, match=digest):
        pull(at(fake[1], f"team/pack@{digest}"), Wanted(GFX942), outgoing.into, TRUST, NOW)


def test_a_compressed_body_is_not_unpacked(served: FakeRegistry, pulled: Pull) -> None:
    """A kilobyte that says it is a gigabyte stays a kilobyte."""
    served.tamper = lambda path, body: gzip.compress(bytes(1 << 24)) if is_blob(path) else body
    served.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(IntegrityError):
        pulled()


def replace_with(served: FakeRegistry, package_: Package, **changes: object) -> None:
    """Let the tag point to another artifact."""
    made = json.loads(Artifact.of(package_).to_bytes())
    for data in (package_.data, package_.signatures):
        if data is not None:
            served.blobs[str(Digest.of(data))] = data
    made.update(changes)
    served.add(dumps(made).encode(), artifacts.MANIFEST_TYPE, "v1")


def forged(data: bytes, signatures: bytes | None, name: str = "pack") -> Package:
    return Package(name, GFX942, data, signatures, Digest.of(b"whatever"))


def test_a_consistent_registry_that_nobody_vouches_for(served: FakeRegistry, pulled: Pull) -> None:
    """Every digest is right; only the signatures are not."""
    other = bundle("evil")
    replace_with(served, forged(other, None))
    with pytest.raises(TrustError, match="a signature beside it, found none"):
        pulled()
    replace_with(served, forged(other, sealed(statement(other), key(9))))
    with pytest.raises(TrustError, match="not in the trust file"):
        pulled()
    replace_with(served, forged(other, sealed(statement(bundle()), key(1))))
    with pytest.raises(TrustError, match="a statement about"):
        pulled()
    replace_with(served, forged(other, b"not signatures"))
    with pytest.raises(TrustError, match="line feed"):
        pulled()


def test_a_good_bundle_of_another_name_or_target(served: FakeRegistry, pulled: Pull) -> None:
    more = bundle("more")
    replace_with(served, forged(more, sealed(statement(more, "more.gfx942.aotk"), key(1))))
    with pytest.raises(TrustError, match=r"about 'pack.gfx942.aotk', found about 'more.gfx942.aotk'"):
        pulled()
    other = bundle("one", GFX950)
    replace_with(served, forged(other, sealed(statement(other, "pack.gfx950.aotk"), key(1))))
    with pytest.raises(TrustError, match=r"pack\.gfx942\.aotk"):
        pulled()
    with pytest.raises(IntegrityError, match="code for hip:gfx942, found code for hip:gfx950"):
        pulled(by=None)


def test_a_name_that_leaves_the_folder(served: FakeRegistry, pulled: Pull) -> None:
    for name in ("../pack", "/pack", "a/b", ".hidden", "", "a\0b", "x" * 101):
        annotations = {artifacts.NAME: name, artifacts.TARGET: "hip:gfx942"}
        replace_with(served, forged(bundle(), None), annotations=annotations)
        with pytest.raises((InputError, IntegrityError)):
            pulled(by=None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mediaType": "application/vnd.docker.distribution.manifest.v2+json"}, "mediaType"),
        ({"mediaType": None}, "a media type"),
        ({"schemaVersion": 1}, "schemaVersion"),
        ({"artifactType": "application/vnd.example"}, "artifactType"),
        ({"manifests": []}, "no manifests in"),
        ({"layers": []}, "a bundle, and its signatures or nothing"),
        ({"layers": 7}, "a list of at most"),
        ({"layers": [{"mediaType": artifacts.BUNDLE_TYPE, "digest": "sha256:0", "size": 1}]}, "64 lower-case"),
        ({"layers": [{"mediaType": artifacts.BUNDLE_TYPE, "digest": str(Digest.of(b"")), "size": -1}]}, "an integer"),
        ({"layers": [{"mediaType": artifacts.BUNDLE_TYPE, "digest": str(Digest.of(b"")), "size": 1 << 40}]}, "at most"),
        ({"layers": [{"mediaType": "text/plain", "digest": str(Digest.of(b"")), "size": 1}]}, "a bundle, and its"),
        ({"annotations": {"a": 1}}, "an object of texts"),
        ({"annotations": {}}, "a bundle for hip:gfx942"),
        ({"annotations": {artifacts.NAME: "pack", artifacts.TARGET: "hip:gfx950"}}, "found pack for hip:gfx950"),
    ],
)
def test_a_manifest_that_is_none(served: FakeRegistry, pulled: Pull, changes: dict[str, object], expected: str) -> None:
    replace_with(served, forged(bundle(), None), **changes)
    with pytest.raises(IntegrityError, match=expected):
        pulled()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"\x80\x04N.",
        b"[" * 200_000,
        b'{"mediaType":"a","mediaType":"b"}',
        b'{"mediaType":NaN}',
        b'{"a":' + b"9" * 100_000 + b"}",
        dumps({"schemaVersion": 2, "mediaType": artifacts.INDEX_TYPE, "manifests": [{}]}).encode(),
        dumps({"schemaVersion": 2, "mediaType": artifacts.INDEX_TYPE, "manifests": [], "layers": []}).encode(),
        dumps({"schemaVersion": 2, "mediaType": artifacts.INDEX_TYPE, "manifests": [0] * 10_001}).encode(),
        b" " * (artifacts.MAX_DOCUMENT + 1),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_document_that_is_none(served: FakeRegistry, pulled: Pull, document: bytes) -> None:
    served.tamper = lambda path, body: document if path.endswith("/v1") else body
    with pytest.raises(IntegrityError):
        pulled()


def test_an_index_of_indexes_is_not_followed(served: FakeRegistry, pulled: Pull) -> None:
    index = json.loads(served.manifests[served.tags["v1"]][0])
    for entry in index["manifests"]:
        entry["mediaType"] = artifacts.INDEX_TYPE
    served.add(dumps(index).encode(), artifacts.INDEX_TYPE, "v1")
    with pytest.raises(IntegrityError, match=r"manifests: expected application/vnd.oci.image.manifest"):
        pulled()


def test_a_server_error_is_no_verdict_and_ends(served: FakeRegistry, pulled: Pull) -> None:
    """Retried, but not for as long as the answer's `Retry-After` would like."""
    served.status = [503] * 50
    with pytest.raises(RemoteError, match="status 503"):
        pulled()
    assert len(served.status) == 45, "five requests"
    served.status = [403]
    with pytest.raises(RemoteError, match="403 no access"):
        pulled()


def test_redirects_without_end_end(served: FakeRegistry, fake: tuple[FakeRegistry, str], pulled: Pull) -> None:
    served.storage = f"http://{fake[1]}/v2/team/pack/blobs/"
    with pytest.raises(RemoteError, match="TooManyRedirects"):
        pulled()


def test_nobody_there(outgoing: Outgoing) -> None:
    with another() as (_, host):
        pass
    with pytest.raises(RemoteError, match="a registry that answers"):
        pull(at(host, "team/pack:v1"), Wanted(GFX942), outgoing.into, TRUST, NOW)


def test_a_tag_that_points_to_something_else_is_not_overwritten(
    served: FakeRegistry, fake: tuple[FakeRegistry, str], outgoing: Outgoing
) -> None:
    image = dumps({"schemaVersion": 2, "mediaType": artifacts.MANIFEST_TYPE}).encode()
    digest = served.add(image, artifacts.MANIFEST_TYPE, "v1")
    with pytest.raises(RemoteError, match="an index of bundles, or no such tag"):
        at(fake[1], "team/pack:v1").publish([package(outgoing.path(), None, NOW)])
    assert served.tags["v1"] == str(digest)


def test_a_push_that_another_one_ran_over_says_so(
    served: FakeRegistry, fake: tuple[FakeRegistry, str], outgoing: Outgoing
) -> None:
    outgoing.make(seed="new")
    pushed = False

    def other_push(path: str, body: bytes) -> bytes:
        nonlocal pushed
        pushed = pushed or not path.endswith("/v1")
        return body if len(served.asked("PUT", "/manifests/v1")) == 0 else Index().to_bytes()

    served.tamper = other_push
    with pytest.raises(RemoteError, match="that was pushed, found another one"):
        at(fake[1], "team/pack:v1").publish([package(outgoing.path(), None, NOW)])


def test_redirected_blobs_get_no_credentials(fake: tuple[FakeRegistry, str], outgoing: Outgoing) -> None:
    """Registries keep blobs elsewhere; that host learns nothing of ours, and its bytes are hashed all the same."""
    registry, host = fake
    registry.login = "basic"
    remote = Registry(Reference.parse(f"{host}/team/pack:v1"), Credentials("alice", PASSWORD), plain=True)
    remote.publish([package(outgoing.path(), None, NOW)])
    with another() as (storage, elsewhere):
        storage.blobs.update(registry.blobs)
        registry.storage = f"http://localhost:{elsewhere.rpartition(':')[2]}/storage/"
        folder = outgoing.folder / "good"
        assert pull(remote, Wanted(GFX942), folder, TRUST, NOW).changed
        assert storage.authorizations
        assert set(storage.authorizations) == {""}
        storage.tamper = lambda _, body: bytes(len(body))
        with pytest.raises(IntegrityError, match="expected sha256:"):
            pull(remote, Wanted(GFX942), outgoing.into, TRUST, NOW)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_answers_are_never_accepted(served: FakeRegistry, pulled: Pull, outgoing: Outgoing, seed: int) -> None:
    chance = random.Random(seed)
    good = {path.read_bytes() for path in outgoing.folder.iterdir()}

    def mutate(path: str, body: bytes) -> bytes:
        out = bytearray(body)
        if out and chance.random() < 0.6:
            at_ = chance.randrange(len(out))
            out[at_ : at_ + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
        return bytes(out)

    served.tamper = mutate
    refused = 0
    for number in range(100):
        try:
            done = pulled(by=None if number % 2 else TRUST)
        except ProblemsError:
            refused += 1
            continue
        assert done.path.read_bytes() in good, "accepted: but then it is what was pushed"
        for path in (done.path, Path(f"{done.path}.sig")):
            path.unlink(missing_ok=True)
    assert refused > 50


def test_a_key_for_one_target_does_not_open_the_door_for_another(served: FakeRegistry, pulled: Pull) -> None:
    with pytest.raises(TrustError, match="no rule for pack on hip:gfx950"):
        pulled(GFX950, by=trust(key_table("a", key(1)), rule_table("a", target='"hip:gfx942"')))
