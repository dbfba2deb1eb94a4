"""Audits: identity and verification of 1,000 variants from files, and numerics in the emulator.

    python -m benchmarks audits

Identity and verification are whole commands in fresh processes, and once more without their start-up, in this process.
Both sides of the identity audit are files: the bundle, every byte of which is verified, against the golden manifest.
"""

from __future__ import annotations

import re
from pathlib import Path

from aotkern.audit import identity
from aotkern.audit.sides import Side
from aotkern.bench import Bar, Measurement, Row, Run, Table, interleaved, observed, processes, timed
from aotkern.bundle import Bundle
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from benchmarks import common
from benchmarks.common import Options

NUMERICS = ("cp_gather*", "insert_*")
"""Kernels of those that aotkern ships whose numerics are audited here; all of them take minutes to build."""


def measure(options: Options) -> Run:
    common.needs("triton", "numpy", "rocm")
    observation = observed("audits", common.command("audits", options), ("rocm-llvm-python",))
    bundle = common.thousand(options)
    rounds = 3 if options.quick else 9
    files = from_files(bundle, options, rounds)
    bar = common.median(files, "identity: bundle against golden manifest", "whole command")
    tables = (files, numerics(options, 1 if options.quick else 3))
    what = "identity audit of 1,000 variants from files"
    return observation.run(tables, (Bar(what, "s", 1, at_most=True, measured=bar),))


def from_files(bundle: Path, options: Options, rounds: int) -> Table:
    """What reads bundles and manifests from files."""
    environment = common.environment(options.shared / "cache")
    golden = options.folder / "golden.json"
    processes.run(processes.aotkern("manifest", str(bundle), "--out", str(golden)), environment)
    against = ("audit", "identity", "-t", "gfx942", "--bundle", str(bundle), "--baseline")
    rows = {
        "identity: bundle against golden manifest": ((*against, str(golden)), lambda: compared(bundle, golden)),
        "identity: bundle against bundle": ((*against, str(bundle)), lambda: compared(bundle, bundle)),
        "verify": (("verify", str(bundle)), lambda: Bundle.open(bundle).verify()),
        "verify --help, the start-up": (("verify", "--help"), None),
    }
    commands = {f"{name} command": processes.seconds(processes.aotkern(*words), environment)
                for name, (words, _) in rows.items()}  # fmt: skip
    calls = {name: timed(call) for name, (_, call) in rows.items() if call}
    times = interleaved({**commands, **calls}, rounds, 1)
    opened = Bundle.open(bundle)
    code = sum(entry.size for entry in opened.manifest.objects) / 1e6
    made = []
    for name, (_, call) in rows.items():
        inside = Measurement.of("s", times[name]) if call else None
        rate = Measurement.of("MB/s", (code / sample for sample in times[name])) if call else None
        made.append(Row(name, (Measurement.of("s", times[f"{name} command"]), inside, rate)))
    variants, objects = len(opened.manifest.variants), len(opened.manifest.objects)
    title = (
        f"{variants} variants, {objects} code objects of {code:.2f} MB, in a bundle of {len(opened.data) / 1e3:.0f} kB"
    )
    return Table(title, ("audit", "whole command", "without start-up", "code"), tuple(made))


def compared(candidate: Path, baseline: Path) -> None:
    """The identity audit from two files."""
    known: dict[Digest, CodeObject] = {}
    report = identity.compare(Side.either(baseline, known), Side.either(candidate, known))
    assert not report.verdict.exit_code, report


def numerics(options: Options, rounds: int) -> Table:
    """The numerics audit of some kernels of each AMD target, as whole commands."""
    environment = common.environment(options.shared / "cache")
    only = [word for pattern in NUMERICS[: 1 if options.quick else None] for word in ("--only", pattern)]
    targets = ("gfx942",) if options.quick else ("gfx942", "gfx950")
    wanted = [word for target in targets for word in ("-t", target)]
    where = ("-o", str(options.folder), "--name", "numerics")
    processes.run(processes.aotkern("build", str(common.ROOT / "kernels"), *wanted, *only, *where), environment)
    commands = {
        target: processes.aotkern(
            "audit", "numerics", str(options.folder / f"numerics.{target}.aotk"), "--cases", "kernels.cases"
        )
        for target in targets
    }
    counts = {target: counted(processes.run(command, environment)) for target, command in commands.items()}
    samplers = {target: processes.seconds(command, environment) for target, command in commands.items()}
    rows = []
    for target, samples in interleaved(samplers, rounds).items():
        variants, cases = counts[target]
        rate = Measurement.of("1/s", (variants / sample for sample in samples))
        rows.append(Row(target, (str(variants), str(cases), Measurement.of("s", samples), rate)))
    columns = ("target", "variants", "cases", "whole command", "variants a second")
    return Table("numerics in the emulator, " + " and ".join(NUMERICS), columns, tuple(rows))


def counted(said: str) -> tuple[int, int]:
    """Variants and cases from what the audit says."""
    found = re.search(r"(\d+) of \1 code objects, (\d+) cases .*wrong 0, could not tell 0", said)
    assert found, said
    return int(found[1]), int(found[2])
