"""Why compiles happened: the nearest variant known before, what differs from it, and what can be done about that.

A compile is explained by the variant of the same kernel that differs in the fewest fields, among those met earlier in
the run. Compiles of one kernel are then explained together: forty values of one constexpr are one cause, not forty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern.audit.jit.events import Compile
from aotkern.spec.difference import Aspect, Difference, differences

MANY = 3
"""From so many values on, a constexpr is reported by the number of its values."""
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Explained:
    """A compile with its reason.

    Attributes:
        compile: The compile.
        nearest: Key of the nearest variant that was known; None for the first of its kernel.
        differences: What differs from it.
        again: This process had compiled the very same variant before.
        prebuilt: What a given bundle says to this call, in words; empty without a bundle.
    """

    compile: Compile
    nearest: str | None
    differences: tuple[Difference, ...]
    again: bool
    prebuilt: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for compiles of a kernel.

    Attributes:
        name: The parameter or option; empty for reasons that are no argument's fault.
        kind: An `Aspect`, or `first`, `again`, `tuned`, `unread`.
        message: What happened, in the user's words.
        advice: What to do about it; may be empty.
        compiles: How many compiles it explains, wholly or in part.
    """

    name: str
    kind: str
    message: str
    advice: str
    compiles: int


def explain(compiles: Sequence[Compile]) -> tuple[Explained, ...]:
    """The reason of each compile, in the order given (by time)."""
    variants: dict[tuple[str, str], dict[str, Compile]] = {}
    done: set[tuple[int, tuple[str, str]]] = set()
    found: dict[tuple[str, str], tuple[str | None, tuple[Difference, ...]]] = {}
    rows = []
    for compile_ in compiles:
        known = variants.setdefault((compile_.module, compile_.kernel), {})
        if compile_.identity not in found:
            found[compile_.identity] = _nearest(compile_, known.values())
            known[compile_.key] = compile_
        mine = (compile_.process, compile_.identity)
        rows.append(Explained(compile_, *found[compile_.identity], again=mine in done))
        done.add(mine)
    return tuple(rows)


def _nearest(compile_: Compile, known: Iterable[Compile]) -> tuple[str | None, tuple[Difference, ...]]:
    def distance(other: Compile) -> int:
        wrong = sum(mine != theirs for mine, theirs in zip(compile_.arguments, other.arguments))  # noqa: B905
        return wrong + sum(other.options.get(name) != text for name, text in compile_.options.items())

    # The latest of equally near ones: what the program did just before is what people remember.
    best = min(reversed(list(known)), key=distance, default=None)
    if best is None:
        return None, ()
    return best.key, differences(best.arguments, compile_.arguments, best.options, compile_.options)


def causes(rows: Sequence[Explained]) -> tuple[Cause, ...]:
    """The reasons of one kernel's compiles in one phase, the one that explains most first."""
    by_name: dict[str, list[tuple[Difference, Compile]]] = {}
    for row in rows:
        for difference in row.differences:
            by_name.setdefault(difference.name, []).append((difference, row.compile))
    found = [_argument(name, pairs) for name, pairs in by_name.items()]
    found.extend(_unread([row.compile for row in rows]))
    again = sum(row.again for row in rows)
    if again:
        advice = "keep one function object, and do not clear its cache"
        found.append(Cause("", "again", f"the same variant compiled again {again} times in one process", advice, again))
    if not found and rows:
        first = sum(row.nearest is None for row in rows)
        found.append(Cause("", "first", "first use of this kernel", "warm it up before ready, or build it", first))
    return tuple(sorted(found, key=lambda cause: -cause.compiles))


