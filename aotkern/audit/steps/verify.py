"""Every byte of a bundle is what its digests say."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aotkern.audit import contents
from aotkern.audit.findings import Report
from aotkern.audit.steps.planned import Circumstances, Planned
from aotkern.bundle import Bundle


def planned(step: Path, _: Circumstances) -> Planned:
    """The step for one bundle."""
    return Planned(contents.AUDIT, str(step), str(step), partial(_verify, step))


def _verify(path: Path) -> Report:
    return contents.of(Bundle.open(path))
