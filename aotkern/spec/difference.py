"""What tells two variants of one kernel apart, field by field, in the words of the person who wrote the call.

`dispatch` judges a call against a variant, and a general variant may serve a special call. Here two specialisations
are compared as they are, because to Triton's JIT each of them is a binary of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from aotkern.spec.key import ArgumentSpec, Fixed, Group, Runtime, flatten


class Aspect(str, Enum):
    """Which property of a parameter differs."""

    CLASS = "class"
    WIDTH = "width"
    ALIGNMENT = "alignment"
    STORAGE = "storage"
    ELEMENT = "element"
    CONSTANT = "constant"
    KIND = "kind"
    OPTION = "option"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two variants differ.

    Attributes:
        name: The parameter (with tuple positions), or the compile option.
        aspect: Which property of it.
        before: What the first variant has, in words.
        after: What the second has.
    """

    name: str
    aspect: Aspect
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}"


Arguments = Sequence[tuple[str, ArgumentSpec]]


def differences(
    before: Arguments,
    after: Arguments,
    before_options: Mapping[str, str] | None = None,
    after_options: Mapping[str, str] | None = None,
) -> tuple[Difference, ...]:
    """Every field in which two variants of one kernel differ, parameters first; options by their texts."""
    left, right = dict(before), dict(after)
    found = [
        difference
        for name in dict.fromkeys((*left, *right))
        for difference in _compare(name, left.get(name), right.get(name))
    ]
    old, new = before_options or {}, after_options or {}
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            found.append(Difference(name, Aspect.OPTION, old.get(name, "not set"), new.get(name, "not set")))
    return tuple(found)


def _compare(name: str, before: ArgumentSpec | None, after: ArgumentSpec | None) -> Iterator[Difference]:
    if before == after:
        return
    if before is None or after is None:
        yield Difference(name, Aspect.KIND, say(before), say(after))
        return
    if isinstance(before, Group) or isinstance(after, Group):
        old, new = dict(flatten(before)), dict(flatten(after))
        if not (isinstance(before, Group) and isinstance(after, Group)) or old.keys() != new.keys():
            yield Difference(name, Aspect.KIND, say(before), say(after))
            return
        for path, leaf in old.items():
            yield from _compare(name + "".join(f"[{place}]" for place in path), leaf, new[path])
    elif isinstance(before, Fixed) or isinstance(after, Fixed):
        # One of them folded, the other a run-time integer: the value 1 against the other integers.
        same = isinstance(before, Fixed) and isinstance(after, Fixed)
        yield Difference(name, Aspect.CONSTANT if same else Aspect.CLASS, say(before), say(after))
    else:
        yield from _compare_runtime(name, before, after)


def _compare_runtime(name: str, before: Runtime, after: Runtime) -> Iterator[Difference]:
    if before.is_pointer != after.is_pointer:
        yield Difference(name, Aspect.KIND, say(before), say(after))
        return
    if before.type != after.type:
        aspect = Aspect.ELEMENT if before.is_pointer else Aspect.WIDTH
        yield Difference(name, aspect, before.element, after.element)
    if before.divisible != after.divisible:
        aspect = Aspect.ALIGNMENT if before.is_pointer else Aspect.CLASS
        yield Difference(name, aspect, _divisible(before), _divisible(after))
    if before.small != after.small:
        yield Difference(name, Aspect.STORAGE, _small(before), _small(after))


def say(spec: ArgumentSpec | None) -> str:
    """An argument's class in words: `multiple of 16`, `other`, `1`, `not 16-byte aligned`, ..."""
    if spec is None:
        return "not a parameter"
    if isinstance(spec, Fixed):
        return spec.constant.text
    if isinstance(spec, Group):
        return f"({', '.join(say(item) for item in spec.items)})"
    if spec.is_pointer:
        return f"{spec.element} tensor, {_divisible(spec)}" + (f", {_small(spec)}" if spec.small else "")
    return _divisible(spec) if spec.type[0] in "iu" and spec.type != "u1" else spec.type


def _divisible(spec: Runtime) -> str:
    if spec.is_pointer:
        return "16-byte aligned" if spec.divisible else "not 16-byte aligned"
    return "multiple of 16" if spec.divisible else "other"


def _small(spec: Runtime) -> str:
    return "storage of at most 2 GiB - 1" if spec.small else "storage over 2 GiB"
