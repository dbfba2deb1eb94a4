"""An arm put together and driven on paper: its server, its kernels, and the JIT or the variants that launches meet."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.replay.arms import BundleArm, JitArm
from aotkern.audit.replay.drive import ArmResult, OpenServer, drive
from aotkern.audit.replay.workload import BUNDLE, Arm, Workload
from aotkern.build import registry
from aotkern.errors import AotkernError, InputError, MissingToolError
from aotkern.spec import expand

Kernels = tuple[registry.LoadedKernel, ...]

ON_PAPER = "meta"
"""Torch's device for tensors without memory."""


def open_server(module: str) -> OpenServer:
    """What makes the server of a module by name, or of a file by path.

    Raises:
        InputError: It cannot be imported, or offers none.
        MissingToolError: torch is not installed.
    """
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingToolError("torch", "to drive host code", "pip install aotkern[torch]") from error
    found = _imported(module)
    if not hasattr(found, "open_server"):
        raise InputError.one(f"server {module}", "a function open_server(launcher, device, settings)", "none")
    opened: OpenServer = found.open_server
    return opened


def _imported(module: str) -> ModuleType:
    source = registry.Source.parse(module)
    if source.path is not None:
        return registry.import_file(source.path)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise InputError.one("server", f"a module {module} that can be imported", str(error)) from error


def kernels_of(module: str) -> Kernels:
    """The kernels beside a server: those of its package, or of its own module where it is in none.

    Raises:
        InputError: They cannot be imported, or nothing is declared.
    """
    source = registry.Source.parse(module)
    if source.path is None:
        return registry.load([registry.Source.parse(module.rpartition(".")[0] or module)])
    beside = source.path.parent
    return registry.load([registry.Source.parse(str(beside if (beside / "__init__.py").is_file() else source.path))])


def functions(kernels: Kernels) -> dict[str, Any]:
    """The `@triton.jit` functions by the names under which they are launched."""
    return {kernel.declaration.name: kernel.declaration.function for kernel in kernels}


def on_paper(workload: Workload, arm: Arm, server: str, variants: Catalogue | None) -> ArmResult:
    """Serve a workload on one arm, without a GPU.

    Args:
        workload: What is served.
        arm: How.
        server: The module, or file, whose host code is driven.
        variants: The prebuilt variants of an arm that has such; without them those that the kernels declare.

    Raises:
        InputError: The server, its settings or the variants do not fit, or its code fails.
        MissingToolError: Triton or torch is missing.
    """
    with warnings.catch_warnings():
        # What Triton says of its default for the next version concerns a program, and nothing is compiled here.
        warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION")
        return _on_paper(workload, arm, server, variants)


def _on_paper(workload: Workload, arm: Arm, server: str, variants: Catalogue | None) -> ArmResult:
    opened = open_server(server)
    if arm.kind == BUNDLE:
        look_up = BundleArm(_for_arm(arm, variants or declared(arm, kernels_of(server))))
        with driving(server):
            return drive(workload, arm, look_up, opened(look_up, ON_PAPER, arm.settings))
    launcher = JitArm(functions(kernels_of(server)))
    with launcher.watching(arm.target), driving(server):
        return drive(workload, arm, launcher, opened(launcher, ON_PAPER, arm.settings))


def _for_arm(arm: Arm, variants: Catalogue) -> Catalogue:
    if variants.target != arm.target:
        raise InputError.one(variants.label, f"a bundle for {arm.target}", f"one for {variants.target}")
    return variants


def declared(arm: Arm, kernels: Kernels) -> Catalogue:
    """The variants that kernels declare for the arm's target."""
    rows = {
        kernel.declaration.name: (kernel.parameters, expand(kernel.declaration, kernel.parameters, arm.target))
        for kernel in kernels
    }
    return Catalogue.of_keys("the declared variants", arm.target, {name: row for name, row in rows.items() if row[1]})


@contextmanager
def driving(server: str) -> Iterator[None]:
    """Host code is somebody's own: what it raises is told as its failure.

    Raises:
        InputError: In place of what the code raised.
    """
    try:
        yield
    except AotkernError:
        raise
    except Exception as error:
        reason = registry.describe(error)
        raise InputError.one(f"server {server}", "host code that can be driven", reason) from error
