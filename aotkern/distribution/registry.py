"""An OCI registry as a `Remote`: the few calls of the distribution specification that bundles need, over `requests`.

Everything that comes by digest is held against it, and everything else is bounded. Nothing is unpacked: neither bodies
that claim to be compressed, nor file names, are of any interest to this client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import requests.adapters
import urllib3

from aotkern import __version__
from aotkern.digest import Digest
from aotkern.distribution import artifact
from aotkern.distribution.artifact import Artifact, Descriptor, Index
from aotkern.distribution.login import SECONDS, Credentials, Login, nobody
from aotkern.distribution.reference import Reference
from aotkern.distribution.remote import CHUNK, Offer, Package, Piece, Wanted, checked_name
from aotkern.errors import InputError, IntegrityError, RemoteError

_RETRIES = urllib3.Retry(
    total=4,
    backoff_factor=0.2,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    raise_on_status=False,
    respect_retry_after_header=False,  # or whoever answers decides how long we sleep
)
_MAX_REDIRECTS = 5

_NETWORK_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class Registry:
    """One repository of a registry, at one tag or digest.

    Args:
        reference: What it is about.
        credentials: For the registry, or None.
        plain: Use http instead of https.
    """

    def __init__(self, reference: Reference, credentials: Credentials | None = None, *, plain: bool = False) -> None:
        self.reference = reference
        self._base = f"{'http' if plain else 'https'}://{reference.registry}/v2/{reference.repository}/"
        self._session = requests.Session()
        self._session.max_redirects = _MAX_REDIRECTS
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=_RETRIES))
        self._session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"aotkern/{__version__}"})
        self._login = Login(self._session, credentials, secure=not plain)

    def find(self, wanted: Wanted) -> Offer:
        """The bundle for a target, by way of an index or directly.

        Raises:
            RemoteError: The registry does not have it, or cannot be reached.
            IntegrityError: What the registry gave is not what was asked for.
        """
        where = str(self.reference)
        data = self._document(self.reference.name, where)
        if artifact.media_type_of(data, where) == artifact.INDEX_TYPE:
            entry = Index.parse(data, where).choose(wanted, where)
            where = str(self.reference.at(entry.digest))
            data = self._document(entry.digest, where)
            if len(data) != entry.size:
                raise IntegrityError.one(where, f"{entry.size} bytes, as the index says", f"{len(data)}")
        found = Artifact.parse(data, where)
        name, target = (found.annotations.get(key, "") for key in (artifact.NAME, artifact.TARGET))
        if target != str(wanted.target) or wanted.name not in (None, name):
            expected = f"{wanted.name or 'a bundle'} for {wanted.target}"
            raise IntegrityError.one(where, expected, f"{name} for {target}"[:200])
        signatures = self._piece(found.signatures) if found.signatures else None
        address = str(self.reference.at(Digest.of(data)))
        return Offer(checked_name(name, where), self._piece(found.bundle), signatures, address)

    def publish(self, packages: Sequence[Package]) -> str:
        """Upload what the registry does not have; the tag is moved last, when everything is there.

        Returns:
            The reference by digest of the index that the tag points to now.

        Raises:
            InputError: The reference has a digest: content decides that, not the sender.
            RemoteError: The registry refuses, or its tag points to something that is no index.
        """
        if isinstance(self.reference.name, Digest):
            raise InputError.one(str(self.reference), "a tag to push to", "a digest")
        for data in (artifact.EMPTY, *(data for p in packages for data in (p.data, p.signatures) if data is not None)):
            self._upload(data)
        artifacts = [Artifact.of(package) for package in packages]
        for item in artifacts:
            document = item.to_bytes()
            self._put(document, artifact.MANIFEST_TYPE, Digest.of(document))
        # A registry offers no way to change a tag only if it is still what it was: between here and the end another
        # push of other targets may be lost. Reading back at least tells.
        index = self._there().merged([item.entry() for item in artifacts]).to_bytes()
        self._put(index, artifact.INDEX_TYPE, self.reference.name)
        if self._document(self.reference.name, str(self.reference)) != index:
            raise RemoteError.one(str(self.reference), f"the index {Digest.of(index)} that was pushed", "another one")
        return str(self.reference.at(Digest.of(index)))

    def _there(self) -> Index:
        """The index that a tag has now."""
        where = str(self.reference)
        data = self._document(self.reference.name, where, missing=b"")
        if not data:
            return Index()
        if (found := artifact.media_type_of(data, where)) != artifact.INDEX_TYPE:
            raise RemoteError.one(where, "an index of bundles, or no such tag", found)
        return Index.parse(data, where)

    def _piece(self, descriptor: Descriptor) -> Piece:
        digest = descriptor.digest
        return Piece(
            where=str(self.reference.at(digest)),
            size=descriptor.size,
            digest=digest,
            read=lambda offset: self._blob(digest, offset),
        )

    def _document(self, name: str | Digest, where: str, missing: bytes | None = None) -> bytes:
        accept = f"{artifact.INDEX_TYPE}, {artifact.MANIFEST_TYPE}"
        with self._send("GET", f"manifests/{name}", where, headers={"Accept": accept}, stream=True) as answer:
            if answer.status_code == requests.codes.not_found and missing is not None:
                return missing
            _demand(answer, where, requests.codes.ok)
            try:
                data = answer.raw.read(artifact.MAX_DOCUMENT + 1, decode_content=False)
            except _NETWORK_ERRORS as error:
                raise RemoteError.one(where, "the whole document", type(error).__name__) from None
        if len(data) > artifact.MAX_DOCUMENT:
            raise IntegrityError.one(where, f"a document of at most {artifact.MAX_DOCUMENT} bytes", "more")
        if isinstance(name, Digest) and Digest.of(data) != name:
            raise IntegrityError.one(where, str(name), str(Digest.of(data)))
        return bytes(data)

    def _blob(self, digest: Digest, offset: int) -> Iterator[bytes]:
        where = str(self.reference.at(digest))
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._send("GET", f"blobs/{digest}", where, headers=headers, stream=True) as answer:
            resumed = answer.status_code == requests.codes.partial_content
            if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                raise RemoteError.one(where, f"bytes from {offset} on", answer.headers.get("Content-Range", "none"))
            if not resumed:
                _demand(answer, where, requests.codes.ok)
            skip = 0 if resumed else offset
            try:
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    yield chunk[skip:]
                    skip = max(0, skip - len(chunk))
            except _NETWORK_ERRORS as error:
                raise RemoteError.one(where, "the whole blob", type(error).__name__) from None

    def _upload(self, data: bytes) -> None:
        digest = Digest.of(data)
        where = str(self.reference.at(digest))
        with self._send("HEAD", f"blobs/{digest}", where, allow_redirects=True) as answer:
            if answer.status_code == requests.codes.ok:
                return
            _demand(answer, where, requests.codes.not_found)
        with self._send("POST", "blobs/uploads/", where) as answer:
            _demand(answer, where, requests.codes.accepted)
            place = urljoin(answer.url, answer.headers.get("Location", ""))
        headers = {"Content-Type": "application/octet-stream"}
        query = {"digest": str(digest)}
        with self._send("PUT", place, where, params=query, data=data, headers=headers) as answer:
            _demand(answer, where, requests.codes.created)

    def _put(self, data: bytes, media_type: str, name: str | Digest) -> None:
        where = f"{self.reference.registry}/{self.reference.repository}, {name}"
        with self._send("PUT", f"manifests/{name}", where, data=data, headers={"Content-Type": media_type}) as answer:
            _demand(answer, where, requests.codes.created)

    def _send(self, method: str, path: str, where: str, **more: Any) -> requests.Response:
        """One request; a second one after logging in, where the registry asks for that."""
        url = urljoin(self._base, path)
        ours = urlsplit(url)[:2] == urlsplit(self._base)[:2]
        auth = self._login.add if ours else nobody
        try:
            answer = self._session.request(method, url, auth=auth, timeout=SECONDS, **more)
            challenge = answer.headers.get("WWW-Authenticate", "")
            if answer.status_code == requests.codes.unauthorized and ours and self._login.answer(challenge, where):
                answer.close()
                answer = self._session.request(method, url, auth=auth, timeout=SECONDS, **more)
        except _NETWORK_ERRORS as error:
            raise RemoteError.one(where, "a registry that answers", f"{type(error).__name__}: {error}"[:300]) from None
        return answer


def _demand(answer: requests.Response, where: str, status: int) -> None:
    if answer.status_code == status:
        return
    meaning = {401: "log in with `docker login`", 403: "no access", 404: "nothing there", 416: "fewer bytes"}
    found = " ".join(filter(None, (f"status {answer.status_code}", meaning.get(answer.status_code, ""))))
    raise RemoteError.one(where, f"status {status} for {answer.request.method}", found)
