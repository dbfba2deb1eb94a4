"""`aotkern audit identity`, `aotkern audit reproducible` and `aotkern audit resources`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import click

from aotkern.audit import compiled, places
from aotkern.audit import identity as identity_audit
from aotkern.audit import reproducible as reproducible_audit
from aotkern.audit import resources as resources_audit
from aotkern.audit.findings import Verdict
from aotkern.audit.identity import IdentityReport
from aotkern.audit.outcome import GateReport, StepResult
from aotkern.audit.policy import Policy
from aotkern.audit.resources import ResourceReport
from aotkern.audit.sides import Side, mnemonics
from aotkern.build import builder, sources
from aotkern.cli import common, progress
from aotkern.cli import reports as files
from aotkern.codeobject import CodeObject
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.report import machine, text
from aotkern.report.plain import document as headed
from aotkern.target import Target


@click.command()
@common.sources_argument
@common.targets_option(required=True)
@common.only_option
@click.option("--baseline", help="A golden manifest or a bundle to compare with.")
@click.option("--baseline-ref", help="A git revision: its kernel sources are built too, with the same toolchain.")
@click.option("--bundle", help="Judge this bundle instead of building today's sources.")
@common.jobs_option
@common.reports_option
@common.json_option
def identity(
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    only: tuple[str, ...],
    baseline: str | None,
    baseline_ref: str | None,
    bundle: str | None,
    jobs: int,
    reports: tuple[Path, ...],
    as_json: bool,
) -> NoReturn:
    """Is the machine code of KERNELS what the baseline's was?

    Passes when every variant of the target is equal byte by byte, or equal in everything that runs; with --only, every
    variant that is meant, and the report says how many the baseline has besides. A golden manifest
    made by another toolchain proves nothing, and the answer is then exit code 2.
    """
    if (baseline is None) == (baseline_ref is None):
        raise InputError.one("--baseline, --baseline-ref", "one of the two", "both" if baseline else "neither")
    files.check(reports)
    parsed = common.parse_targets(targets)
    if baseline is not None and len(parsed) > 1:
        raise InputError.one("--target", "one target with --baseline", f"{len(parsed)} targets")
    if bundle and baseline and kernels:
        raise InputError.one("KERNELS", "none, with --bundle and --baseline: nothing is built", " ".join(kernels))
    found = () if bundle and baseline else sources.parse(kernels)
    request = builder.Request(found, parsed, common.environment(), jobs, only)
    started = time.perf_counter()
    with progress.shown("compiling", quiet=as_json) as tell:
        # What costs nothing comes first: a baseline that cannot be read should not cost a build.
        known: dict[Digest, CodeObject] = {}
        read = [Side.either(Path(baseline), known)] if baseline else []
        before = read or compiled.at(request, str(baseline_ref), tell)
        today = [Side.either(Path(bundle), known)] if bundle else compiled.today(request, tell)
    compared = [_paired(target, before, today, only) for target in parsed]
    seconds = (time.perf_counter() - started) / len(compared)
    verdict = Verdict.worst([report.verdict for report in compared])
    document = headed("audit", verdict, reports=[machine.identity(report) for report in compared])
    place = files.place(kernels, baseline or bundle or "")
    steps = tuple(StepResult.of(identity_audit.AUDIT, report.target, report, seconds, place) for report in compared)
    files.write(reports, GateReport("audit identity", steps, places.of(kernels)))
    closing = f"identity: {verdict}" + (
        " (both sides compiled in private, empty caches)" if not (bundle or baseline) else ""
    )
    common.finish(verdict, as_json=as_json, document=document, text="\n".join([*map(text.identity, compared), closing]))


def _paired(target: Target, before: list[Side], today: list[Side], only: tuple[str, ...]) -> IdentityReport:
    old = [side for side in before if side.manifest.target == target]
    new = [side for side in today if side.manifest.target == target]
    if not old or not new:
        missing = " and ".join(name for name, sides in (("the baseline", old), ("the candidate", new)) if not sides)
        labels = [(sides[0].label if sides else "nothing") for sides in (before, today)]
        reason = f"nothing was compared: {missing} has no variant for {target}"
        return IdentityReport(str(target), labels[0], labels[1], (), reason)
    return identity_audit.compare(old[0], new[0], only)


@click.command()
@common.sources_argument
@common.targets_option(required=False)
@common.jobs_option
@common.reports_option
@common.json_option
def reproducible(
    kernels: tuple[str, ...], targets: tuple[str, ...], jobs: int, reports: tuple[Path, ...], as_json: bool
) -> NoReturn:
    """Does a rebuild of KERNELS give the same bytes?

    Builds twice, the second time with another folder, file times, line positions, hash seed, locale, home, time zone,
    job count and order. If the bytes differ, each of these is changed alone and the guilty ones are named.
    """
    files.check(reports)
    chosen = common.parse_targets(targets)
    request = builder.Request(sources.parse(kernels), chosen, common.environment(), jobs)
    started = time.perf_counter()
    with progress.shown("compiling", quiet=as_json) as tell:
        report = reproducible_audit.audit(request, tell)
    seconds = time.perf_counter() - started
    subject, place = ", ".join(kernels) or "shipped kernels", files.place(kernels)
    step = StepResult.of(reproducible_audit.AUDIT, subject, report, seconds, place)
    files.write(reports, GateReport("audit reproducible", (step,), places.of(kernels)))
    closing = f"{text.reproducible(report)}\nreproducible: {report.verdict}"
    common.finish(report.verdict, as_json=as_json, document=machine.reproducible(report), text=closing)


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...")
@click.option("--policy", type=click.Path(path_type=Path), help="Bounds: the [[resources.rule]] tables of this policy.")
@click.option("--baseline", help="A golden manifest or a bundle to list changes against.")
@common.reports_option
@common.json_option
def resources(
    bundles: tuple[str, ...],
    policy: Path | None,
    baseline: str | None,
    reports: tuple[Path, ...],
    as_json: bool,
) -> NoReturn:
    """What do the variants of BUNDLEs take: registers, LDS, scratch, spills, occupancy, code size?

    Without a policy nothing is out of bounds; changes against a baseline are listed and are no findings by themselves.
    """
    files.check(reports)
    rules = [rule for step in Policy.read(policy).resources for rule in step.rules] if policy else []
    before = Side.either(Path(baseline)).manifest if baseline else None
    steps: list[StepResult] = []
    audited: list[ResourceReport] = []
    for name in bundles:
        started = time.perf_counter()
        opened = Side.bundle(Path(name))
        mine = [rule for rule in rules if rule.target == opened.manifest.target]
        code = mnemonics(opened) if any(rule.instructions for rule in mine) else None
        audited.append(resources_audit.audit(opened.manifest, mine, code, before))
        seconds = time.perf_counter() - started
        steps.append(StepResult.of(resources_audit.AUDIT, name, audited[-1], seconds, baseline or name))
    files.write(reports, GateReport("audit resources", tuple(steps)))
    verdict = Verdict.worst([report.verdict for report in audited])
    document = headed("audit", verdict, reports=[machine.resources(report) for report in audited])
    closing = f"resources: {verdict}"
    common.finish(
        verdict, as_json=as_json, document=document, text="\n\n".join([*map(text.resources, audited), closing])
    )
