"""`aotkern build`."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click
from click.core import ParameterSource

from aotkern.audit.findings import Verdict
from aotkern.build import builder, traced
from aotkern.build.executor import EXECUTORS
from aotkern.bundle import SUFFIX
from aotkern.cli import common, from_trace, progress
from aotkern.errors import InputError, Problem
from aotkern.report import built
from aotkern.spec import VariantKey
from aotkern.spec.expand import DEFAULT_LIMIT
from aotkern.target import Target
from aotkern.workfolder import work_folder


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
@click.option(
    "--paper-choices", is_flag=True, help="With --from: take what autotuners chose on paper, where times are made up."
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="With --from: where modules that TRACE names are looked for first, instead of the current folder. They are "
    "imported, which executes them: build only traces that you trust.",
)
@click.option("--strict", is_flag=True, help="Write no bundle where something would be left out.")
@click.option("--keep-going", is_flag=True, help="With KERNELS: leave out variants that fail; with --from that is so.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable that kernel sources look at when they are imported; without a value the one here. The manifest "
    "records it.",
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
    paper_choices: bool,
    paths: tuple[Path, ...],
    strict: bool,
    keep_going: bool,
    variables: tuple[str, ...],
    exclude: tuple[str, ...],
    older: tuple[Path, ...],
    line_info: bool,
    no_cache: bool,
    slowest: bool,
    as_json: bool,
) -> NoReturn:
    """Compile every declared variant of KERNELS into one bundle per target.

    KERNELS are modules on the import path, .py files or folders that declare KERNELS = (aotkern.spec.Kernel(...), ...);
    without any, the kernels that aotkern ships. No GPU is needed or asked. Compiled variants are kept in the user's
    cache folder (AOTKERN_CACHE changes it), by content.

    A target of which a declared variant fails gets no bundle, unless --keep-going says so. With --from, what cannot be
    built is left out. The exit code is 0 when all that was asked for is in the bundles, 1 when something is not, which
    the last line says, and 2 when nothing could be built.
    """
    wishes = from_trace.Wishes(common.parse_targets(targets), widen, generated, paper_choices, exclude, older, paths)
    kernels, traces = _told_apart(kernels, traces)
    if not traces and (wishes.widen or generated or paper_choices or exclude or older or paths):
        names = "--widen, --generated, --paper-choices, --exclude, --allow-stale, --path"
        raise InputError.one(names, "--from with a trace", "none")
    if executor == "dask":
        _on_a_cluster(scheduler, line_info=line_info)
    elif scheduler:
        raise InputError.one("--scheduler", "--executor dask", f"--executor {executor}")
    environment = common.environment()
    with work_folder("trace") as folder:
        task = from_trace.traced(traces, folder, wishes) if traces else from_trace.declared(kernels, wishes.targets)
        label = name or task.label
        if Path(label).name != label:
            raise InputError.one("--name", "a file name without a folder", repr(label))
        requests = [
            builder.Request(
                sources=part.sources,
                targets=part.targets,
                inherited=environment,
                jobs=jobs,
                only=only,
                seconds=timeout,
                limit=max_variants,
                line_info=line_info,
                store=None if no_cache else common.cache_folder(),
                before=_before(out, label, part.targets),
                executor=executor,
                scheduler=scheduler,
                partial=keep_going or bool(traces),
                device=part.device,
                variables=_variables(variables, environment),
            )
            for part in task.parts
        ]
        with progress.shown("compiling", quiet=as_json) as tell:
            compilation = builder.compile_all(requests, tell)
    task.finish(compilation)
    if targets:
        _all_declared(wishes.targets, compilation)
    _finish(compilation, task, out, label, only, strict=strict, slowest=slowest, as_json=as_json)


def _finish(
    compilation: builder.Compilation,
    task: from_trace.Task,
    out: Path,
    label: str,
    only: tuple[str, ...],
    *,
    strict: bool,
    slowest: bool,
    as_json: bool,
) -> NoReturn:
    """Write the bundles, say what was made and what was not, and leave."""
    refused = strict and bool(compilation.left_out)
    part = {"only": " ".join(only)} if only else {}
    targets = {} if refused else compilation.targets
    published = {
        target: builder.publish(result, out, label, {**task.provenance(target), **part})
        for target, result in targets.items()
    }
    shown = replace(compilation, targets=targets)
    verdict = built.verdict(shown)
    if not compilation.targets and not compilation.failures:
        verdict = Verdict.UNKNOWN
    document = {**built.machine(shown, published), "verdict": str(verdict)}
    report = built.text(shown, published, slowest=slowest)
    if not compilation.targets and not compilation.failures and not compilation.left_out:
        names = ", ".join(map(str, compilation.asked)) or "any target"
        report = f"nothing was built: no variant is declared for {names}"
    elif refused:
        report += "; --strict: no bundle was written"
    common.finish(verdict, as_json=as_json, document=document, text=report)


def _told_apart(kernels: tuple[str, ...], traces: tuple[Path, ...]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """KERNELS and traces; a trace that is given as KERNELS is built as it is with --from."""
    named = tuple(Path(text) for text in kernels if text.endswith(traced.SUFFIX))
    if (traces or named) and len(named) < len(kernels):
        raise InputError.one("KERNELS", "either KERNELS or --from", "both")
    return (() if named else kernels), (*traces, *named)


def _before(out: Path, label: str, targets: tuple[Target, ...]) -> tuple[Path, ...]:
    """Bundles that this build may replace."""
    if targets:
        return tuple(builder.place(out, label, target) for target in targets)
    return tuple(sorted(out.glob(f"{glob.escape(label)}.*{SUFFIX}")))


_OWN_VARIABLES = (
    "PATH",
    "HOME",
    "TMPDIR",
    "TRITON_HOME",
    "TRITON_CACHE_DIR",
    "TRITON_ALWAYS_COMPILE",
    "PYTHONHASHSEED",
)


def _variables(texts: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--env`.

    Raises:
        InputError: One without a value is not set here, or a worker has its own.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not name or name in _OWN_VARIABLES or name.startswith(("AOTKERN_", "LD_", "PYTHON")):
            raise InputError.one("--env", "a variable that workers do not have of their own", repr(name))
        if not given and name not in environment:
            raise InputError.one("--env", f"NAME=VALUE, or {name} in the environment", "neither")
        found[name] = value if given else environment[name]
    return found


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
    failed = {str(VariantKey.parse(error.key).target) for error in compilation.failures}
    known = {*map(str, compilation.targets), *failed, *(row.target for row in compilation.left_out)}
    if missing := [target for target in targets if str(target) not in known]:
        found = f"no variant for {', '.join(map(str, missing))}"
        raise InputError.one("--target", "targets that a kernel declares", found)
