"""LLVM's decoder, held in a process of its own: what it spells, and what kills it.

One request decodes a whole text, so that a bundle costs one request for each code object. A process that dies is
started anew; the place that killed it holds no instruction.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aotkern.emulator import decoder_process as process
from aotkern.errors import EmulatorError, MissingToolError

_DEATHS = 32  # of the process over one text, after which the text is given up

Spelt = tuple[int, str]
"""Bytes of an instruction, and LLVM's spelling of it; 0 and an empty string where there is none."""


def spelt(text: bytes, arch: str, base: int = 0, most: int = 0) -> list[tuple[int, Spelt]]:
    """Decode a text from its first byte to its end, whatever it holds.

    Args:
        text: Machine code.
        arch: `gfx942` or `gfx950`.
        base: Address of the first byte, which some spellings depend on.
        most: Places after which to stop; 0 for all.

    Returns:
        Offset and instruction of each place in order. Where there is no instruction the next place is 4 bytes on.

    Raises:
        EmulatorError: The decoder died again and again over this text.
        MissingToolError: `rocm-llvm-python` is not installed.
    """
    found: list[tuple[int, Spelt]] = []
    at = deaths = 0
    careful = False
    while at + 4 <= len(text) and not (most and len(found) >= most):
        left = most - len(found) if most else 0
        complete = True
        for size, spelling in _worker().ask(text[at:], arch, base + at, left, careful):
            if size < 0:
                complete = False
                break
            found.append((at, (size, spelling)))
            at += size or 4
        if complete:
            break
        deaths += 1
        if deaths > _DEATHS:
            raise EmulatorError(f"the decoder died {deaths} times over this text", base + at)
        if careful:  # the next place is the one that killed it
            found.append((at, (0, "")))
            at += 4
        careful = not careful
    return found


class _Worker:
    """The running process.

    Args:
        library: LLVM's shared library.
        program: What the process runs.
    """

    def __init__(self, library: Path, program: Path = Path(process.__file__)) -> None:
        self._library, self._program = library, program
        self._running: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, text: bytes, arch: str, base: int, most: int, careful: bool) -> Iterator[Spelt]:
        """Sizes and spellings in turn; a size of -1, and nothing more, when the process died."""
        with self._lock:
            running = self._started()
            assert running.stdin is not None
            assert running.stdout is not None
            head = process.REQUEST.pack(arch.encode(), base, most, careful, len(text))
            try:
                running.stdin.write(head + text)
                running.stdin.flush()
            except BrokenPipeError:
                self.stop()
                return iter(((-1, ""),))
            return iter(self._answer(running))

    def _answer(self, running: subprocess.Popen[bytes]) -> list[Spelt]:
        read = running.stdout.read  # type: ignore[union-attr]
        found: list[Spelt] = []
        while True:
            first = read(1)
            if first == process.END:
                return found
            rest = read(2)
            length = int.from_bytes(rest, "little")
            spelling = read(length)
            if not first or len(rest) < 2 or len(spelling) < length:
                self.stop()
                return [*found, (-1, "")]
            found.append((first[0], spelling.decode()))

    def _started(self) -> subprocess.Popen[bytes]:
        """The process; a new one when there is none, or when it belongs to the process that this one is a fork of."""
        if self._running is None or self._owner != os.getpid() or self._running.poll() is not None:
            command = [sys.executable, "-I", "-S", str(self._program), str(self._library)]
            pipe = subprocess.PIPE
            self._running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            self._owner = os.getpid()
        return self._running

    def stop(self) -> None:
        """End the process, when there is one of our own."""
        running, self._running = self._running, None
        if running is None or self._owner != os.getpid():
            return
        for stream in (running.stdin, running.stdout):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:  # what it had not read yet
                pass
        running.kill()
        running.wait()


@cache
def _worker() -> _Worker:
    worker = _Worker(library())
    atexit.register(worker.stop)
    return worker


def library() -> Path:
    """Where LLVM's shared library lies.

    Raises:
        MissingToolError: `rocm-llvm-python` is not installed.
    """
    found = find_spec("rocm.llvm") if find_spec("rocm") else None
    places = found.submodule_search_locations if found and found.submodule_search_locations else ()
    for place in places:
        path = Path(place) / "librocmllvm.so"
        if path.is_file():
            return path
    raise MissingToolError("rocm-llvm-python", "to decode AMD machine code", "pip install 'aotkern[emulator]'")
