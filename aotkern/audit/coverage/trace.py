"""The calls of a recorded run against the variants.

Triton meets each specialisation of a fresh process once, and reports it: the compiles of a run are all its distinct
calls, whether its disk cache served them or not. Each is turned back into a call and given to dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aotkern.arguments import Pointer, Value
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.coverage.proof import CoverageReport, Gap, KernelCoverage, gap_of, in_words, merged, values_in_words
from aotkern.audit.jit.events import Compile
from aotkern.dispatch import DIVISOR, SMALL_STORAGE, Choice, Miss, Table, choose
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Runtime

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "maxnreg")
"""Options that a call names when it wants another binary; the others follow from the toolchain."""


def replay(catalogue: Catalogue, compiles: Iterable[Compile], source: str) -> CoverageReport:
    """Hold the calls of a run against the variants; each distinct call counts once."""
    by_kernel: dict[str, list[Compile]] = {}
    for compile_ in {compile_.identity: compile_ for compile_ in compiles if compile_.arguments}.values():
        by_kernel.setdefault(compile_.kernel, []).append(compile_)
    kernels = []
    for kernel, rows in by_kernel.items():
        table = catalogue.tables.get(kernel)
        gaps = [gap for row in rows if (gap := _gap(table, row)) is not None]
        kernels.append(KernelCoverage(kernel, len(rows), len(rows) - len(gaps), merged(gaps)))
    obstacle = "" if kernels else "no call was recorded"
    return CoverageReport(catalogue.label, str(catalogue.target), source, tuple(kernels), obstacle)


def _gap(table: Table | None, compile_: Compile) -> Gap | None:
    if table is None:
        return gap_of(Miss(compile_.kernel, ()), compile_.key, 1)
    outcome = ask(table, compile_)
    if isinstance(outcome, Choice):
        return None
    return gap_of(outcome, in_words(table.parameters, values_in_words(call(table, compile_))), 1)


def ask(table: Table, compile_: Compile) -> Choice | Miss:
    """What dispatch says to a recorded call."""
    options = {
        name: Constant(compile_.options[name])
        for name in LAUNCH_OPTIONS
        if name in table.options and name in compile_.options
    }
    return choose(table, call(table, compile_), options)


def call(table: Table, compile_: Compile) -> tuple[Value, ...]:
    """The values of a recorded call, in the order of the table's parameters.

    Where the event has no value (a direct compile has none), one that is of the argument's class stands for it.
    """
    specs = dict(compile_.arguments)
    return tuple(
        _value(specs.get(parameter.name), compile_.values.get(parameter.name), constexpr=parameter.constexpr)
        for parameter in table.parameters
    )


def _value(spec: ArgumentSpec | None, given: Any, *, constexpr: bool) -> Value:
    if spec is None:
        return None
    if isinstance(spec, Group):
        parts = given if isinstance(given, list) and len(given) == len(spec.items) else [None] * len(spec.items)
        return tuple(_value(item, part, constexpr=constexpr) for item, part in zip(spec.items, parts, strict=True))
    if isinstance(spec, Fixed):
        return spec.constant if constexpr else _plain(spec.constant)
    if spec.is_pointer:
        return _pointer(spec, given if isinstance(given, Mapping) else {})
    return _plain(Constant(given)) if isinstance(given, str) else _typical(spec)


def _plain(constant: Constant) -> Value:
    """The Python value of a constant; dtypes and functions stay constants."""
    value = constant.value
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return constant


def _pointer(spec: Runtime, given: Mapping[str, Any]) -> Pointer:
    address, storage = given.get("address"), given.get("storage")
    return Pointer(
        address if isinstance(address, int) else 4096 + (0 if spec.divisible else 4),
        spec.element,
        storage if isinstance(storage, int) else SMALL_STORAGE + (0 if spec.small else 1),
    )


def _typical(spec: Runtime) -> Value:
    """A value of a scalar's class."""
    if spec.type == "u1":
        return True
    if spec.type[0] not in "iu":
        return 0.5
    lowest = {"i64": 2**31, "u64": 2**63}.get(spec.type, DIVISOR)
    return lowest + (0 if spec.divisible else 3)
