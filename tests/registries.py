"""Registries for tests, on loopback, and what is pushed to them.

One registry is in this process and can misbehave, the other is Debian's `docker-registry`. The one in this process
speaks the calls of the OCI distribution specification that aotkern uses: manifests and blobs with HEAD, GET (with
ranges) and PUT, upload sessions, and login by password or token.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("requests")

from vouching import GFX942, bundle, key, key_table, rule_table, signed, trust

from aotkern.digest import Digest
from aotkern.distribution.reference import Reference
from aotkern.distribution.registry import Registry
from aotkern.target import Target

TRUST = trust(key_table("a", key(1)), rule_table("a"))
"""Takes the word of the key that `Outgoing` signs with, for bundles called `pack`."""

USER, PASSWORD, TOKEN = "alice", "secret", "a-token"


class FakeRegistry:
    """What the registry holds, how it behaves, and what it was asked.

    Attributes:
        blobs, manifests: Content, by digest; `tags` point to manifests.
        login: "", "basic" or "bearer": what a request must have.
        ranges: Whether ranges are honoured.
        chunked: Whether bodies come in chunks, without their length.
        cut: Bytes after which the answer to a blob ends, for so many answers.
        tamper: Changes a body on its way out: (path, body) -> body.
        headers: Further headers of every answer.
        requests: Method, path and range of every request.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.tags: dict[str, str] = {}
        self.login = ""
        self.ranges = True
        self.chunked = False
        self.cut: list[int] = []
        self.status: list[int] = []
        self.tamper: Callable[[str, bytes], bytes] = lambda _path, body: body
        self.headers: dict[str, str] = {}
        self.realm = ""
        self.storage = ""
        self.requests: list[tuple[str, str, str]] = []
        self.authorizations: list[str] = []

    def add(self, document: bytes, media_type: str, *tags: str) -> Digest:
        """Hold a manifest or an index."""
        digest = Digest.of(document)
        self.manifests[str(digest)] = document, media_type
        self.tags.update(dict.fromkeys(tags, str(digest)))
        return digest

    def asked(self, method: str, part: str) -> list[str]:
        """The ranges of the requests with this method whose path has this part."""
        return [ranged for found, path, ranged in self.requests if found == method and part in path]


