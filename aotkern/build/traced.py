"""Kernels that a trace names: imported, held against the digests that were recorded, with exactly the traced variants.

The other way to a `LoadedKernel` than a declaration; runs in a worker, as `registry` does.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import ModuleType

from aotkern.build import constants
from aotkern.build.registry import LoadedKernel, Source, loaded
from aotkern.errors import InputError, Problem
from aotkern.spec import Fixed, Kernel, VariantKey, named_in
from aotkern.target import Target
from aotkern.trace import Recorded, Trace

SUFFIX = ".jsonl"


def is_trace(source: Source) -> bool:
    """Whether a source is a trace."""
    return source.path is not None and source.path.suffix == SUFFIX


def load(source: Source) -> tuple[LoadedKernel, ...]:
    """The kernels of a trace.

    Raises:
        InputError: A module cannot be imported, a kernel is not there any more, or its source has changed since it was
            recorded and `allow_stale` does not take it; all problems at once.
        IntegrityError: The file is no trace.
    """
    path = source.path
    if path is None:
        raise InputError.one(source.name, "the file of a trace", "a module")
    rows: dict[str, list[Recorded]] = {}
    for row in Trace.parse(path.read_bytes(), str(path)).recorded:
        rows.setdefault(row.key.kernel, []).append(row)
    kernels: list[LoadedKernel] = []
    problems: list[Problem] = []
    for name, recorded in rows.items():
        try:
            kernel = _kernel(name, recorded)
        except InputError as error:
            problems.extend(error.problems)
            continue
        problems.extend([] if source.allow_stale else _stale(kernel, recorded))
        kernels.append(kernel)
    if problems:
        raise InputError(problems)
    return tuple(kernels)


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


def _kernel(name: str, rows: list[Recorded]) -> LoadedKernel:
    first = rows[0]
    if first.text and first.module not in sys.modules:
        _execute(first.module, first.text)
    function = constants.jit_function(first.module, name[len(first.module) + 1 :])
    named = {str(of): constants.installed(of) for row in rows for of in named_in(row.key)}
    return loaded(Kernel(function, name=name), named, tuple(row.key for row in rows))


def _execute(name: str, text: str) -> None:
    """Make a module of the text of one that was generated when it was recorded.

    Raises:
        InputError: It does not run here, for example because it needs another version of torch.
    """
    module, file = ModuleType(name), f"{name}.py"
    module.__file__ = file
    # Where Triton and `inspect` look for the source of a function whose file is not there.
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    try:
        exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - the user asked for it: `--generated`
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError.one(name, "a module that can be executed where it is built", found) from error
    sys.modules[name] = module


def _stale(kernel: LoadedKernel, rows: list[Recorded]) -> Iterator[Problem]:
    for digest in sorted({row.source for row in rows if row.source != kernel.source}):
        where = f"kernel {kernel.declaration.name}"
        yield Problem(
            where, f"the source that was recorded ({digest.short})", f"stale: {kernel.source.short} is installed"
        )
