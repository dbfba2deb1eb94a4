"""What an injected `sitecustomize` starts in a watched process when Triton is about to be imported.

`environment` is the other end: what the auditing process gives to the program that it runs.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from aotkern.triton_bridge.gate import Gate, Phases, mark
from aotkern.triton_bridge.imports import AfterImport
from aotkern.triton_bridge.session import Session
from aotkern.triton_bridge.sink import Event, FileSink
from aotkern.triton_bridge.surroundings import EVENTS, events_folder

GATE_FILE = "gate.json"
INJECTED = Path(__file__).parent / "inject"
"""The folder that goes in front of PYTHONPATH."""


def start(folder: str) -> AfterImport:
    """Watch this process and write into `folder`; returns the finder that must look for `triton` next."""
    path = Path(folder)
    try:
        gate = Gate.from_json(json.loads((path / GATE_FILE).read_text("utf-8")), path)
    except (OSError, ValueError, LookupError):
        gate = Gate(phases=Phases(path))
    session = Session(FileSink(path, _header), gate)
    session.begin()
    return session.finder


def environment(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """An environment whose Python processes watch themselves and write into `folder`."""
    paths = [str(INJECTED), *filter(None, [base.get("PYTHONPATH", "")])]
    return {**base, "PYTHONPATH": os.pathsep.join(paths), EVENTS: str(folder)}


def mark_phase(phase: str) -> bool:
    """Begin a phase, from inside a watched program; False where the program is not watched."""
    folder = events_folder()
    if not folder:
        return False
    mark(Path(folder), phase, "the program")
    return True


def _header() -> Event:
    return {"python": platform.python_version()}
