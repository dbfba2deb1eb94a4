"""The watched process from inside: its environment, its rank, and a word on its standard error.

The one module of the room that touches them. What runs here runs in a program of somebody else's, and learns its task
from the environment, which is the only thing that spawned processes of every kind inherit.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

EVENTS = "AOTKERN_JIT_EVENTS"
"""The folder of event files; set by `aotkern audit jit` for the program that it runs."""

TRACE = "AOTKERN_TRACE"
"""The folder of the rows of a trace; set by `aotkern record` for the program that it runs."""
BUNDLE = "AOTKERN_BUNDLE"
"""The bundles that serve this process, separated like PATH; set by `aotkern run`, or in a deployment."""
ON_MISS = "AOTKERN_ON_MISS"
UNTUNED = "AOTKERN_UNTUNED"
OTHER_TRITON = "AOTKERN_OTHER_TRITON"
LOCK = "AOTKERN_LOCK"
"""How they serve it: the arguments of `aotkern.install`."""
SERVED_EVENTS = "AOTKERN_SERVED_EVENTS"
"""The folder of hits and misses; set by `aotkern run`."""

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def events_folder() -> str:
    """Where this process is to write its events; empty when it is not watched."""
    return os.environ.get(EVENTS, "")


@dataclass(frozen=True, slots=True)
class Served:
    """How this process is to be served; see `aotkern.install`.

    Attributes:
        bundles: The bundles; none where nothing is served.
        on_miss: What to do with a miss.
        untuned: What to do with a tuning key that is in no table.
        other_triton: Whether bundles that another version of Triton built may be used.
        locked: A lock file, or nothing.
        events: The folder for hits and misses, or nothing.
    """

    bundles: tuple[str, ...] = ()
    on_miss: str = "error"
    untuned: str = "miss"
    other_triton: bool = False
    locked: str = ""
    events: str = ""


def served() -> Served:
    """What the environment says about prebuilt binaries."""
    given = os.environ
    return Served(
        bundles=tuple(part for part in given.get(BUNDLE, "").split(os.pathsep) if part),
        on_miss=_known(ON_MISS, given.get(ON_MISS, "error"), ("error", "warn", "jit")),
        untuned=_known(UNTUNED, given.get(UNTUNED, "miss"), ("miss", "usual")),
        other_triton=_known(OTHER_TRITON, given.get(OTHER_TRITON) or "0", ("0", "1")) == "1",
        locked=given.get(LOCK, ""),
        events=given.get(SERVED_EVENTS, ""),
    )


def _known(variable: str, value: str, modes: tuple[str, ...]) -> str:
    """A mode; the first of `modes`, the strict one, in place of one that is none, which is said."""
    if value in modes:
        return value
    say(f"{variable}={value!r} is none of {', '.join(modes)}: taken for {modes[0]!r}")
    return modes[0]


def rank() -> int | None:
    """The rank of this process in its job, or None where nothing says one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and getattr(distributed, "is_initialized", bool)():
        return int(distributed.get_rank())
    found = next((os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()), None)
    return None if found is None else int(found)


def say(text: str) -> None:
    """A line on standard error, in the program that is watched."""
    sys.stderr.write(f"aotkern: {text}\n")
