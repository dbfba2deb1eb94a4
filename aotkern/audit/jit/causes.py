"""Why compiles happened: the nearest variant known before, what differs from it, and what can be done about that.

A compile is explained by the variant of the same kernel that differs in the fewest fields, among those met earlier in
the run. Compiles of one kernel are then explained together: forty values of one constexpr are one cause, not forty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Reversible, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aotkern.advice import Advice, Change, say
from aotkern.audit.jit.events import Compile
from aotkern.spec.difference import Aspect, Difference, differences

MANY = 3
"""From so many values on, a constexpr is reported by the number of its values."""
_SHOWN = 4
_INTEGER = re.compile("-?[0-9]+")
_RECENT = 256
"""Known variants that are looked at for the nearest, the latest first; a runaway kernel has tens of thousands."""


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
        advice: What to do about it, in words; may be empty.
        compiles: How many compiles it explains, wholly or in part.
        changes: The same as values: alternatives, each of which is enough for a difference that it names.
    """

    name: str
    kind: str
    message: str
    advice: str
    compiles: int
    changes: tuple[Advice, ...] = ()

    @classmethod
    def make(cls, name: str, kind: str, message: str, changes: Iterable[Advice], compiles: int) -> Cause:
        """A cause whose advice is worded from the changes."""
        unique = tuple(dict.fromkeys(changes))
        return cls(name, kind, message, say(unique), compiles, unique)


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


def _nearest(compile_: Compile, known: Reversible[Compile]) -> tuple[str | None, tuple[Difference, ...]]:
    def distance(other: Compile) -> int:
        wrong = sum(mine != theirs for mine, theirs in zip(compile_.arguments, other.arguments))  # noqa: B905
        return wrong + sum(other.options.get(name) != text for name, text in compile_.options.items())

    # The latest of equally near ones: what the program did just before is what people remember.
    best = min(islice(reversed(known), _RECENT), key=distance, default=None)
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
        message = f"the same variant compiled again {again} times in one process"
        found.append(Cause.make("", "again", message, [Advice(Change.KEEP_FUNCTION)], again))
    if not found and rows:
        first = sum(row.nearest is None for row in rows)
        found.append(Cause.make("", "first", "first use of this kernel", [Advice(Change.WARM_UP)], first))
    return tuple(sorted(found, key=lambda cause: -cause.compiles))


def _argument(name: str, pairs: Sequence[tuple[Difference, Compile]]) -> Cause:
    base = name.partition("[")[0]
    aspects = {difference.aspect for difference, _ in pairs}
    compile_ = pairs[0][1]
    values = dict.fromkeys(text for difference, _ in pairs for text in (difference.before, difference.after))
    if any(base in row.tuned for _, row in pairs):
        message = f"{name}: {len(values)} values from autotune candidates ({_some(values)})"
        return Cause.make(name, "tuned", message, [Advice(Change.SHIP_CHOICE)], len(pairs))
    if aspects == {Aspect.CONSTANT} and base in compile_.constexprs and len(values) >= MANY:
        message = f"{name}: constexpr took {len(values)} values ({_some(values)})"
        change = Change.RUN_TIME if all(map(_INTEGER.fullmatch, values)) else Change.BUILD
        return Cause.make(
            name, "constant", message + _remarks(name, base, compile_), [Advice(change, base)], len(pairs)
        )
    transitions = dict.fromkeys(f"{d.before} -> {d.after}{_example(d, row)}" for d, row in pairs)
    message = f"{name}: {_some(transitions, '; ')}{_remarks(name, base, compile_)}"
    kinds = "/".join(dict.fromkeys(str(difference.aspect) for difference, _ in pairs))
    changes = (change for difference, _ in pairs for change in _advice(difference, compile_))
    return Cause.make(name, kinds, message, changes, len(pairs))


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


def _advice(difference: Difference, compile_: Compile) -> Iterator[Advice]:
    """What helps against one difference; an item of a tuple can be neither annotated nor left unspecialised."""
    name, sides = difference.name, {difference.before, difference.after}
    whole = "[" not in name
    if any(side.startswith(_DESCRIPTOR) for side in sides):
        yield Advice(Change.MAKE_INSIDE, name)
        return
    if difference.aspect is Aspect.CLASS:
        if whole and name not in compile_.unspecialised:
            yield Advice(Change.UNSPECIALISE, name)
        if sides == {"multiple of 16", "other"}:
            yield Advice(Change.PAD, name)
    elif difference.aspect is Aspect.WIDTH and whole and frozenset(sides) in _COMMON_TYPE:
        yield Advice(Change.ANNOTATE, name, _COMMON_TYPE[frozenset(sides)])
    elif difference.aspect is Aspect.ALIGNMENT:
        yield Advice(Change.ALIGN, name)
    yield Advice(Change.BUILD, name)


_DESCRIPTOR = '"tensordesc'
"""How the text begins that stands for a tensor descriptor in a key."""
_COMMON_TYPE = {frozenset(("i32", "i64")): "int64", frozenset(("i32", "fp32")): "float32"}
"""The annotation under which Triton takes values of both types as one; for other pairs there is none."""


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
        yield Cause.make(name, "unread", message, [Advice(Change.DROP, name)], number)


def _some(texts: Mapping[str, None], separator: str = ", ") -> str:
    shown = list(texts)
    if len(shown) <= _SHOWN + 1:
        return separator.join(shown)
    return separator.join([*shown[:_SHOWN], f"... {shown[-1]}"])
