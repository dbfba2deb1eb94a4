"""A remote that is slow on purpose, or ends every connection, costs a bounded time and a bounded number of requests."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotkern.digest import Digest
from aotkern.distribution import download, patience
from aotkern.distribution.remote import Piece
from aotkern.errors import InputError, RemoteError

DATA = bytes(range(256)) * 1024


class Remote:
    """Counts its connections; each gives so many bytes, and then ends or goes silent."""

    def __init__(self, step: int, silent: bool = False) -> None:
        self.connections = 0
        self.step = step
        self.silent = silent
        self.over = threading.Event()

    def read(self, offset: int) -> Iterator[bytes]:
        self.connections += 1
        yield DATA[offset : offset + self.step]
        if self.silent:
            self.over.wait(30)
        raise RemoteError.one("remote", "the whole blob", "an end")

    def piece(self) -> Piece:
        return Piece("remote", len(DATA), Digest.of(DATA), self.read)


def test_a_byte_of_each_connection_is_no_progress(tmp_path: Path) -> None:
    remote = Remote(step=1)
    with pytest.raises(RemoteError, match="the whole blob"):
        download.fetch(remote.piece(), tmp_path, "x.aotk", 1 << 30)
    assert remote.connections == download.ATTEMPTS


def test_connections_that_make_progress_go_on(tmp_path: Path) -> None:
    remote = Remote(step=download.PROGRESS)
    assert download.fetch(remote.piece(), tmp_path, "x.aotk", 1 << 30) == DATA
    assert remote.connections == len(DATA) // download.PROGRESS


def test_a_drip_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "seconds_for", lambda size: 0.2)
    monkeypatch.setattr(download, "ANSWER_SECONDS", 0.2)
    remote = Remote(step=1, silent=True)
    for fetch in (
        lambda: download.fetch(remote.piece(), tmp_path, "x.aotk", 1 << 30),
        lambda: download.small(remote.piece(), 1 << 30),
    ):
        with pytest.raises(RemoteError, match="an answer within 0 seconds, found none, or only a part of it"):
            fetch()
    remote.over.set()


def test_a_lock_that_is_not_given_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(step=len(DATA))
    part = tmp_path / f".x.aotk.{Digest.of(DATA).short}.part"
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        handle = part.open("rb+")
        with handle, pytest.raises(InputError, match="a lock that another process has not given back"):
            download._lock(handle, part, time.monotonic() - 1)
        monkeypatch.setattr(download, "seconds_for", lambda size: 0.2)
        with pytest.raises((InputError, RemoteError)):
            download.fetch(remote.piece(), tmp_path, "x.aotk", 1 << 30)
    assert remote.connections == 0


def test_time_limits_pass_results_and_errors_on() -> None:
    assert patience.within(5, "remote", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        patience.within(5, "remote", lambda: 1 // 0)
    assert patience.seconds_for(0) < patience.seconds_for(1 << 30)
