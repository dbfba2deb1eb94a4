"""One watch from beginning to end: observers on Triton as it is imported, and notes about what they cannot see."""

from __future__ import annotations

import sys

from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.imports import AfterImport
from aotkern.triton_bridge.observers import Observers
from aotkern.triton_bridge.recorder import Recorder
from aotkern.triton_bridge.sink import Sink
from aotkern.triton_bridge.watch import OTHER_COMPILERS, Report, Watch


class Session:
    """A watch on this process. Triton may be imported already, or later, or never.

    Args:
        sink: Takes the events.
        gate: Judges every compile before it begins.
    """

    def __init__(self, sink: Sink, gate: Gate) -> None:
        self.recorder = Recorder(sink, gate)
        self._watch = Watch(Observers(self.recorder), self._ready, self._interpreted)
        self.finder = AfterImport(self._watch.actions, self._foreign, OTHER_COMPILERS)

    def begin(self) -> None:
        """Put the observers on what is there, and wait for what will be."""
        for name in sorted(OTHER_COMPILERS & sys.modules.keys()):
            self._foreign(name)
        self.finder.install()

    def end(self) -> None:
        """Take the observers off; what the program set meanwhile stays."""
        self.finder.remove()
        self._watch.remove()

    def _ready(self, version: str, report: Report) -> None:
        self.recorder.note(
            {"event": "triton", "version": version, "watched": report.watched, "missing": report.missing}
        )

    def _interpreted(self) -> None:
        self.recorder.note({"event": "interpreter"})

    def _foreign(self, name: str) -> None:
        self.recorder.note({"event": "foreign", "system": name})
