"""Build: variants a second with one and two jobs beside a plain loop over `triton.compile`; memory; a rebuild of 1,000.

    python -m benchmarks build

Every figure is a whole command in a fresh process. A rebuild with nothing changed still imports Triton and the kernel
sources, digests what the kernels are made of, and looks every variant up by its content.
"""

from __future__ import annotations

from aotkern.bench import Bar, Measurement, Row, Run, Table, builds, interleaved, observed, processes
from aotkern.target import Target
from benchmarks import common
from benchmarks.common import Options

JOBS = (1, 2)


def measure(options: Options) -> Run:
    common.needs("triton")
    observation = observed("build", common.command("build", options))
    variants, rounds = (24, 1) if options.quick else (400, 3)
    source = common.subset(variants, options.folder)
    environment = common.environment(options.folder / "unused")
    subject = builds.Subject((str(source),), Target.parse("gfx942"), (), environment, options.folder)
    tables = builds.measure(subject, JOBS, rounds)
    again = rebuild(options)
    two_over_one = common.median(tables[0], "aotkern build, 2 jobs", "against aotkern build, 1 job")
    unchanged = common.median(again, "aotkern build, nothing changed", "whole command")
    return observation.run(
        (*tables, again),
        (
            two_jobs(two_over_one),
            Bar("rebuild of 1,000 variants, nothing changed", "s", 0.5, at_most=True, measured=unchanged),
        ),
        (
            "Two plain loops at once share nothing but the machine: what they gain over one is what it gives to two "
            "processes.",
        ),
    )


def two_jobs(ratio: float) -> Bar:
    """What was promised of two jobs; a gain that two jobs cannot have is none."""
    what, busy = "build, 2 jobs against 1", f"{ratio:.4g} x, more than two jobs can give: other programs held the cores"
    if ratio > 2:
        return Bar(what, "x", 1.85, at_most=False, measured=None, why=busy)
    return Bar(what, "x", 1.85, at_most=False, measured=ratio)


def rebuild(options: Options) -> Table:
    """The same build again and again, in turns with what any command costs."""
    common.thousand(options)
    environment = common.environment(options.shared / "cache")
    same = common.rebuild_command(options)
    commands = {
        "aotkern build, nothing changed": same,
        "the same with -j 1": [*same, "-j", "1"],
        "aotkern --help": processes.aotkern("--help"),
    }
    samplers = {name: processes.seconds(command, environment) for name, command in commands.items()}
    times = interleaved(samplers, 3 if options.quick else 9, 1)
    rows = tuple(Row(name, (Measurement.of("s", samples),)) for name, samples in times.items())
    return Table("rebuild of 1,000 variants", ("command", "whole command"), rows)
