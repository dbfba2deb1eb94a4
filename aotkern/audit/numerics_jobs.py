"""The numerics audit of an AMD bundle in the emulator, spread over processes: one code object at a time for each.

A process that dies (a decoder that crashes, no memory) costs the code object that it was running, about which nothing
could be told, and no other.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from aotkern.audit import cases as declared
from aotkern.audit.examining import Coverage, Examined, Outcome, examine
from aotkern.audit.executors import USUAL_ORDERS, Emulated, Limits, emulated
from aotkern.audit.numerics import NumericsReport, Plan, plan
from aotkern.bundle import Bundle
from aotkern.emulator.reach import reach
from aotkern.manifest import VariantEntry


@dataclass(frozen=True, slots=True)
class Setting:
    """What every process needs to know.

    Attributes:
        bundle: The bundle, of an AMD target.
        cases: A module, or a file by path, with `CASES`.
        seed: Inputs and the choice of variants are drawn from it.
        orders: Orders of waves, names among `executors.ORDERS`.
        limits: What one launch may take.
    """

    bundle: Path
    cases: str
    seed: int = 0
    orders: tuple[str, ...] = USUAL_ORDERS
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class _Done:
    examined: Examined
    coverage: Coverage | None


def audit(
    setting: Setting,
    *,
    jobs: int = 1,
    most: int | None = None,
    bound: float | None = None,
    tell: Callable[[int, int], None] = lambda _, __: None,
) -> NumericsReport:
    """Run the cases of every kernel of the bundle.

    Args:
        setting: The bundle, its cases and how to run them.
        jobs: Worker processes; with 1 everything runs in this one.
        most: Most code objects of one kernel; None for all.
        bound: Least share of its instructions that the cases of each code object must execute.
        tell: Told how many code objects are done, of how many.

    Raises:
        InputError: The bundle or the cases cannot be read.
        MissingToolError: The emulator is not installed.
    """
    manifest = Bundle.open(setting.bundle).manifest
    todo = plan(manifest, declared.load(setting.cases), setting.seed, most)
    texts = [variant.text for variant in todo.chosen]
    done: dict[str, _Done] = {}
    for text, found in _in_processes(setting, texts, jobs) if jobs > 1 and len(texts) > 1 else _here(setting, texts):
        done[text] = found
        tell(len(done), len(texts))
    return _report(todo, [done[text] for text in texts], setting, bound)


def _report(todo: Plan, done: Iterable[_Done], setting: Setting, bound: float | None) -> NumericsReport:
    found = list(done)
    coverage = {one.examined.key: one.coverage for one in found if one.coverage is not None}
    return todo.report([one.examined for one in found], Emulated.on, setting.orders, coverage, bound)


def _here(setting: Setting, texts: Iterable[str]) -> Iterator[tuple[str, _Done]]:
    station = _station(setting)
    for text in texts:
        yield text, _examined(station, setting.seed, text)


def _in_processes(setting: Setting, texts: list[str], jobs: int) -> Iterator[tuple[str, _Done]]:
    left = dict.fromkeys(texts)
    # Fresh processes: a fork would take over whatever threads and handles this one has.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(jobs, len(texts)), context, _prepare, (list(sys.path),)) as pool:
            waiting = {pool.submit(_in_worker, setting, text): text for text in texts}
            for future in as_completed(waiting):
                found = future.result()
                del left[waiting[future]]
                yield waiting[future], found
    except BrokenProcessPool:
        pass
    for text in list(left):  # some process died: each of the rest gets one of its own
        yield text, _alone(setting, text, context)


def _alone(setting: Setting, text: str, context: multiprocessing.context.SpawnContext) -> _Done:
    try:
        with ProcessPoolExecutor(1, context, _prepare, (list(sys.path),)) as pool:
            return pool.submit(_in_worker, setting, text).result()
    except BrokenProcessPool:
        doubt = "the process that ran it died"
        return _Done(Examined(text, (Outcome(text, "all cases", setting.seed, "", {}, doubt),), None), None)


def _prepare(path: list[str]) -> None:
    """Modules are found in a worker where they are found in its parent."""
    sys.path[:] = path


@dataclass(frozen=True, slots=True)
class _Station:
    """What a process keeps from one code object to the next."""

    bundle: Bundle
    variants: dict[str, VariantEntry]
    cases: declared.CaseFunctions
    executors: tuple[Emulated, ...]


def _station(setting: Setting) -> _Station:
    bundle = Bundle.open(setting.bundle)
    manifest = bundle.manifest
    executors = emulated(setting.bundle, manifest.target.arch, setting.orders, setting.limits, setting.seed)
    variants = {variant.text: variant for variant in manifest.variants}
    return _Station(bundle, variants, declared.load(setting.cases), executors)


# A worker serves one audit, and keeps its station.
_kept_station = cache(_station)


def _in_worker(setting: Setting, text: str) -> _Done:
    return _examined(_kept_station(setting), setting.seed, text)


def _examined(station: _Station, seed: int, text: str) -> _Done:
    variant = station.variants[text]
    examined = examine(variant, station.cases[variant.kernel], station.executors, seed)
    if examined.addresses is None:
        return _Done(examined, None)
    code = reach(station.bundle.object(variant.object), examined.addresses)
    gaps = code.gaps(examined.addresses)
    count = len(code.instructions)
    coverage = Coverage(count - sum(gap.count for gap in gaps), count, gaps, code.complete)
    # The addresses themselves stay here: only what did not run is told.
    return _Done(Examined(text, examined.outcomes, frozenset()), coverage)