class Handler(BaseHTTPRequestHandler):
    """Answers for a `FakeRegistry`, which a subclass sets."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    registry: FakeRegistry

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        chunked = self.registry.chunked and bool(body)
        length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
        values = {**length, **{k.replace("_", "-"): v for k, v in headers.items()}}
        for name, value in {**values, **self.registry.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if chunked:
            parts = [body[at_ : at_ + 100] for at_ in range(0, len(body), 100)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
        if self.command != "HEAD":
            self.wfile.write(body)

    def admitted(self, path: str) -> bool:
        given = self.headers.get("Authorization", "")
        self.registry.authorizations.append(given)
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        wanted = {"basic": basic, "bearer": f"Bearer {TOKEN}", "": given}[self.registry.login]
        if given == wanted:
            return True
        realm = self.registry.realm or f"http://{self.headers['Host']}/token"
        challenge = f'Bearer realm="{realm}",service="fake",scope="repository:x:pull"'
        self.answer(401, WWW_Authenticate='Basic realm="x"' if self.registry.login == "basic" else challenge)
        return False

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.registry.requests.append((self.command, url.path, self.headers.get("Range", "")))
        if url.path == "/token":
            basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            good = self.headers.get("Authorization", "") in ("", basic)
            self.answer(200 if good else 401, json.dumps({"token": TOKEN}).encode() if good else b"{}")
        elif url.path.startswith("/storage/"):
            self.registry.authorizations.append(self.headers.get("Authorization", ""))
            self.blob(url.path, self.registry.blobs.get(url.path.rpartition("/")[2]))
        elif self.admitted(url.path):
            if self.registry.status:
                self.answer(self.registry.status.pop(0), Retry_After="1000000")
            else:
                self.route(url.path, parse_qs(url.query), body)

    def route(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        match = re.fullmatch(r"/v2/[a-z0-9/]+?/(manifests|blobs)/(.+)", path)
        kind, name = match.groups() if match else ("", "")
        if kind == "manifests" and self.command == "PUT":
            digest = self.registry.add(body, self.headers["Content-Type"], *([] if ":" in name else [name]))
            self.answer(201, Docker_Content_Digest=str(digest))
        elif kind == "manifests":
            found = self.registry.manifests.get(self.registry.tags.get(name, name))
            document = self.registry.tamper(path, found[0]) if found else b""
            self.answer(200 if found else 404, document, Content_Type=found[1] if found else "text/plain")
        elif name == "uploads/" and self.command == "POST":
            self.answer(202, Location="/v2/x/blobs/uploads/session?state=1")
        elif name == "uploads/session" and self.command == "PUT":
            good = query["digest"][0] == str(Digest.of(body)) and query["state"] == ["1"]
            self.registry.blobs.update({query["digest"][0]: body} if good else {})
            self.answer(201 if good else 400)
        elif kind == "blobs" and self.command == "HEAD":
            self.answer(200 if name in self.registry.blobs else 404)
        elif kind == "blobs" and self.registry.storage:
            self.answer(307, Location=f"{self.registry.storage}{name}")
        else:
            self.blob(path, self.registry.blobs.get(name))

    def blob(self, path: str, found: bytes | None) -> None:
        if found is None:
            self.answer(404)
            return
        body = self.registry.tamper(path, found)
        start, status, headers = 0, 200, {}
        if self.registry.ranges and (ranged := self.headers.get("Range")):
            start, status = int(ranged.removeprefix("bytes=").rstrip("-")), 206
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if start >= len(body) and start:
            self.answer(416)
            return
        rest = body[start:]
        if self.registry.cut:
            # What was announced does not come: the connection ends in the middle.
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(rest))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(rest[: self.registry.cut.pop(0)])
            self.close_connection = True
        else:
            self.answer(status, rest, **headers)

    do_GET = do_HEAD = do_POST = do_PUT = handle_request


class Server(ThreadingHTTPServer):
    """Says nothing when a client goes away in the middle, which is what some tests are about."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def fake() -> Iterator[tuple[FakeRegistry, str]]:
    """A fake registry and its host with port."""
    registry = FakeRegistry()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"registry": registry}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield registry, f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def debian_binary() -> str | None:
    """The registry server of the package `docker-registry`, where it is installed."""
    return shutil.which("docker-registry")


@contextlib.contextmanager
def debian(folder: Path) -> Iterator[str]:
    """Debian's registry with its storage in a folder: host and port, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "config.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {folder / 'storage'}}}}}"
    config.write_text(f"version: 0.1\nlog: {{level: error}}\n{storage}\nhttp: {{addr: '127.0.0.1:{port}'}}\n")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([str(debian_binary()), "serve", str(config)], stdout=log, stderr=log)
        try:
            _wait(server, port, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/v2/")
            if connection.getresponse().status == 200:
                return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"docker-registry did not start: {log.read_text(errors='replace')}")


@dataclass(frozen=True)
class Outgoing:
    """A folder with signed bundles for two targets, and one for pulling into."""

    folder: Path
    into: Path

    def path(self, target: Target = GFX942, name: str = "pack") -> Path:
        return self.folder / f"{name}.{target.slug}.aotk"

    def make(self, target: Target = GFX942, name: str = "pack", seed: str = "one", sequence: int = 5) -> Path:
        """A signed bundle."""
        path = self.path(target, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bundle(seed, target))
        signed(path, key(1), sequence)
        return path


def at(host: str, reference: str) -> Registry:
    """The remote of a reference at a registry on loopback."""
    return Registry(Reference.parse(f"{host}/{reference}"), plain=True)
