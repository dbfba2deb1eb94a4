"""Whole commands in fresh processes: how long they take, and how much memory they and their children ever held."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aotkern.errors import InputError

_PROC = Path("/proc")
_SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True, slots=True)
class Peak:
    """Most memory that processes held, in bytes; children count one by one, as they share pages.

    Attributes:
        parent: Of the process that was started.
        child: Of the largest of its children, or 0 where it has none.
        children: Of all of them, added up.
    """

    parent: int
    child: int = 0
    children: int = 0


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str:
    """Run a command to its end; what it printed.

    Args:
        command: Its words.
        environment: All of its environment.
        folder: Where it starts; by default where this process is.

    Raises:
        InputError: It failed; the error has the end of what it said.
    """
    done = subprocess.run(command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    return _output(command, done.returncode, done.stdout, done.stderr)


def _output(command: Sequence[str], code: int, out: str, error: str) -> str:
    if code:
        words = " ".join(word for word in command if "\n" not in word)
        raise InputError.one(words[-200:], "exit code 0", f"{code}: {(error or out).strip()[-1000:]}")
    return out


def seconds(command: Sequence[str], environment: Mapping[str, str]) -> Callable[[], float]:
    """A sampler: the wall time of the command in a fresh process."""

    def sample() -> float:
        begin = time.perf_counter()
        run(command, environment)
        return time.perf_counter() - begin

    return sample


def together(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> float:
    """The wall time of several commands that run at once, until the last has ended.

    Raises:
        InputError: One of them failed.
    """
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(commands)) as threads:
        list(threads.map(lambda command: run(command, environment), commands))
    return time.perf_counter() - begin


def peak(command: Sequence[str], environment: Mapping[str, str]) -> Peak | None:
    """The memory of a command and its children; None where the system does not tell (it is not Linux).

    The kernel's own high-water mark of each process is read 20 times a second, so that what a process reached in the
    last moment of its life may be missed.

    Raises:
        InputError: The command failed.
    """
    if not (_PROC / "self" / "status").exists():
        return None
    started = subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    marks: dict[int, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(_SECONDS_BETWEEN_LOOKS):
            for number in _family(started.pid):
                marks[number] = max(marks.get(number, 0), _mark(number))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    out, error = started.communicate()
    over.set()
    thread.join()
    _output(command, started.returncode, out, error)
    children = [mark for number, mark in marks.items() if number != started.pid]
    return Peak(marks.get(started.pid, 0), max(children, default=0), sum(children))


def _family(root: int) -> list[int]:
    """A process and its children, by what each process says of its parent."""
    found = [root]
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = (entry / "stat").read_text("utf-8", "replace").rpartition(") ")[2].split()[1]
        except (OSError, IndexError):
            continue  # it has ended meanwhile
        if int(parent) == root:
            found.append(int(entry.name))
    return found


def _mark(number: int) -> int:
    try:
        status = (_PROC / str(number) / "status").read_text("utf-8", "replace")
    except OSError:
        return 0  # it has ended meanwhile
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def with_this_aotkern(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds the aotkern that runs here, wherever the process starts."""
    root = str(Path(__file__).parents[2])
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH", ""))))}


def aotkern(*arguments: str) -> list[str]:
    """The command line of `aotkern` in this Python."""
    return [sys.executable, "-m", "aotkern", *arguments]
