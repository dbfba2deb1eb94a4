"""Kernels that a trace names: imported, held against the digests that were recorded, with exactly the traced variants.

Values that a kernel reads from modules may have been computed from the device or the environment of the machine that
recorded it: constants among them are set to what was recorded, before digests are compared and anything is compiled.

The other way to a `LoadedKernel` than a declaration; runs in a worker, as `registry` does.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from aotkern import closure
from aotkern.build import constants, named
from aotkern.build.registry import LoadedKernel, Source, describe, loaded
from aotkern.errors import AotkernError, InputError
from aotkern.spec import Constant, DtypeName, Fixed, Kernel, VariantKey, named_in
from aotkern.target import Target
from aotkern.trace import GENERATED, Recorded, Trace, Unbuildable

SUFFIX = ".jsonl"


def is_trace(source: Source) -> bool:
    """Whether a source is a trace."""
    return source.path is not None and source.path.suffix == SUFFIX


@dataclass(frozen=True)
class Loaded:
    """The kernels of a trace.

    Attributes:
        kernels: Those that are here as they were recorded.
        left_out: Those that are not, with the reason, for each target that they were planned for.
        notes: Values of modules that were set to what was recorded.
    """

    kernels: tuple[LoadedKernel, ...]
    left_out: tuple[Unbuildable, ...]
    notes: tuple[str, ...]


def load(source: Source) -> Loaded:
    """Import the kernels of a trace; one that cannot be had leaves the others as they are.

    Raises:
        InputError: The source is no trace.
        IntegrityError: The file is damaged.
    """
    path = source.path
    if path is None:
        raise InputError.one(source.name, "the file of a trace", "a module")
    trace = Trace.parse(path.read_bytes(), str(path))
    rows: dict[str, list[Recorded]] = {}
    for row in trace.recorded:
        rows.setdefault(row.key.kernel, []).append(row)
    loading = _Loading(source)
    for name, recorded in rows.items():
        loading.add(name, recorded)
    return Loaded(tuple(loading.kernels), (*trace.unbuildable, *loading.left_out), tuple(sorted(loading.notes)))


class _Loading:
    """Kernels on their way from the rows of a trace.

    Attributes:
        kernels: Those that were found.
        left_out: Those that were not.
        notes: Values that were set.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.kernels: list[LoadedKernel] = []
        self.left_out: list[Unbuildable] = []
        self.notes: set[str] = set()

    def add(self, name: str, rows: Sequence[Recorded]) -> None:
        """Find one kernel, with the values that it read when it was recorded."""
        first = rows[0]
        if first.text and not self._source.generated:
            self._leave(rows, "it was generated at run time; --generated builds it", "generated")
            return
        try:
            if first.text and first.module not in sys.modules:
                _execute(first.module, first.text)
            choices = _found(first.module, name[len(first.module) + 1 :])
        except _AbsentError as error:
            self._leave(rows, str(error), error.kind)
            return
        handed = self._hand_over(rows)
        self.notes.update(bind(first.reads))
        closure.forget()  # what was digested before values were set
        try:
            kernel = self._nearest(name, choices, rows)
        except (AotkernError, RecursionError) as error:
            self._leave(rows, f"it cannot be read here: {error}", "absent")
            return
        fitting = [row for row in handed if self._source.allow_stale or row.source == kernel.source]
        objects = self._objects(fitting)
        usable = tuple(row.key for row in fitting if all(str(of) in objects for of in named_in(row.key)))
        if usable:
            self.kernels.append(replace(kernel, named=objects, keys=usable, reads=first.reads))
        for row in handed:
            if row not in fitting:
                made_of = (kernel.declaration.function, *objects.values())
                self._leave([row], *_difference(row, kernel, made_of))

    def _hand_over(self, rows: Sequence[Recorded]) -> list[Recorded]:
        """The rows whose functions and classes can be imported; the modules of these are then here to be set."""
        here: list[Recorded] = []
        for row in rows:
            try:
                for of in named_in(row.key):
                    constants.held(of)
            except InputError as error:
                self._leave([row], "; ".join(map(str, error.problems)), "absent")
            else:
                here.append(row)
        return here

    def _objects(self, rows: Sequence[Recorded]) -> dict[str, Any]:
        """The functions and classes that constants name, by the text of `aotkern.spec.Named`."""
        found: dict[str, Any] = {}
        for row in rows:
            for of in named_in(row.key):
                try:
                    found[str(of)] = constants.installed(of)
                except (AotkernError, RecursionError) as error:
                    self._leave([row], str(error), "stale")
        return found

    @staticmethod
    def _nearest(name: str, choices: Sequence[Any], rows: Sequence[Recorded]) -> LoadedKernel:
        """Of several functions under one name the one that was recorded; without one, that at the very place."""
        kernels = [loaded(Kernel(function, name=name), {}) for function in choices]
        recorded = {row.source for row in rows}
        return next((kernel for kernel in kernels if kernel.source in recorded), kernels[0])

    def _leave(self, rows: Sequence[Recorded], reason: str, kind: str) -> None:
        left = {(row.key.kernel, str(row.key.target)): None for row in rows}
        self.left_out += [Unbuildable(kernel, target, reason, kind) for kernel, target in left]


