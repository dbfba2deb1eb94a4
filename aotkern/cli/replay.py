"""`aotkern audit replay`: what a served workload would compile, in each of its arms."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NoReturn

import click

from aotkern.audit.counting import count_jit
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.findings import Verdict
from aotkern.audit.replay.arms import BundleArm, JitArm, LaunchingArm, fresh
from aotkern.audit.replay.drive import ArmResult, OpenServer, drive
from aotkern.audit.replay.workload import BUNDLE, Arm, Workload
from aotkern.audit.sides import Side
from aotkern.build import registry
from aotkern.cli import common
from aotkern.errors import InputError, MissingToolError
from aotkern.loader import load
from aotkern.report import replay as text
from aotkern.spec import expand

Kernels = tuple[registry.LoadedKernel, ...]


@click.command()
@click.argument("workload")
@click.option("--arm", "names", multiple=True, help="Only this arm; once for each. Default: all of them.")
@click.option("--server", help="The module that is replayed, instead of the workload's.")
@click.option("--bundle", help="Prebuilt variants for `bundle` arms. Default: those that the kernels declare.")
@click.option(
    "--device", default="meta", show_default=True, help="A GPU, such as cuda, to launch and compile for real on it."
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write the comparison to this file.")
@common.json_option
def replay(
    workload: str,
    names: tuple[str, ...],
    server: str | None,
    bundle: str | None,
    device: str,
    markdown: Path | None,
    as_json: bool,
) -> NoReturn:
    """Serve WORKLOAD on paper and count the binaries that each kernel would compile, and when.

    Drives the kernels' own host code with tensors without memory, on a device on paper; needs Triton and torch, and no
    GPU. Exit codes: 0 nothing compiles in the scored phase, 1 something does, 2 it could not be told.
    """
    parsed = Workload.read(Path(workload))
    arms = [parsed.arm(name) for name in names] or list(parsed.arms)
    module = server or parsed.server
    open_server = _server(module)
    kernels = registry.load([registry.Source.parse(module.rpartition(".")[0] or module)])
    run = _on_paper if device == "meta" else _launching
    results = [run(parsed, arm, open_server, kernels, bundle, device) for arm in arms]
    verdict = Verdict.worst([result.verdict for result in results])
    document = text.json_document(parsed, results, verdict)
    if markdown is not None:
        where = text.ON_PAPER if device == "meta" else f"Everything was launched, on {device}."
        markdown.write_text(text.markdown(parsed, results, where), "utf-8")
    common.finish(verdict, as_json=as_json, document=document, text=text.summary(parsed, results, verdict))


def _server(module: str) -> OpenServer:
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingToolError("torch", "to drive host code", "pip install aotkern[torch]") from error
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise InputError.one("server", f"a module {module} that can be imported", str(error)) from error
    if not hasattr(found, "open_server"):
        raise InputError.one(f"server {module}", "a function open_server(launcher, device, settings)", "none")
    open_server: OpenServer = found.open_server
    return open_server


def _functions(kernels: Kernels) -> dict[str, Any]:
    return {kernel.declaration.name: kernel.declaration.function for kernel in kernels}


def _on_paper(
    workload: Workload, arm: Arm, open_server: OpenServer, kernels: Kernels, bundle: str | None, device: str
) -> ArmResult:
    if arm.kind == BUNDLE:
        look_up = BundleArm(_catalogue(arm, kernels, bundle))
        return drive(workload, arm, look_up, open_server(look_up, device, arm.settings))
    launcher = JitArm(_functions(kernels))
    with launcher.watching(arm.target):
        return drive(workload, arm, launcher, open_server(launcher, device, arm.settings))


def _launching(
    workload: Workload, arm: Arm, open_server: OpenServer, kernels: Kernels, bundle: str | None, device: str
) -> ArmResult:
    with count_jit() as count:
        if arm.kind == BUNDLE:
            if bundle is None:
                raise InputError.one("--bundle", "a bundle for the device, which this arm launches from", "none")
            launcher = LaunchingArm(None, count)
            launcher.launcher = load(bundle, on_miss=lambda call: launcher.missed(call.kernel, call.miss))
        else:
            launcher = LaunchingArm({name: fresh(function) for name, function in _functions(kernels).items()}, count)
        return drive(workload, arm, launcher, open_server(launcher, device, arm.settings))


def _catalogue(arm: Arm, kernels: Kernels, bundle: str | None) -> Catalogue:
    if bundle is not None:
        found = Catalogue.of_manifest(bundle, Side.either(Path(bundle)).manifest)
        if found.target != arm.target:
            raise InputError.one(bundle, f"a bundle for {arm.target}", f"one for {found.target}")
        return found
    declared = {
        kernel.declaration.name: (kernel.parameters, expand(kernel.declaration, kernel.parameters, arm.target))
        for kernel in kernels
    }
    return Catalogue.of_keys("the declared variants", arm.target, {n: row for n, row in declared.items() if row[1]})
