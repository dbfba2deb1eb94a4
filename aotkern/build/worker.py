"""The worker process: imports kernel sources once, then answers requests line by line.

It runs in the environment of `environment.for_worker`, started by `pool`. Requests and answers are JSON lines on two
pipes of their own, so that what a kernel source or the compiler prints cannot be mistaken for an answer; code objects
go through files in the worker's scratch folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from aotkern import tritons
from aotkern.build import compiler, lint, registry, stages, toolchain, traced
from aotkern.build.origins import Moved, Reads, Redirect
from aotkern.digest import Digest
from aotkern.errors import AotkernError, BuildError, InputError, MissingToolError, Problem, ProblemsError
from aotkern.spec import VariantKey, expand
from aotkern.spec.select import selected
from aotkern.target import Target
from aotkern.triton_bridge.paper import paper_device

_WATCH_SECONDS = 1.0


class _Options:
    """The options that take effect, each different set once; the back end is asked once for each set asked for."""

    def __init__(self) -> None:
        self.known: list[dict[str, str]] = []
        self._places: dict[object, int] = {}

    def place(self, key: VariantKey) -> int:
        """Where a variant's options stand in `known`.

        Raises:
            BuildError: They are wrong.
        """
        asked = (key.target, key.options)
        if asked not in self._places:
            self.known.append({name: constant.text for name, constant in compiler.effective_options(key).items()})
            self._places[asked] = len(self.known) - 1
        return self._places[asked]


class Worker:
    """The state of one worker: its kernels.

    Args:
        sources: `[name, path or None, allow_stale, generated]` of each source.
        scratch: Where code objects are left for the parent.
        device: The target of the device on paper under which sources are imported, or nothing for no device.
        moved: Work trees whose modules are to come from an export; see `origins.Moved`.
    """

    def __init__(
        self,
        sources: list[tuple[str, str | None, bool, bool]],
        scratch: Path,
        device: str = "",
        moved: Sequence[Moved] = (),
    ) -> None:
        # The compiler is imported before bytecode caches are turned off: its own are sound, while a stale one beside a
        # kernel source would let old constants meet new text.
        try:
            import triton.compiler  # noqa: F401, PLC0415
        except ImportError as error:
            raise MissingToolError("triton", "to compile", str(error)) from error

        stages.compiler()  # as Triton defines it: no kernel source has been imported yet
        sys.dont_write_bytecode = True
        sys.pycache_prefix = str(scratch / "pycache")
        self.scratch = scratch
        self.reads = Reads([str(scratch)])
        if moved:
            Redirect(moved).install()
        parsed = [registry.Source(str(name), Path(path) if path else None, *flags) for name, path, *flags in sources]
        self._device = device
        with self._on_paper(device):
            declared = registry.load([row for row in parsed if not traced.is_trace(row)])
            traces = [traced.load(row) for row in parsed if traced.is_trace(row)]
        kernels = (*declared, *(kernel for found in traces for kernel in found.kernels))
        self.kernels = {kernel.declaration.name: kernel for kernel in kernels}
        self.left_out = [row for found in traces for row in found.left_out]
        self._notes = [note for found in traces for note in found.notes]

    @staticmethod
    def _on_paper(device: str) -> AbstractContextManager[Any]:
        """A device on paper for what kernel sources ask of theirs, or none."""
        return paper_device(Target.parse(device)) if device else nullcontext()

    def describe(self, memo: str | None) -> dict[str, str]:
        """What compiles here; see `toolchain.describe`."""
        return toolchain.describe(Path(memo) if memo else None)

    def plan(self, targets: list[str], only: list[str], limit: int) -> dict[str, Any]:
        """Kernels, notes, and for each target its variants, each with the place of its options in a list of them.

        `aside` holds the keys of variants that are declared and that no pattern of `only` fits.
        """
        import triton  # noqa: PLC0415

        version = str(triton.__version__)
        problems: list[Problem] = []
        options = _Options()
        wanted = tuple(map(Target.parse, targets)) or self._targets()
        variants: list[list[Any]] = []
        failures: list[list[str]] = []
        aside: list[str] = []
        for target in wanted:
            if not tritons.tested(version, target.backend):
                expected = f"a version of Triton that was tested for it: {tritons.for_people()}"
                problems.append(Problem(f"target {target}", expected, f"Triton {version}"))
                continue
            for kernel in self.kernels.values():
                try:
                    keys = traced.keys(kernel, target, limit)
                    if keys is None:
                        keys = expand(kernel.declaration, kernel.parameters, target, limit)
                except InputError as error:
                    problems.extend(error.problems)
                    continue
                chosen = tuple(key for key in keys if selected(str(key), only))
                aside += [str(key) for key in keys if not selected(str(key), only)]
                known: set[tuple[object, int]] = set()
                for key in chosen:
                    try:
                        place = options.place(key)
                    except BuildError as error:
                        failures.append([error.key, error.reason])
                        continue
                    # Two calls may have asked for the same, one of them by naming a default.
                    if kernel.keys is None or (key.arguments, place) not in known:
                        variants.append([str(key), place])
                    known.add((key.arguments, place))
        if problems:
            raise InputError(problems)
        kernels = [
            [kernel.declaration.name, [asdict(parameter) for parameter in kernel.parameters], str(kernel.source)]
            for kernel in self.kernels.values()
        ]
        notes = [note for kernel in self.kernels.values() for note in lint.notes(kernel)]
        asked = set(map(str, wanted))
        left_out = [
            [row.kernel, row.target, row.reason, row.kind]
            for row in self.left_out
            if row.target in asked or not targets
        ]
        return {
            "targets": list(map(str, wanted)),
            "left_out": left_out,
            "kernels": kernels,
            "options": options.known,
            "variants": variants,
            "failures": failures,
            "aside": aside,
            "notes": [*notes, *self._notes],
        }

    def _targets(self) -> tuple[Target, ...]:
        """Every target that a kernel declares or was recorded for, in the order in which they are named."""
        found: dict[Target, None] = {}
        for kernel in self.kernels.values():
            for number, space in enumerate(kernel.declaration.spaces, 1):
                where = f"kernel {kernel.declaration.name}, space {number}: targets"
                found.update(dict.fromkeys(Target.parse(name, where) for name in space.targets))
            found.update(dict.fromkeys(key.target for key in kernel.keys or ()))
        return tuple(found)

    def identify(self, memo: str) -> dict[str, Any]:
        """What compiles here, and which kernels: toolchain, and the source digest of each kernel by name."""
        kernels = {kernel.declaration.name: str(kernel.source) for kernel in self.kernels.values()}
        return {"toolchain": self.describe(memo), "kernels": kernels}

    def compile(self, text: str, name: str) -> dict[str, Any]:
        """Compile one variant; its code object is left in the scratch folder under `name`."""
        key = VariantKey.parse(text)
        started = time.perf_counter()
        kernel = self.kernels[key.kernel]
        traced.bind(kernel.reads)
        with self._on_paper(str(key.target) if self._device else ""):
            compiled = compiler.compile_variant(kernel, key)
        (self.scratch / name).write_bytes(compiled.data)
        return {
            "digest": str(Digest.of(compiled.data)),
            "size": len(compiled.data),
            "code": compiled.code.to_json(),
            "launch": asdict(compiled.launch),
            "microseconds": round((time.perf_counter() - started) * 1e6),
            "stages": list(compiled.stages),
        }


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until the parent closes the pipe. The first request sets the worker up."""
    worker: Worker | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if worker is None:
                moved = [Moved(tree, export, tuple(ignored)) for tree, export, ignored in request["moved"]]
                worker = Worker(request["sources"], Path(request["scratch"]), request["device"], moved)
                answer: dict[str, Any] = {"ready": True}
            else:
                answer = getattr(worker, request.pop("do"))(**request)
        except ProblemsError as error:
            rows = [[problem.where, problem.expected, problem.found] for problem in error.problems]
            answer = {"error": type(error).__name__, "problems": rows}
        except BuildError as error:
            answer = {"error": type(error).__name__, "key": error.key, "reason": error.reason}
        except AotkernError as error:
            answer = {"error": type(error).__name__, "reason": str(error)}
        except Exception:  # a fault of ours or of a kernel source: tell it whole, stay alive
            answer = {"error": "Exception", "reason": traceback.format_exc()}
        if worker is not None and (news := worker.reads.news()):
            answer["news"] = news
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _live_with(parent: int) -> None:
    """End this process and what it started when its parent is gone, however that one ended."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)  # a group of its own, see `pool`


def main() -> None:
    """Serve on the two file descriptors that the parent passed as arguments, before its process number."""
    reading, writing, parent = (int(number) for number in sys.argv[1:4])
    # A closed pipe ends a worker that waits; one that is deep in an endless compile would never look at it.
    threading.Thread(target=_live_with, args=(parent,), daemon=True).start()
    with open(reading, encoding="utf-8") as requests, open(writing, "w", encoding="utf-8") as answers:  # noqa: PTH123
        serve(requests, answers)
