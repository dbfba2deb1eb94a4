"""What the tests of serving share: a program, its trace, and bundles built from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

from aotkern.build import builder, traceplan
from aotkern.build.registry import Source
from aotkern.bundle import Bundle
from aotkern.target import Target
from aotkern.trace import TUNING, Trace
from aotkern.triton_bridge.paper import PaperDriver, PaperTensor, paper_device
from aotkern.triton_bridge.recording import record

FP32 = PaperTensor("float32")
TARGETS = tuple(map(Target.parse, ("gfx942", "cuda:90")))


class Launches(PaperDriver):
    """A device on paper that notes the signature of everything that it launches."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.signatures: list[dict] = []

    def launcher_cls(self, source, metadata):
        del metadata
        return lambda *_: self.signatures.append(dict(source.signature))


@contextmanager
def launching(target: str):
    """Make such a device the active one."""
    from triton.runtime.driver import driver

    with paper_device(Target.parse(target)):
        device = Launches(Target.parse(target))
        driver.set_active(device)
        yield device


def recorded(program: Callable[[], None], targets: Sequence[Target] = TARGETS) -> Trace:
    """The trace of a program, run once on each target."""
    import served_kernels

    with record() as found:
        for target in targets:
            served_kernels.forget()
            with paper_device(target):
                program()
    return found[0]


def built(trace: Trace, folder: Path, targets: Sequence[Target] = TARGETS, *, widen: bool = False) -> list[Path]:
    """Bundles of a trace, one for each target."""
    folder.mkdir(exist_ok=True)
    plan = folder / "plan.jsonl"
    plan.write_bytes(traceplan.planned(trace, targets, widen=widen).to_bytes())
    request = builder.Request((Source("trace", plan, generated=True),), tuple(targets), {"PATH": os.environ["PATH"]})
    result = builder.compile_targets(request)
    assert not result.failures, result.failures
    assert not result.left_out, result.left_out
    return [
        builder.publish(build, folder, "served", {TUNING: traceplan.tuning(trace.chosen, target)}).path
        for target, build in result.targets.items()
    ]


def manifest_keys(path: Path) -> list[str]:
    return [variant.text for variant in Bundle.open(path).manifest.variants]
