"""`aotkern audit`: the whole gate, and the group of the single audits."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import click

from aotkern.cli import common
from aotkern.cli.lazy import LazyGroup

DEFAULT_POLICY = Path("audits/policy.toml")

AUDITS = {
    "identity": ("aotkern.cli.audit:identity", "Is the machine code what the baseline's was?"),
    "resources": ("aotkern.cli.audit:resources", "Registers, LDS, scratch, spills and occupancy against bounds."),
    "reproducible": ("aotkern.cli.audit:reproducible", "Does a rebuild give the same bytes?"),
    "coverage": ("aotkern.cli.coverage:coverage", "Does every call find a prebuilt variant?"),
    "numerics": ("aotkern.cli.numerics:run", "Does the machine code compute the right numbers?"),
    "static": ("aotkern.cli.static_code:run", "Does the machine code show faults without being run?"),
    "jit": ("aotkern.cli.jit:jit", "Run a program and count what Triton compiles in it."),
    "replay": ("aotkern.cli.replay:replay", "What would a served workload compile?"),
}


@click.group(cls=LazyGroup, lazy=AUDITS, invoke_without_command=True)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    default=DEFAULT_POLICY,
    show_default=True,
    help="The gate: which audits must pass, on what, within which bounds.",
)
@click.option("--init", is_flag=True, help="Write a commented policy for your own project to --policy and stop.")
@common.jobs_option
@common.reports_option
@common.json_option
@click.pass_context
def audit(
    context: click.Context, policy: Path, init: bool, jobs: int, reports: tuple[Path, ...], as_json: bool
) -> None:
    """Prove things about kernels and bundles before a release.

    Without a command: the whole gate of a policy, step by step, with one verdict. Audits compile in private, empty
    caches and never read the local store. Exit codes: 0 clean, 1 findings, 2 could not tell; an audit that compared
    nothing could not tell.
    """
    if context.invoked_subcommand is not None:
        if init or reports or as_json:
            raise click.UsageError(f"options of {context.invoked_subcommand} stand after its name")
        return
    if init:
        _init(policy)
        return
    from aotkern.audit import gate  # noqa: PLC0415 - `audit --help` and the single audits do not pay for it
    from aotkern.audit.policy import Policy  # noqa: PLC0415
    from aotkern.audit.steps import Circumstances  # noqa: PLC0415
    from aotkern.cli import progress  # noqa: PLC0415
    from aotkern.cli import reports as files  # noqa: PLC0415
    from aotkern.report import machine, text  # noqa: PLC0415

    steps = Policy.read(policy)
    files.check(reports)
    with progress.shown("compiling", quiet=as_json) as tell:
        report = gate.run(steps, str(policy), Circumstances(common.environment(), jobs, tell))
    if steps.numerics:
        with contextlib.suppress(ImportError):  # without numpy that step came to no report
            importlib.import_module("aotkern.report.numerics")
    files.write(reports, report)
    common.finish(report.verdict, as_json=as_json, document=machine.gate(report), text=text.gate(report))


def _init(path: Path) -> None:
    from aotkern.audit.policy_example import EXAMPLE  # noqa: PLC0415
    from aotkern.errors import InputError  # noqa: PLC0415

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except OSError as error:
        reason = "it is there already" if path.exists() else error.strerror or str(error)
        raise InputError.one(str(path), "a new file that can be written", reason) from error
    click.echo(f"wrote {path}; adapt it, then run: aotkern audit --policy {path}")
    sys.exit(0)
