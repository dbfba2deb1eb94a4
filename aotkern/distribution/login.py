"""Who we are to a registry: credentials as `docker login` keeps them, and the token dance of registries.

Credentials are sent to the registry they were stored for, and to the token server that this registry names, which must
be reached by https unless the registry itself is not. Redirects to other hosts (where registries keep their blobs) do
not get them.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import requests.utils

from aotkern.errors import InputError, RemoteError

SECONDS = (10, 60)
"""Longest wait for a connection, and for the next bytes on one."""

_MAX_TOKEN_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A user and a password; without a `repr`, so that they stay out of logs."""

    user: str
    password: str


def stored(config: Path, registry: str) -> Credentials | None:
    """What a docker configuration file (or the credential helper that it names) has for a registry.

    Args:
        config: A `config.json`; a file that is not there holds nothing.
        registry: Host and port as in a reference.

    Raises:
        InputError: The file or the helper's answer cannot be understood.
    """
    try:
        value = json.loads(config.read_bytes())
        helper = value.get("credHelpers", {}).get(registry) or value.get("credsStore")
        entry = value.get("auths", {}).get(registry) or {}
        if "auth" in entry:
            user, password = base64.b64decode(entry["auth"], validate=True).decode().split(":", 1)
            return Credentials(user, password)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError.one(str(config), "a docker configuration", f"{type(error).__name__}: {error}"[:200]) from None
    return _helped(str(helper), registry) if helper else None


def _helped(helper: str, registry: str) -> Credentials | None:
    name = f"docker-credential-{helper}"
    try:
        done = subprocess.run([name, "get"], input=registry.encode(), capture_output=True, check=False, timeout=60)
        if done.returncode:
            return None  # that is how helpers say that they know nothing of this registry
        answer = json.loads(done.stdout)
        return Credentials(str(answer["Username"]), str(answer["Secret"]))
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise InputError.one(name, "a credential helper that answers", type(error).__name__) from None


class Login:
    """What a registry asked us to add to requests; given as their `auth`, so that no netrc file adds anything else.

    Args:
        session: For asking the token server.
        credentials: Ours, or None to stay anonymous.
        secure: Whether the registry is reached by https.
    """

    def __init__(self, session: requests.Session, credentials: Credentials | None, *, secure: bool) -> None:
        self._session, self._credentials, self._secure = session, credentials, secure
        self._header: str | None = None

    def add(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Log a request in."""
        if self._header:
            request.headers["Authorization"] = self._header
        return request

    def answer(self, challenge: str, where: str) -> bool:
        """Do what a `WWW-Authenticate` header asks; False when there is nothing more that could be done.

        Raises:
            RemoteError: The token server refuses, or may not be told our credentials.
        """
        scheme, _, rest = challenge.partition(" ")
        before, self._header = self._header, None
        if scheme.lower() == "basic" and self._credentials and before is None:
            self._header = self._basic(self._credentials)
        elif scheme.lower() == "bearer":
            self._header = f"Bearer {self._token(requests.utils.parse_dict_header(rest), where)}"  # type: ignore[no-untyped-call]
        return self._header is not None and self._header != before

    @staticmethod
    def _basic(credentials: Credentials) -> str:
        pair = f"{credentials.user}:{credentials.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _token(self, asked: dict[str, Any], where: str) -> str:
        realm = str(asked.get("realm"))
        if not realm.startswith("https://") and (self._secure or not realm.startswith("http://")):
            raise RemoteError.one(where, "a token server that is reached by https", repr(realm)[:120])
        headers = {"Authorization": self._basic(self._credentials)} if self._credentials else {}
        query = {name: str(asked[name]) for name in ("service", "scope") if name in asked}
        try:
            answer = self._session.get(
                realm, params=query, headers=headers, auth=nobody, timeout=SECONDS, stream=True, allow_redirects=False
            )
            with answer:
                body = answer.raw.read(_MAX_TOKEN_ANSWER, decode_content=True)
            value = json.loads(body) if answer.status_code == requests.codes.ok else {}
        except (requests.RequestException, OSError, ValueError) as error:
            raise RemoteError.one(where, f"a token from {realm}", type(error).__name__) from None
        token = (value.get("token") or value.get("access_token")) if isinstance(value, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RemoteError.one(where, f"a token from {realm}", f"status {answer.status_code} without one")
        return token


def nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Adds nothing to a request, and keeps a netrc file from adding anything."""
    return request
