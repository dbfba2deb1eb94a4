"""What the commands share: options, output, and the environment, which is read here and nowhere below."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from aotkern.audit.findings import Verdict
from aotkern.errors import Problem, ProblemsError
from aotkern.escape import visible_text
from aotkern.target import Target

_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document (schemas: aotkern/schemas)."
)

reports_option = click.option(
    "--report",
    "reports",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Also write a report: .html, .md (for a pull request), .xml (JUnit), .sarif, .json or .txt; once for each.",
)

sources_argument = click.argument("kernels", nargs=-1, metavar="[KERNELS]...")


def jobs_option(function: _Command) -> _Command:
    """`--jobs`, by default one for each processor this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = "Worker processes (default: one for each processor)."
    return click.option("--jobs", "-j", type=click.IntRange(1, 1024), default=count, help=text)(function)


def only_option(function: _Command) -> _Command:
    """`--only`, once for each pattern."""
    text = "Only variants whose kernel or whole key fits this pattern (* and ?); several add up."
    return click.option("--only", multiple=True, metavar="PATTERN", help=text)(function)


def targets_option(*, required: bool) -> Callable[[_Command], _Command]:
    """`--target`, once for each target."""
    text = "A target such as gfx942, gfx950 or cuda:90; once for each." + (
        "" if required else " Default: all that are declared, or recorded."
    )
    return click.option("--target", "-t", "targets", multiple=True, required=required, help=text)


def parse_targets(texts: tuple[str, ...]) -> tuple[Target, ...]:
    """Targets in the order given, each once."""
    return tuple(dict.fromkeys(Target.parse(text, "--target") for text in texts))


def environment() -> dict[str, str]:
    """The caller's environment, for those below that must not read it themselves."""
    return dict(os.environ)


def cache_folder() -> Path:
    """The user's folder for compiled variants: `$AOTKERN_CACHE`, or where this platform keeps caches."""
    if configured := os.environ.get("AOTKERN_CACHE"):
        return Path(configured)
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path("aotkern", appauthor=False)


def finish(verdict: Verdict, *, as_json: bool, document: Any, text: str) -> NoReturn:
    """Print one of the two forms and leave with the exit code of the verdict."""
    emit(json.dumps(document, indent=2, ensure_ascii=False) if as_json else text)
    sys.exit(verdict.exit_code)


def emit(content: str | bytes) -> None:
    """Write to standard output. A reader that has gone (`... | head`) does not change the verdict."""
    shown = visible_text(content) if isinstance(content, str) else content
    try:
        click.echo(shown, nl=isinstance(content, str))
    except BrokenPipeError:
        # Python flushes once more at exit, which must go nowhere instead of failing there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(content: str) -> None:
    """Write to standard error, for people."""
    click.echo(visible_text(content), err=True)


def problems(found: Iterable[Problem]) -> list[dict[str, str]]:
    """Problems with their place, expectation and finding, for a document."""
    return [{"where": item.where, "expected": item.expected, "found": item.found} for item in found]


def refusals(error: ProblemsError) -> str:
    """The problems of an error, for people: a line each."""
    return "\n".join(f"REFUSED {problem}" for problem in error.problems)
