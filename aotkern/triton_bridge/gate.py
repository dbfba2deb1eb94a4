"""Budgets that are enforced while the program runs: what a compile in this phase means, before it happens.

The phase is kept in a file beside the event files, because the process that learns that a server is ready is rarely
the one that compiles. Reading it costs one `stat` for each compile, and nothing for launches that hit.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotkern.errors import AotkernError
from aotkern.spec.difference import differences
from aotkern.spec.key import VariantKey
from aotkern.triton_bridge.budget import STARTUP, Budget
from aotkern.triton_bridge.subject import Subject

PHASES_FILE = "phases.jsonl"


def mark(folder: Path, phase: str, by: str) -> None:
    """Begin a phase for every process that is watched into this folder."""
    line = json.dumps({"event": "phase", "phase": phase, "at": time.time_ns(), "by": by}) + "\n"
    descriptor = os.open(folder / PHASES_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@dataclass
class Phases:
    """The phase that holds now, read from the file when that has grown.

    Attributes:
        folder: The folder of the event files; None where the phase is set in this process only.
        now: Name of the phase.
    """

    folder: Path | None = None
    now: str = STARTUP
    _size: int = 0

    def current(self) -> str:
        """The phase of this moment."""
        if self.folder is None:
            return self.now
        file = self.folder / PHASES_FILE
        try:
            size = file.stat().st_size
            if size != self._size:
                self.now = str(json.loads(file.read_bytes().splitlines()[-1])["phase"])
                self._size = size
        except (OSError, ValueError, LookupError, TypeError):
            # No mark yet, or one that is being written: the phase has not changed.
            return self.now
        return self.now


@dataclass
class Gate:
    """Decides about each compile of this process.

    Attributes:
        budget: What is allowed, and what to do beyond it.
        phases: The phase that holds.
        known: For each kernel the keys of prebuilt variants, for the message.
    """

    budget: Budget = field(default_factory=Budget)
    phases: Phases = field(default_factory=Phases)
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _used: Counter[tuple[str, str]] = field(default_factory=Counter)

    def excess(self, kernel: str, phase: str) -> str | None:
        """Count a compile; say which budget it exceeds, or None."""
        row = self.budget.of(phase)
        found = row.of(kernel) if row is not None else None
        if found is None:
            return None
        pattern, allowed = found
        self._used[phase, pattern] += 1
        used = self._used[phase, pattern]
        whose = f"kernels {pattern}" if pattern else "all kernels"
        return f"phase {phase!r} allows {allowed} for {whose}, this is number {used}" if used > allowed else None

    def nearest(self, subject: Subject) -> str:
        """The known prebuilt variant with the fewest differences from a subject, and these; empty without any."""
        rows = []
        for text in self.known.get(subject.kernel, ()):
            try:
                known = VariantKey.parse(text)
            except AotkernError:
                continue
            found = differences(known.arguments, subject.arguments)
            rows.append((len(found), text, "; ".join(map(str, found)) or "options only"))
        if not rows:
            return ""
        _, text, words = min(rows)
        return f"nearest prebuilt: {text}\ndiffers in: {words}"

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path | None) -> Gate:
        """The gate that the auditing process wrote down."""
        known = {name: tuple(keys) for name, keys in value["known"].items()}
        return cls(Budget.from_json(value["budget"]), Phases(folder), known)

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        return {"budget": self.budget.to_json(), "known": {name: list(keys) for name, keys in self.known.items()}}
