"""From a trace to what is to be built of it for some targets: a pure plan.

1. Variants that only an autotuner's benchmark asked for are left out, unless their configuration was chosen.
2. What was recorded on a target is built for it. A kernel that was not recorded there is carried over from another
   target: a pointer class that only one back end has is dropped or built both ways, hints that only the other back end
   knows are dropped, `num_warps` is bounded by what a workgroup can have, and everything else is asked for as it is, so
   that the back end refuses what it does not have.
3. Widening adds, for every variant, what serves the values that were not seen.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from aotkern import influences
from aotkern.canonical import dumps
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Runtime, VariantKey
from aotkern.target import Backend, Target
from aotkern.trace import Chosen, Recorded, Trace, Unbuildable, merge

HINTS = {
    Backend.HIP: ("kpack", "matrix_instr_nonkdim", "schedule_hint", "waves_per_eu"),
    Backend.CUDA: ("maxnreg", "min_shared_mem", "sched4reg"),
}
"""Options that change how fast the code of one back end is, and not what it computes; the other does not know them."""

MANY = 16
"""From so many constants of one parameter on, a note asks whether it should be a run-time argument."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What is built under the device on which it was recorded.

    Attributes:
        device: Where its kernels were recorded.
        trace: The variants to build, each for one of the targets.
    """

    device: Target
    trace: Trace


def passes(trace: Trace, targets: Sequence[Target], *, widen: bool) -> tuple[Pass, ...]:
    """The variants to build, by the device on which they were recorded: modules may look at it when imported.

    Args:
        trace: What was recorded, and is to be built.
        targets: For what to build.
        widen: Add general variants.
    """
    wanted: dict[str, list[Recorded]] = {}
    for row in trace.recorded:
        if not _unwanted(row, trace.chosen):
            wanted.setdefault(row.key.kernel, []).append(row)
    found: dict[Target, list[Recorded]] = {}
    for target, recorded in itertools.product(targets, wanted.values()):
        nearest = min(_distance(row.key.target, target) for row in recorded)
        rows = [row for row in recorded if _distance(row.key.target, target) == nearest]
        device = min((row.key.target for row in rows), key=str)
        for row in rows:
            for key in _translated(row.key, target):
                wider = general(key, row.constexprs) if widen else iter(())
                made = [replace(row, key=one, heuristic=(), trial=False) for one in (key, *wider)]
                found.setdefault(device, []).extend(made)
    return tuple(Pass(device, Trace.of(rows)) for device, rows in sorted(found.items(), key=lambda item: str(item[0])))


def planned(trace: Trace, targets: Sequence[Target], *, widen: bool) -> Trace:
    """All that is to be built of a trace, whichever device it was recorded on; see `passes`."""
    return merge(found.trace for found in passes(trace, targets, widen=widen))


def recorded_targets(trace: Trace) -> tuple[Target, ...]:
    """The targets on which something was recorded, in alphabetical order."""
    return tuple(sorted({row.key.target for row in trace.recorded}, key=str))


def without_excluded(trace: Trace, patterns: Sequence[str]) -> Trace:
    """A trace without the kernels that somebody does not want."""

    def stays(name: str) -> bool:
        return not any(fnmatchcase(name, pattern) for pattern in patterns)

    recorded = [row for row in trace.recorded if stays(row.key.kernel)]
    chosen = [row for row in trace.chosen if stays(row.kernel)]
    return Trace.of([*recorded, *chosen, *(row for row in trace.unbuildable if stays(row.kernel))])


def without_paper(trace: Trace) -> Trace:
    """A trace without the choices that were made by times that a device on paper made up."""
    return Trace.of([*trace.recorded, *(row for row in trace.chosen if not row.paper), *trace.unbuildable])


def untuned(trace: Trace) -> Iterator[Unbuildable]:
    """Kernels that only benchmarks asked for, and of which no configuration was chosen: nothing of them is built."""
    asked = {row.key.kernel for row in trace.recorded if not _unwanted(row, trace.chosen)}
    candidates: Counter[tuple[str, str]] = Counter()
    candidates.update((row.key.kernel, str(row.key.target)) for row in trace.recorded if row.key.kernel not in asked)
    for (kernel, target), count in sorted(candidates.items()):
        yield Unbuildable(kernel, target, f"{count} candidates were benchmarked, and none was chosen", "untuned")


def without_generated(trace: Trace) -> Trace:
    """A trace whose generated kernels are not built: their text is not executed unless somebody asks for it."""
    reason = "it was generated at run time; --generated builds it"
    rows: list[Recorded | Unbuildable] = [
        Unbuildable(row.key.kernel, str(row.key.target), reason, "generated") if row.text else row
        for row in trace.recorded
    ]
    return Trace.of([*rows, *trace.chosen, *trace.unbuildable])


def _distance(recorded: Target, target: Target) -> int:
    """What was recorded on the target itself counts, then what was on its back end, then everything else."""
    return 0 if recorded == target else 1 if recorded.backend is target.backend else 2


def _unwanted(row: Recorded, chosen: Sequence[Chosen]) -> bool:
    """Whether a row is a benchmark's whose configuration was not chosen for any tuning key."""
    mine = (choice for choice in chosen if (choice.kernel, choice.source) == (row.key.kernel, row.source))
    return row.trial and not any(_agrees(row.key, choice) for choice in mine if choice.target == str(row.key.target))


