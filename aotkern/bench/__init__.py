"""Measuring, and the record of it: what was measured where, with which versions, by which command, and how it spread.

    measurement  samples of one quantity and what is said of them
    record       tables of measurements, bars, the machine: one benchmark's run as a value and as JSON
    observed     the facts of this machine and this environment
    timing       alternatives that take turns, so that what disturbs one disturbs all

A benchmark is a script or a command that makes a `Run`; nothing here decides what is worth measuring. Only run-time
dependencies of aotkern are needed.
"""

from aotkern.bench.measurement import Measurement
from aotkern.bench.observed import observed
from aotkern.bench.record import Bar, Machine, Row, Run, Table
from aotkern.bench.timing import interleaved, ratios, timed

__all__ = ["Bar", "Machine", "Measurement", "Row", "Run", "Table", "interleaved", "observed", "ratios", "timed"]
