"""Whether somebody else could have written a bundle file: what its owner and its mode say.

A bundle is code. Who can write the file can let this process run anything on its GPU, and a file that everybody can
write says nothing of where it came from. `load`, `install` and `run` look at this before a bundle is used, unless a
trust file or a lock file vouches for its content, which then does not depend on who could write it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from aotkern.errors import TrustError

ADVICE = "take the write permission away, vouch for it (a trust file or a lock file), or set AOTKERN_OTHERS=accept"


@dataclass(frozen=True, slots=True)
class Ownership:
    """What speaks against a file.

    Attributes:
        refusal: Why it must not be used: anybody on this machine may have written it. Empty when nothing says so.
        remark: What somebody should know, though it is usual in containers and shared folders. May be empty.
    """

    refusal: str = ""
    remark: str = ""


def ownership(path: Path) -> Ownership:
    """Look at a file and at the folder that it lies in; links are followed, to what would be read."""
    if not hasattr(os, "geteuid"):
        return Ownership()
    real = path.resolve()
    file, folder = real.stat(), real.parent.stat()
    ours = {0, os.geteuid()}
    others = bool(folder.st_mode & stat.S_IWOTH)
    sticky = bool(folder.st_mode & stat.S_ISVTX)
    if file.st_mode & stat.S_IWOTH:
        return Ownership(refusal=f"anybody can write it (mode {stat.S_IMODE(file.st_mode):04o})")
    if others and sticky and file.st_uid not in ours:
        return Ownership(refusal=f"it belongs to user {file.st_uid}, in a folder into which anybody can write")
    if others and not sticky:
        mode = f"{stat.S_IMODE(folder.st_mode):04o}"
        return Ownership(remark=f"anybody can put another file in its place (mode of its folder {mode})")
    if file.st_uid not in ours:
        return Ownership(remark=f"it belongs to user {file.st_uid}, not to this one or root")
    return Ownership()


def check(path: Path) -> str:
    """Refuse a file that anybody may have written.

    Returns:
        What somebody should know of it; may be empty.

    Raises:
        TrustError: It must not be used.
    """
    found = ownership(path)
    if found.refusal:
        expected = f"a bundle that only its owner and root can write ({ADVICE})"
        raise TrustError.one(str(path), expected, found.refusal)
    return found.remark
