"""What `--report FILE` does: an audit's outcome in a file of the format that the file's name asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aotkern.audit.outcome import GateReport
from aotkern.errors import InputError
from aotkern.report import formats


def check(paths: Sequence[Path]) -> None:
    """Refuse what cannot be written before any work is done, which may be minutes of it.

    Raises:
        InputError: A name that asks for no known format, or a file that cannot be written.
        MissingToolError: A format needs a library that is not installed.
    """
    for path in paths:
        formats.of(path)
        writable(path)


def writable(path: Path) -> None:
    """Try whether a report can be written; nothing is changed.

    Raises:
        InputError: It cannot.
    """
    there = path.exists()
    with _writing(path):
        path.open("ab").close()
        if not there:
            path.unlink()


def place(kernels: Sequence[str], otherwise: str = "") -> str:
    """The file in which findings are shown: the kernel source where it is one file, or what stands in for it."""
    return kernels[0] if len(kernels) == 1 and kernels[0].endswith(".py") else otherwise


def write(paths: Sequence[Path], report: GateReport) -> None:
    """Write the reports of a gate, or of a single audit put in the form of one.

    Raises:
        InputError: A file cannot be written.
        MissingToolError: A format needs a library that is not installed.
    """
    for path in paths:
        save(path, formats.of(path)(report))


def save(path: Path, content: str) -> None:
    """Write one report, and the folders on its way.

    Raises:
        InputError: It cannot be written.
    """
    with _writing(path):
        path.write_text(content, "utf-8", errors="backslashreplace")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError.one(str(path), "a report that can be written", error.strerror or str(error)) from error
