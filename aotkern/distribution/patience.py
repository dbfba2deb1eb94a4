"""How long a remote may take. A remote that gives a byte a second is never silent for long, and never done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from aotkern.errors import RemoteError

_Result = TypeVar("_Result")

ANSWER_SECONDS = 120.0
"""For a question whose answer is small: an index, a manifest, a signature file."""
SLOWEST = 64 << 10
"""Bytes a second below which a download is given up; `ANSWER_SECONDS` come on top."""


def seconds_for(size: int) -> float:
    """How long a file of so many bytes may take."""
    return ANSWER_SECONDS + size / SLOWEST


def within(seconds: float, where: str, call: Callable[[], _Result]) -> _Result:
    """The result of a call that talks to a remote, or an error when it takes longer.

    Time limits of sockets count from one byte to the next. This one counts from the start, whatever the call is
    waiting for; the thread that waits is left behind and ends with its connection, or with the process.

    Args:
        seconds: How long to wait.
        where: Names the remote in the error.
        call: What to do.

    Raises:
        RemoteError: It took longer. What the call itself raises is raised here.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"aotkern: {where}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise RemoteError.one(where, f"an answer within {seconds:.0f} seconds", "none, or only a part of it")
    if errors:
        raise errors[0]
    return results[0]
