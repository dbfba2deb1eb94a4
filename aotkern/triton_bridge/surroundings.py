"""The watched process from inside: its environment, its rank, and a word on its standard error.

The one module of the room that touches them. What runs here runs in a program of somebody else's, and learns its task
from the environment, which is the only thing that spawned processes of every kind inherit.
"""

from __future__ import annotations

import os
import sys

EVENTS = "AOTKERN_JIT_EVENTS"
"""The folder of event files; set by `aotkern audit jit` for the program that it runs."""

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def events_folder() -> str:
    """Where this process is to write its events; empty when it is not watched."""
    return os.environ.get(EVENTS, "")


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
