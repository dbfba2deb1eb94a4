"""What a launch costs in each arm: a specialisation that Triton has not met yet, or a look-up in prebuilt variants.

Launchers here are called like Triton's JIT, `launcher[kernel][grid](*arguments, **constants)`, and launch nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from aotkern.arguments import bind, read
from aotkern.audit.counting import JitCount
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.coverage.proof import Gap, gap_of, in_words, values_in_words
from aotkern.audit.jit.events import Log
from aotkern.audit.jit.events import read as read_events
from aotkern.dispatch import Choice, Miss, choose
from aotkern.spec import Constant
from aotkern.target import Target
from aotkern.triton_bridge import describe, subject
from aotkern.triton_bridge.gate import Gate
from aotkern.triton_bridge.paper import paper_device
from aotkern.triton_bridge.recorder import Recorder
from aotkern.triton_bridge.sink import MemorySink


@dataclass(frozen=True, slots=True)
class Met:
    """A compile that would have happened, by the number of the step, its phase, and the kernel."""

    step: int
    phase: str
    kernel: str


class Counting(Protocol):
    """A launcher that counts what its launches would have compiled.

    Attributes:
        launches: How many there were, by phase and kernel.
        step: Number of the step that is being driven; who drives counts it up.
        met: The compiles so far, where their step is known.
    """

    launches: Counter[tuple[str, str]]
    step: int
    met: list[Met]

    def __getitem__(self, kernel: str, /) -> Any:
        """What `[grid](*arguments, **constants)` launches."""

    def phase(self, name: str) -> None:
        """Begin a phase."""

    def log(self) -> Log:
        """What would have been compiled."""


class JitArm:
    """Triton's own JIT up to the compiler: its binder says which calls are new, and nothing is compiled.

    Args:
        functions: The `@triton.jit` functions by the names under which they are launched. Those that serve several
            arms get tables of their own for each.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.launches: Counter[tuple[str, str]] = Counter()
        self.step, self.met = 0, list[Met]()
        self._functions = {name: fresh(kernel) for name, kernel in functions.items()}
        self._sink, self._gate = MemorySink(), Gate()
        self._recorder = Recorder(self._sink, self._gate)
        self._known: set[tuple[str, str]] = set()
        self._recorder.note(
            {"event": "triton", "version": "on paper", "watched": ["calls of JIT functions"], "missing": []}
        )

    def __getitem__(self, kernel: str, /) -> Any:
        """Something that takes a grid, then arguments, and counts."""
        function = self._functions[kernel]

        def on_grid(grid: object) -> Callable[..., None]:
            del grid
            self.launches[self._gate.phases.now, kernel] += 1
            return functools.partial(function.warmup, grid=None)

        return _Indexed(on_grid)

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self._gate.phases.now = name

    def log(self) -> Log:
        """One compile for each specialisation that was met for the first time."""
        return read_events([self._sink.events])

    @contextmanager
    def watching(self, target: Target) -> Iterator[None]:
        """Answer Triton's question before each compile, on a device on paper."""
        from triton import knobs  # noqa: PLC0415 - `paper_device` has said what is missing where there is none

        before = knobs.runtime.jit_cache_hook
        with paper_device(target):
            knobs.runtime.jit_cache_hook = self._veto
            try:
                yield
            finally:
                knobs.runtime.jit_cache_hook = before

    def _veto(self, *, fn: Any, compile: Mapping[str, Any], **_: Any) -> bool:  # noqa: A002 - Triton's name
        """Note a specialisation that is new, and keep Triton from compiling it."""
        what = subject.of_call(fn.jit_function, compile, describe.place())
        if (what.module, what.key) not in self._known:
            self._known.add((what.module, what.key))
            self.met.append(Met(self.step, self._gate.phases.now, what.kernel))
            self._recorder.end(self._recorder.begin("jit", what), {})
        return True


def fresh(kernel: Any) -> Any:
    """A JIT function of the same source with an empty table of binaries, so that arms do not warm each other."""
    names = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
    return type(kernel)(kernel.fn, **{name: getattr(kernel, name) for name in names})