def _argument(name: str, pairs: Sequence[tuple[Difference, Compile]]) -> Cause:
    base = name.partition("[")[0]
    aspects = {difference.aspect for difference, _ in pairs}
    compile_ = pairs[0][1]
    values = dict.fromkeys(text for difference, _ in pairs for text in (difference.before, difference.after))
    if any(base in row.tuned for _, row in pairs):
        message = f"{name}: {len(values)} values from autotune candidates ({_some(values)})"
        return Cause(name, "tuned", message, "ship the chosen configuration", len(pairs))
    if aspects == {Aspect.CONSTANT} and base in compile_.constexprs and len(values) >= MANY:
        message = f"{name}: constexpr took {len(values)} values ({_some(values)})"
        advice = f'make it a run-time argument, with do_not_specialize=["{base}"]'
        return Cause(name, "constant", message + _remarks(name, base, compile_), advice, len(pairs))
    transitions = dict.fromkeys(f"{d.before} -> {d.after}{_example(d, row)}" for d, row in pairs)
    message = f"{name}: {_some(transitions, '; ')}{_remarks(name, base, compile_)}"
    kinds = "/".join(dict.fromkeys(str(difference.aspect) for difference, _ in pairs))
    advice = "; ".join(dict.fromkeys(_advice(difference, compile_) for difference, _ in pairs))
    return Cause(name, kinds, message, advice, len(pairs))


def _remarks(name: str, base: str, compile_: Compile) -> str:
    remarks = ""
    if base in compile_.heuristic:
        remarks += " (heuristic)"
    if base in compile_.unspecialised and base in compile_.constexprs:
        remarks += " (do_not_specialize does nothing for a constexpr)"
    elif base in compile_.unspecialised and name != base:
        remarks += " (do_not_specialize is not applied inside tuples)"
    return remarks


def _example(difference: Difference, compile_: Compile) -> str:
    """The value that made the difference, where the event has it: ` (n=37)`, ` (address % 16 = 4)`."""
    base, _, rest = difference.name.partition("[")
    value: Any = compile_.values.get(base)
    for place in rest.rstrip("]").split("]["):
        if place and isinstance(value, list) and place.isdigit() and int(place) < len(value):
            value = value[int(place)]
    if isinstance(value, str) and difference.aspect in (Aspect.CLASS, Aspect.WIDTH) and value != difference.after:
        return f" ({difference.name}={value})"
    if isinstance(value, dict) and difference.aspect is Aspect.ALIGNMENT and value.get("address", 0) % 16:
        return f" (address % 16 = {value['address'] % 16})"
    if isinstance(value, dict) and difference.aspect is Aspect.STORAGE and value.get("storage"):
        return f" ({value['storage']} bytes)"
    return ""


def _advice(difference: Difference, compile_: Compile) -> str:
    name = difference.name
    match difference.aspect:
        case Aspect.CLASS:
            return f'do_not_specialize=["{name}"], or pad {name} to a multiple of 16, or build both classes'
        case Aspect.WIDTH:
            return f"annotate {name} with the wider type (tl.int64)"
        case Aspect.ALIGNMENT:
            return f'pass {name} at a 16-byte boundary, or build it with alignment="both"'
        case Aspect.STORAGE:
            return f'build {name} with storage="both"'
        case Aspect.CONSTANT if name in compile_.constexprs:
            return f"warm up or build both values of {name}"
        case Aspect.OPTION:
            return f"warm up or build this {name} too"
        case _:
            return f"warm up or build this use of {name} too"


def _unread(compiles: Sequence[Compile]) -> Iterator[Cause]:
    """Arguments whose different values gave one and the same binary."""
    by_object: dict[str, dict[str, Compile]] = {}
    for compile_ in compiles:
        if compile_.object is not None and compile_.arguments:
            by_object.setdefault(compile_.object, {})[compile_.key] = compile_
    counts: dict[str, int] = {}
    for same in by_object.values():
        rows = list(same.values())
        for row in rows[1:]:
            names = {d.name for d in differences(rows[0].arguments, row.arguments, rows[0].options, row.options)}
            if len(names) == 1:
                name = names.pop()
                counts[name] = counts.get(name, 0) + 1
    for name, number in counts.items():
        message = f"{name}: never read, or without effect: {number + 1} variants that differ in it are one binary"
        yield Cause(name, "unread", message, f"remove {name}, or keep it out of the key", number)


def _some(texts: Mapping[str, None], separator: str = ", ") -> str:
    shown = list(texts)
    if len(shown) <= _SHOWN + 1:
        return separator.join(shown)
    return separator.join([*shown[:_SHOWN], f"... {shown[-1]}"])
