"""A step of the gate before it is carried out, and what it may need from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aotkern.audit.findings import Report
from aotkern.build.builder import Step

Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the steps need from outside: the caller's environment, worker processes, and who hears of progress."""

    inherited: Mapping[str, str]
    jobs: int = 1
    progress: Progress = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Planned:
    """A step that is to be carried out; the texts are those of its `StepResult`."""

    name: str
    subject: str
    place: str
    action: Callable[[], Report]