def _agrees(key: VariantKey, choice: Chosen) -> bool:
    """An option that a key does not name has its default, which is not known here: it is taken to agree."""
    known = {name: spec.constant.text for name, spec in key.arguments if isinstance(spec, Fixed)}
    known |= {name: value.text for name, value in key.options}
    return all(known.get(name, text) == text for name, text in choice.config)


def _translated(key: VariantKey, target: Target) -> Iterator[VariantKey]:
    if key.target.backend is target.backend:
        yield replace(key, target=target)
        return
    options = tuple(
        (name, _most_warps(value, target) if name == "num_warps" else value)
        for name, value in key.options
        if name not in HINTS[key.target.backend] and not _is_setting_of_another(name, target.backend)
    )
    moved = replace(key, target=target, options=options)
    yield _with(moved, lambda leaf: replace(leaf, small=False))
    if target.backend is Backend.HIP:
        # Whether a storage is small was not recorded: 32-bit offsets where it is, and a variant for all others.
        yield _with(moved, lambda leaf: replace(leaf, small=leaf.is_pointer))


def _is_setting_of_another(name: str, backend: Backend) -> bool:
    """Whether an option is a setting that this back end's compiler does not read."""
    row = influences.named(name)
    return row is not None and backend not in row.backends


def _most_warps(asked: Constant, target: Target) -> Constant:
    """As many waves as a workgroup of the target can have: 32 warps of 32 lanes are as many threads as 16 of 64."""
    return Constant.of(min(asked.value, target.limits.max_warps))


def general(key: VariantKey, constexprs: Sequence[str]) -> Iterator[VariantKey]:
    """Variants that assume less: of integers nothing but their type, then also of storages, then also of addresses."""
    # An integer that was 1 was compiled in. Inside a tuple it cannot be told from a constexpr, and stays.
    ones = {name for name, spec in key.arguments if spec == Fixed(Constant("1")) and name not in constexprs}
    arguments = tuple((name, Runtime("i32") if name in ones else spec) for name, spec in key.arguments)
    integers = _with(
        replace(key, arguments=arguments), lambda leaf: leaf if leaf.is_pointer else replace(leaf, divisible=False)
    )
    storages = _with(integers, lambda leaf: replace(leaf, small=False))
    yield from (integers, storages, _with(storages, lambda leaf: replace(leaf, divisible=False)))


def _with(key: VariantKey, change: Callable[[Runtime], Runtime]) -> VariantKey:
    """A key with all run-time arguments changed."""

    def changed(spec: ArgumentSpec) -> ArgumentSpec:
        if isinstance(spec, Group):
            return Group(tuple(map(changed, spec.items)))
        return change(spec) if isinstance(spec, Runtime) else spec

    return replace(key, arguments=tuple((name, changed(spec)) for name, spec in key.arguments))


def tuning(chosen: Sequence[Chosen], target: Target) -> str:
    """The autotuners' choices for a bundle's provenance."""
    rows = chosen_for(chosen, target)
    return dumps([choice.to_json() for choice in rows]) if rows else ""


def chosen_for(chosen: Sequence[Chosen], target: Target) -> list[Chosen]:
    """The choices that go with a target.

    What was measured on the target itself comes first; a key that was measured elsewhere only is taken from there.
    """
    rows: dict[tuple[str, str, str, tuple[str, ...]], Chosen] = {}
    for choice in sorted(chosen, key=lambda choice: (choice.target != str(target), choice.paper)):
        rows.setdefault((choice.kernel, str(choice.source), choice.tuner, choice.key), choice)
    return list(rows.values())


def notes(trace: Trace) -> Iterator[str]:
    """What people should know of a trace: constants that look like run-time values, and choices that say nothing."""
    values: dict[tuple[str, str], set[str]] = {}
    for recorded in trace.recorded:
        for name, spec in recorded.key.arguments:
            if isinstance(spec, Fixed):
                values.setdefault((recorded.key.kernel, name), set()).add(spec.constant.text)
    for (kernel, name), texts in sorted(values.items()):
        if len(texts) >= MANY:
            yield f"kernel {kernel}: argument {name} took {len(texts)} values: could it be a run-time argument?"
    if paper := [choice for choice in trace.chosen if choice.paper]:
        kernels = ", ".join(sorted({choice.kernel for choice in paper}))
        yield (
            f"{len(paper)} choices of autotuners were made on paper, where times are made up: {kernels}; "
            "a build leaves them out unless --paper-choices takes them"
        )


def carried(trace: Trace, targets: Sequence[Target]) -> Iterator[str]:
    """What is built for a target that it was not recorded on: the program itself may ask for others there."""
    for target in targets:
        there = {row.key.kernel for row in trace.recorded if row.key.target == target}
        others = [row for row in trace.recorded if row.key.kernel not in there]
        kernels = {row.key.kernel for row in others}
        if kernels:
            origins = ", ".join(sorted({str(row.key.target) for row in others}))
            yield (
                f"{target}: {len(kernels)} kernels are built from what was recorded on {origins}; the program may ask "
                f"for other variants on {target}: record it there too, which a device on paper can do"
            )
        borrowed = [choice for choice in chosen_for(trace.chosen, target) if choice.target != str(target)]
        if borrowed:
            origins = ", ".join(sorted({choice.target for choice in borrowed}))
            yield f"{target}: {len(borrowed)} choices of autotuners are borrowed from {origins}"
        paper = [choice for choice in chosen_for(trace.chosen, target) if choice.paper]
        if paper:
            yield f"{target}: {len(paper)} choices of autotuners were made on paper, where times are made up"
