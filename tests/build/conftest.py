"""What tests of building share."""

from __future__ import annotations

import pytest

from aotkern.build import pool


@pytest.fixture
def started(monkeypatch):
    """The worker processes that a test starts on this side."""
    found = []
    original = pool.WorkerProcess

    def start(*args):
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(pool, "WorkerProcess", start)
    return found