class BundleArm:
    """Prebuilt variants: each launch is given to dispatch, and what it refuses is what would have to be compiled.

    Args:
        catalogue: The variants.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.launches: Counter[tuple[str, str]] = Counter()
        self.found: Counter[tuple[str, str]] = Counter()
        self.step, self.met = 0, list[Met]()
        self._catalogue, self._phase = catalogue, "startup"
        self._gaps: dict[tuple[str, str], dict[tuple[str, ...], Gap]] = {}

    def __getitem__(self, kernel: str, /) -> Any:
        """Something that takes a grid, then arguments, and looks the variant up."""

        def on_grid(grid: object) -> Callable[..., None]:
            del grid
            self.launches[self._phase, kernel] += 1
            return functools.partial(self._look_up, kernel)

        return _Indexed(on_grid)

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self._phase = name

    def log(self) -> Log:
        """Nothing is compiled in this arm; see `gaps`."""
        return Log()

    @property
    def gaps(self) -> Mapping[tuple[str, str], tuple[Gap, ...]]:
        """Calls that no variant serves, by phase and kernel."""
        return {key: tuple(rows.values()) for key, rows in self._gaps.items()}

    def _look_up(self, kernel: str, *args: Any, **kwargs: Any) -> None:
        table = self._catalogue.tables.get(kernel)
        if table is None:
            self._miss(kernel, Miss(kernel, ()), "every call")
            return
        raw, rest = bind(kernel, table.parameters, args, kwargs)
        pairs = zip(table.parameters, raw, strict=True)
        values = tuple(read(parameter, value, f"{kernel}: {parameter.name}") for parameter, value in pairs)
        options = {name: Constant.of(value) for name, value in rest.items() if name in table.options}
        outcome = choose(table, values, options)
        if isinstance(outcome, Choice):
            self.found[kernel, str(table.variants[outcome.index].key)] += 1
        else:
            self._miss(kernel, outcome, in_words(table.parameters, values_in_words(values)))

    def _miss(self, kernel: str, outcome: Miss, words: str) -> None:
        gap = gap_of(outcome, words, 1)
        gaps = self._gaps.setdefault((self._phase, kernel), {})
        if gap.reasons not in gaps:
            gaps[gap.reasons] = gap
            self.met.append(Met(self.step, self._phase, kernel))


class _Indexed:
    """Something that is used as `it[grid]`."""

    def __init__(self, on_grid: Callable[[object], Callable[..., None]]) -> None:
        self._on_grid = on_grid

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._on_grid(grid)


class LaunchingArm:
    """Launches for real, on whatever device is active, and counts what Triton compiles for it.

    Args:
        launcher: What launches: `launcher[kernel][grid](...)`.
        count: The count that is running.
    """

    def __init__(self, launcher: Any, count: JitCount) -> None:
        self.launches: Counter[tuple[str, str]] = Counter()
        self.step, self.met = 0, list[Met]()
        self.launcher, self._count, self._phase = launcher, count, "startup"
        self._gaps: dict[tuple[str, str], dict[tuple[str, ...], Gap]] = {}

    def __getitem__(self, kernel: str, /) -> Any:
        """The launcher's own kernel, counted."""
        self.launches[self._phase, kernel] += 1
        return self.launcher[kernel]

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self._phase = name
        self._count.phase(name)

    def log(self) -> Log:
        """What was compiled."""
        return self._count.report.log

    def missed(self, kernel: str, outcome: Miss) -> None:
        """Note a call that the launcher, a bundle, has no variant for."""
        gap = gap_of(outcome, "", 1)
        self._gaps.setdefault((self._phase, kernel), {}).setdefault(gap.reasons, gap)

    @property
    def gaps(self) -> Mapping[tuple[str, str], tuple[Gap, ...]]:
        """Calls that no variant serves, by phase and kernel."""
        return {key: tuple(rows.values()) for key, rows in self._gaps.items()}
