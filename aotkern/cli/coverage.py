"""`aotkern audit coverage`: which calls would find a prebuilt variant, without running anything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit.coverage import domain as domains
from aotkern.audit.coverage import proof, trace
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.jit.program import read_log
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.sides import Side
from aotkern.cli import common
from aotkern.cli import reports as files
from aotkern.errors import InputError
from aotkern.report import coverage as text


@click.command()
@click.argument("bundle")
@click.option("--domain", help="A TOML file that declares what may be called: every class of it is proved.")
@click.option("--trace", "folder", help="A folder of events from `aotkern audit jit --events`: every call of that run.")
@common.reports_option
@common.json_option
def coverage(bundle: str, domain: str | None, folder: str | None, reports: tuple[Path, ...], as_json: bool) -> NoReturn:
    """Does every call of a domain, or of a recorded run, find a variant in BUNDLE?

    BUNDLE is a bundle or a manifest. The answer is the loader's own: the same rule decides. Exit codes: 0 all calls
    are covered, 1 some are not, 2 there was no call.
    """
    if (domain is None) == (folder is None):
        raise InputError.one("--domain, --trace", "one of the two", "both" if domain else "neither")
    files.check(reports)
    started = time.perf_counter()
    catalogue = Catalogue.of_manifest(bundle, Side.either(Path(bundle)).manifest)
    if domain is not None:
        report = proof.prove(catalogue, domains.read(Path(domain)), domain)
    else:
        if not Path(str(folder)).is_dir():
            raise InputError.one("--trace", "a folder of events", f"no such folder: {folder}")
        report = trace.replay(catalogue, read_log(Path(str(folder))).compiles, str(folder))
    step = StepResult.of(proof.AUDIT, bundle, report, time.perf_counter() - started, str(domain or bundle))
    files.write(reports, GateReport("audit coverage", (step,)))
    common.finish(report.verdict, as_json=as_json, document=text.json_document(report), text=text.summary(report))
