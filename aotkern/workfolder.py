"""Folders for work in progress, which do not stay behind when a process is killed.

The folder of a process that was killed cannot be removed by that process. Each folder therefore holds a file that its
process keeps locked; the kernel gives the lock back however the process ends. Whoever makes the next folder removes
those whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "aotkern-"
_LOCK = ".in-use"


@contextlib.contextmanager
def work_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end.

    Args:
        purpose: A part of its name.
        parent: Where it is made; None for the system's place.

    Raises:
        OSError: It cannot be made.
    """
    place = Path(parent or tempfile.gettempdir())
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=place))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(place: Path) -> None:
    """Remove the folders here whose process has ended; those of other users, and whatever cannot be removed, stay."""
    with contextlib.suppress(OSError):
        for folder in list(place.glob(f"{PREFIX}*")):
            if _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether this is a folder of ours whose lock nobody holds."""
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # not such a folder, somebody else's, or one that is just being made
    try:
        if os.fstat(handle).st_uid != os.getuid():
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
