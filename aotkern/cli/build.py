"""`aotkern build`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NoReturn

import click
from click.core import ParameterSource

from aotkern.audit.findings import Verdict
from aotkern.build import builder, sources
from aotkern.build.executor import EXECUTORS
from aotkern.cli import common, from_trace, progress
from aotkern.errors import InputError, Problem
from aotkern.report import built
from aotkern.spec import VariantKey
from aotkern.spec.expand import DEFAULT_LIMIT
from aotkern.target import Target


@click.command()
@common.sources_argument
@common.targets_option(required=False)
@common.only_option
@common.jobs_option
@click.option(
    "--executor",
    type=click.Choice(sorted(EXECUTORS)),
    default="local",
    show_default=True,
    help="Where to compile: in worker processes here, or on the Dask cluster of --scheduler.",
)
@click.option("--scheduler", metavar="ADDRESS", default="", help="With --executor dask: such as tcp://host:8786.")
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path("out"), help="Folder for the bundles.")
@click.option("--name", help="Name of the bundles; default: that of the first source.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=builder.SECONDS_PER_VARIANT,
    show_default=True,
    help="Seconds for one variant.",
)
@click.option(
    "--max-variants",
    type=click.IntRange(1),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Refuse a kernel that declares more variants for a target.",
)
@click.option(
    "--from",
    "traces",
    multiple=True,
    metavar="TRACE",
    type=click.Path(path_type=Path),
    help="Build what `aotkern record` wrote, instead of KERNELS; several traces are merged.",
)
@click.option("--widen", is_flag=True, help="With --from: add general variants, which serve values that were not seen.")
@click.option(
    "--generated",
    is_flag=True,
    help="With --from: also build kernels that were generated at run time, by torch.compile for one. TRACE holds their "
    "text, and it is executed as any kernel source is.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="With --from: leave out kernels with such a name.")
@click.option(
    "--allow-stale",
    "older",
    multiple=True,
    metavar="BUNDLE",
    type=click.Path(path_type=Path),
    help="With --from: take kernels whose source changed, where each variant's code equals the one in BUNDLE.",
)
@click.option("--line-info", is_flag=True, help="Keep source lines for debugging; bytes then depend on the folder.")
@click.option("--no-cache", is_flag=True, help="Compile everything anew; neither read nor write the local store.")
@click.option("--slowest", is_flag=True, help="List the variants that took longest.")
@common.json_option
def build(
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    only: tuple[str, ...],
    jobs: int,
    executor: str,
    scheduler: str,
    out: Path,
    name: str | None,
    timeout: float,
    max_variants: int,
    traces: tuple[Path, ...],
    widen: bool,
    generated: bool,
    exclude: tuple[str, ...],
    older: tuple[Path, ...],
    line_info: bool,
    no_cache: bool,
    slowest: bool,
    as_json: bool,
) -> NoReturn:
    """Compile every declared variant of KERNELS into one bundle per target.

    KERNELS are modules on the import path, .py files or folders that declare KERNELS = (aotkern.spec.Kernel(...), ...);
    without any, the kernels that aotkern ships. No GPU is needed or asked. A target of which a variant fails gets no
    bundle. Compiled variants are kept in the user's cache folder (AOTKERN_CACHE changes it), by content.
    """
    wanted = common.parse_targets(targets) or sources.DEFAULT_TARGETS
    if not traces and (widen or generated or exclude or older):
        raise InputError.one("--widen, --generated, --exclude, --allow-stale", "--from with a trace", "none")
    if traces and kernels:
        raise InputError.one("KERNELS", "either KERNELS or --from", "both")
    if executor == "dask":
        _on_a_cluster(scheduler, line_info=line_info)
    elif scheduler:
        raise InputError.one("--scheduler", "--executor dask", f"--executor {executor}")
    with tempfile.TemporaryDirectory(prefix="aotkern-") as folder:
        task = (
            from_trace.traced(
                traces, wanted, Path(folder), widen=widen, generated=generated, exclude=exclude, older=older
            )
            if traces
            else from_trace.declared(kernels)
        )
        label = name or task.label
        if Path(label).name != label:
            raise InputError.one("--name", "a file name without a folder", repr(label))
        request = builder.Request(
            sources=task.sources,
            targets=wanted,
            inherited=common.environment(),
            jobs=jobs,
            only=only,
            seconds=timeout,
            limit=max_variants,
            line_info=line_info,
            store=None if no_cache else common.cache_folder(),
            before=tuple(builder.place(out, label, target) for target in wanted),
            executor=executor,
            scheduler=scheduler,
        )
        with progress.shown("compiling", quiet=as_json) as tell:
            compilation = builder.compile_targets(request, tell)
    task.finish(compilation)
    if targets:
        _all_declared(request.targets, compilation)
    part = {"only": " ".join(only)} if only else {}
    published = {
        target: builder.publish(result, out, label, {**task.provenance(target), **part})
        for target, result in compilation.targets.items()
    }
    document = built.machine(compilation, published)
    report = built.text(compilation, published) + (f"\n\n{built.slowest(compilation)}" if slowest else "")
    if not compilation.targets and not compilation.failures:
        report = f"nothing was built: no variant is declared for {', '.join(map(str, request.targets))}"
        document["verdict"] = str(Verdict.UNKNOWN)
        common.finish(Verdict.UNKNOWN, as_json=as_json, document=document, text=report)
    verdict = Verdict.FINDINGS if compilation.failures else Verdict.CLEAN
    common.finish(verdict, as_json=as_json, document=document, text=report)


def _on_a_cluster(scheduler: str, *, line_info: bool) -> None:
    """Refuse what has no meaning on a cluster."""
    problems: list[Problem] = []
    if not scheduler:
        problems.append(Problem("--executor dask", "--scheduler with the address of a Dask scheduler", "none"))
    if click.get_current_context().get_parameter_source("jobs") is not ParameterSource.DEFAULT:
        found = "--executor dask, where the threads of the cluster's workers say how many compile at once"
        problems.append(Problem("--jobs", "--executor local", found))
    if line_info:
        found = "--executor dask, where sources stand in another folder on each machine"
        problems.append(Problem("--line-info", "--executor local", found))
    if problems:
        raise InputError(problems)


def _all_declared(targets: tuple[Target, ...], compilation: builder.Compilation) -> None:
    """A target that was named and that no kernel declares is a mistake; nothing is published beside it."""
    failed = {VariantKey.parse(error.key).target for error in compilation.failures}
    if missing := [target for target in targets if target not in compilation.targets and target not in failed]:
        found = f"no variant for {', '.join(map(str, missing))}"
        raise InputError.one("--target", "targets that a kernel declares", found)
