"""Showing progress: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from aotkern.build.builder import Step
from aotkern.cli import common
from aotkern.escape import visible_text

Tell = Callable[[Step], None]

_LINE_SECONDS = 10.0


@contextlib.contextmanager
def shown(what: str, *, quiet: bool = False) -> Iterator[Callable[[Step], None]]:
    """Yield the function to tell about each step; everything goes to standard error."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(what) as tell:
            yield tell
    else:
        yield _lines(what)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[Step], None]]:
    from rich.console import Console  # noqa: PLC0415 - a tenth of a second that only a terminal pays
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def tell(step: Step) -> None:
            progress.update(task, completed=step.done, total=step.total)
            if step.error:
                failure = visible_text(f"failed: {step.key}: {step.error}")
                progress.console.print(failure, markup=False, highlight=False)

        yield tell


def _lines(what: str) -> Callable[[Step], None]:
    last = time.monotonic()

    def tell(step: Step) -> None:
        nonlocal last
        if step.error:
            common.tell(f"failed: {step.key}: {step.error}")
        if time.monotonic() - last >= _LINE_SECONDS or (step.done == step.total and step.seconds):
            last = time.monotonic()
            common.tell(f"{what}: {step.done} of {step.total} variants")

    return tell
