"""The settings around a compile request of this process, as Triton itself would read them now.

A setting may come from the environment, from `triton.knobs.x.y = ...` or from a scope: the knob says what holds. What
has no knob is taken from Triton's own list of variables. This is looked at for each compile request, never for a
launch: what Triton keeps in its tables of compiled kernels it launches again whatever the knobs say by then.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aotkern.errors import InputError, Problem
from aotkern.influences import SETTINGS, Setting, Treatment, constant, from_variable, named
from aotkern.spec import Constant
from aotkern.target import Backend

_ABSENT = object()


def settings(backend: Backend, where: str) -> dict[str, Constant]:
    """The keyed settings that differ from those of a plain build, by the names of their variables.

    Raises:
        InputError: A setting holds with which nothing is built ahead of time.
    """
    import triton  # noqa: PLC0415 - the caller's own Triton
    from triton._C.libtriton import get_cache_invalidating_env_vars  # noqa: PLC0415

    variables: Mapping[str, str] = get_cache_invalidating_env_vars()
    found: dict[str, Constant] = {}
    problems = list(_unknown(variables, where))
    for row in SETTINGS:
        if backend not in row.backends:
            continue
        if row.treatment is Treatment.KEYED:
            value = _value(row, triton.knobs, variables)
            if value not in (_default(row, triton.knobs), _ABSENT):
                found.update(_keyed(row, value, where, problems))
        elif row.treatment is Treatment.REFUSED:
            value = _value(row, triton.knobs, variables)
            if value not in (row.default, _ABSENT) or variables.get(row.name, "false") != "false":
                problems.append(_refusal(row, value, where))
        elif row.treatment is Treatment.FILE and not _own_file(row, triton):
            problems.append(Problem(f"{where}: {row.for_people()}", "the file of the installation", "another file"))
    if problems:
        raise InputError(problems)
    return found


def _value(row: Setting, knobs: Any, variables: Mapping[str, str]) -> object:
    if not row.knob:
        text = variables.get(row.name)
        if row.treatment is Treatment.REFUSED:
            return row.default if text in (None, "false") else text
        return from_variable(row, text)
    group, _, name = row.knob.partition(".")
    return getattr(getattr(knobs, group, None), name, _ABSENT)


def _default(row: Setting, knobs: Any) -> object:
    """What a worker has; a switch that only some versions leave open (`None`) has a default of its own in others."""
    group, _, name = row.knob.partition(".")
    return getattr(vars(type(getattr(knobs, group, None))).get(name), "default", row.default)


def _keyed(row: Setting, value: object, where: str, problems: list[Problem]) -> dict[str, Constant]:
    try:
        return {row.name: constant(row, value)}
    except ValueError:
        problems.append(Problem(f"{where}: {row.for_people()}", "one word", "another text"))
        return {}


def _refusal(row: Setting, value: object, where: str) -> Problem:
    # A text may be a path, or hold a secret: it is not repeated in a trace.
    shown = str(value) if isinstance(value, bool) else "another value"
    expected = "nothing" if row.default in (None, "") else str(row.default)
    return Problem(f"{where}: {row.for_people()}", f"{expected}, as in every build", shown)


def _unknown(variables: Mapping[str, str], where: str) -> Iterator[Problem]:
    for name in sorted(variables):
        if named(name) is None:
            yield Problem(f"{where}: {name}", "a variable that aotkern knows", "another that is in Triton's cache key")


def _own_file(row: Setting, triton: Any) -> bool:
    """Whether a file that a setting names is the installation's own, by its content."""
    group, _, name = row.knob.partition(".")
    holder = getattr(triton.knobs, group)
    descriptor = vars(type(holder)).get(name)
    if descriptor is None:
        return True
    # Asking the knob of a tool would run the tool for its version.
    given = vars(holder).get(name, triton.knobs.getenv(descriptor.key))
    if given is None:
        return True
    folder = Path(triton.__file__).parent / "backends" / "nvidia"
    tool = getattr(descriptor, "default_path", None)
    own = Path(tool or folder / "lib" / "libdevice.10.bc")
    content = _digest(Path(str(given)))
    return content == _digest(own) or (content is None and tool is not None)


def _digest(path: Path) -> str | None:
    """Digest of a file's content; None where there is none: Triton then takes its own tool."""
    try:
        state = path.stat()
    except OSError:
        return None
    return _digested(str(path), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=16)
def _digested(path: str, changed: int, size: int) -> str:
    del changed, size  # a file that was replaced is read again
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