def bind(reads: Sequence[tuple[str, str]]) -> list[str]:
    """Set values of modules to what was recorded, where these are constants; says which of them were others here.

    Kernels of one module may have been recorded with different values: so it is done before each compile, too.
    """
    notes: list[str] = []
    for place, text in reads:
        module, _, name = place.partition(":")
        holder = sys.modules.get(module)
        if holder is None or text.startswith("#") or "(" in name or not hasattr(holder, name):
            continue
        value = getattr(holder, name)
        fixed = closure.is_constexpr(value)
        here = _constant_text(value.value if fixed else value)
        if here in ("", text):
            continue
        recorded = _python(text)
        setattr(holder, name, type(value)(recorded) if fixed else recorded)
        notes.append(f"{module}.{name}: {text} when recorded, {here} here; built as it was recorded")
    return notes


def _constant_text(value: object) -> str:
    try:
        return Constant.of(value).text
    except InputError:
        return ""


def _python(text: str) -> Any:
    """A recorded constant as Python and Triton hold it."""
    value = Constant.parse(text).value
    if isinstance(value, DtypeName):
        from triton.language.core import dtype  # noqa: PLC0415 - in a worker

        return dtype(value.name)
    return value


def _difference(row: Recorded, kernel: LoadedKernel, made_of: Sequence[Any]) -> tuple[str, str]:
    """Why a kernel is not the one that was recorded: reason and kind."""
    before = dict(row.reads)
    here = {place: text for place, text in closure.readings(made_of).items() if not place.startswith(GENERATED)}
    other = [
        f"{place.replace(':', '.')}: {_shown(before[place])} when recorded, {_shown(here[place])} here"
        for place in sorted(before.keys() & here.keys())
        if before[place] != here[place]
    ]
    if other and before.keys() == here.keys():
        return f"it reads {'; '.join(other)}", "values"
    return f"stale: its source has changed (recorded {row.source.short}, here {kernel.source.short})", "stale"


def _shown(text: str) -> str:
    return "one value" if text.startswith("#") else text


def keys(kernel: LoadedKernel, target: Target, limit: int) -> tuple[VariantKey, ...] | None:
    """The variants of a traced kernel for one target; None for a kernel whose declaration says them.

    Raises:
        InputError: They are more than `limit`.
    """
    if kernel.keys is None:
        return None
    found = tuple(key for key in kernel.keys if key.target == target)
    if len(found) > limit:
        name, count = widest(found)
        reason = f"{len(found)}; {name} alone took {count} values: could it be a run-time argument?"
        raise InputError.one(f"kernel {kernel.declaration.name}", f"at most {limit} variants for {target}", reason)
    return found


def widest(found: tuple[VariantKey, ...]) -> tuple[str, int]:
    """The parameter with the most constants, and how many these are."""
    texts_of: dict[str, set[str]] = {}
    for key in found:
        for name, spec in key.arguments:
            texts_of.setdefault(name, set()).update({spec.constant.text} if isinstance(spec, Fixed) else set())
    return max(((name, len(texts)) for name, texts in texts_of.items()), key=lambda pair: pair[1])


class _AbsentError(Exception):
    """A module or function that is not here.

    Attributes:
        kind: Why, as one of `trace.KINDS`.
    """

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason)
        self.kind = kind


def _execute(name: str, text: str) -> None:
    """Make a module of the text of one that was generated when it was recorded.

    Raises:
        _AbsentError: It does not run here, for example because it needs another version of torch.
    """
    module, file = ModuleType(name), f"{name}.py"
    module.__file__ = file
    # Where Triton and `inspect` look for the source of a function whose file is not there.
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    try:
        exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - the user asked for it: `--generated`
    except Exception as error:
        raise _AbsentError(f"its text does not run here: {type(error).__name__}: {error}", "import") from error
    sys.modules[name] = module


def _found(module: str, qualified: str) -> list[Any]:
    """The JIT functions with this name in a module, the one at that very place first.

    Raises:
        _AbsentError: There is none.
    """
    try:
        holder = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        reason = f"module {module} cannot be imported here: {describe(error)}"
        raise _AbsentError(reason, "import") from error
    found = list(named.candidates(holder, qualified))
    if not found:
        raise _AbsentError(f"no kernel {qualified} in module {module}, which is here", "absent")
    return found
