"""Random damage to bytes and to lines of text, and a limit on how long an answer to it may take."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

PIECES = (b"\0", b"\n", b'"', b"{}", b"[", b"\\ud800", b"1e999", b"\xff", b"99999", b",")


def damaged(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes, each somewhere: bits, bytes, cuts, repeats, moves, insertions."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted((chance.randrange(len(out) + 1), chance.randrange(len(out) + 1)))
        match chance.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(out):
                out[at] = chance.randrange(256)
            case 2:
                del out[at : min(end, at + chance.randint(1, 40))]
            case 3:
                out[at:at] = out[at : min(end, at + chance.randint(1, 40))]
            case 4:
                out[at:at] = chance.choice(PIECES)
            case 5:
                part = out[at:end]
                del out[at:end]
                out += part
            case _:
                del out[at:]
    return bytes(out)


def edited(text: str, chance: random.Random) -> str:
    """`text` with one to three of its lines or words removed, repeated, moved or put in another's place.

    Unlike `damaged` text it is mostly still text of its language, and says something else.
    """
    lines = text.splitlines(keepends=True)
    words = [word for word in text.replace("=", " ").split() if word]
    for _ in range(chance.randint(1, 3)):
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(5):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = lines[at].replace(chance.choice(words), chance.choice(words), 1)
            case _:
                here = lines[at].split()
                if here:
                    lines[at] = lines[at].replace(chance.choice(here), chance.choice(words), 1)
    return "".join(lines)


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Fail when the block takes longer: what hangs is stopped in its tracks."""

    def late(*_: object) -> None:
        raise AssertionError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
