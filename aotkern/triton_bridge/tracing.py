"""Recording what a program asks Triton's compiler for, as rows of a trace.

The program runs as it would alone. A request is looked at when Triton has answered it: then Triton has worked out its
own keys, and a kernel that it refuses has been refused. What cannot be rebuilt elsewhere is written down too, with a
reason that is made of words of aotkern and names of types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aotkern import closure
from aotkern.build import named
from aotkern.compileoptions import RESERVED
from aotkern.errors import ProblemsError
from aotkern.spec import VariantKey
from aotkern.trace import UNSUPPORTED, Recorded, Row, Unbuildable
from aotkern.triton_bridge import describe, specialised, written
from aotkern.triton_bridge.choices import Choices
from aotkern.triton_bridge.seam import Seam
from aotkern.triton_bridge.sink import Sink
from aotkern.triton_bridge.tuners import current_target

_BY_TRITON = frozenset({"debug", "instrumentation_mode", "fpsan_homomorphic_casts", *RESERVED})
"""Options that Triton's launcher adds to those of a call."""


class Tracer:
    """Records one process; `begin` and `end` may be called at any time.

    Args:
        sink: Takes each row as plain values, in the order in which they happen.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, self._choices = sink, Choices(self._write)
        self.seam = Seam(self._around_compile, self._choices.methods, lambda _: None)

    def begin(self) -> None:
        """Record from now on."""
        self.seam.put()

    def end(self) -> None:
        """Record no more."""
        self.seam.remove()

    def _write(self, row: Row) -> None:
        self._sink.write(row.to_json())

    def _around_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(src: Any, target: Any = None, options: Any = None, **kwargs: Any) -> Any:  # noqa: A001
            try:
                made = original(src, target=target, options=options, **kwargs)
            except Exception as error:
                self._refuse(src, target, f"it did not compile when it was recorded: {_kind(error)}", "compile")
                raise
            self._record(src, target, options)
            return made

        return compile

    def _record(self, source: Any, target: Any, options: Any) -> None:
        try:
            asked = specialised.read(source, target, options)
            row = _recorded(asked, trial=self._choices.benchmarking)
            if isinstance(row, Unbuildable):
                self._choices.refuse(row)
            else:
                self._write(row)
        except ProblemsError as error:
            self._refuse(source, target, _reason(error, source), UNSUPPORTED)
        except Exception as error:  # what goes wrong here must not stop the program that is recorded
            self._refuse(source, target, f"it could not be read: {_kind(error)}", UNSUPPORTED)

    def _refuse(self, source: Any, target: Any, reason: str, kind: str) -> None:
        try:
            where = describe.target_name(current_target() if target is None else target)
            self._choices.refuse(Unbuildable(_name(source), where, reason, kind))
        except Exception as error:  # as above
            nameless = f"it could not be named: {_kind(error)}"
            self._choices.refuse(Unbuildable(type(source).__qualname__, "unknown", nameless, kind))


def _kind(error: Exception) -> str:
    return type(error).__name__


def _name(source: Any) -> str:
    """The name of what is compiled; of an IR file its own name, without a folder."""
    if getattr(source, "fn", None) is not None:
        return specialised.name_of(source)
    name = getattr(source, "name", None)
    return name.rpartition("/")[2] if isinstance(name, str) else type(source).__qualname__


def _reason(error: ProblemsError, source: Any) -> str:
    """What was expected, and the types that were found instead: a value's `repr` may say anything."""
    expected = "; ".join(f"{problem.where}: expected {problem.expected}" for problem in error.problems)
    found = sorted({kind for value in dict(getattr(source, "constants", {})).values() for kind in _strange(value)})
    return f"{expected}, found {', '.join(found)}" if found else expected


def _strange(value: Any) -> Iterator[str]:
    """Names of the types of constants that are not Python's own plain ones."""
    if type(value) in (tuple, list):
        for item in value:
            yield from _strange(item)
    elif value is not None and type(value) not in (bool, int, float, str):
        yield type(value).__qualname__


def _recorded(asked: specialised.Asked, *, trial: bool) -> Row:
    where = str(asked.target)
    if obstacle := _unreachable(asked):
        return Unbuildable(asked.name, where, obstacle, "unnamed")
    name, module, text = asked.name, asked.module, ""
    if written.is_generated(asked.function):
        module, text = written.write(asked.function)
        name = f"{module}.{asked.function.__qualname__}"
    place = describe.place()
    explicit = {option: asked.options[option] for option in place.given if option in asked.options}
    options = {**{k: v for k, v in explicit.items() if k not in _BY_TRITON}, **asked.changed}
    key = VariantKey(name, asked.target, asked.arguments, tuple(sorted(options.items())))
    version = str(getattr(sys.modules["triton"], "__version__", ""))
    return Recorded(
        key=VariantKey.parse(str(key)),
        module=module,
        source=asked.source,
        constexprs=tuple(sorted(parameter.name for parameter in asked.function.params if parameter.is_constexpr)),
        heuristic=tuple(sorted(set(place.heuristic))),
        trial=trial,
        triton=version,
        text=text,
        reads=tuple(_reads(asked)),
    )


def _unreachable(asked: specialised.Asked) -> str:
    """Why a build could not find the kernel, or a function that it is given, by module and name; or nothing."""
    for function in _made_of(asked):
        name = f"{specialised.module_of(function)}.{function.__qualname__}"
        if "<locals>" in name:
            return f"{name}: it is defined inside a function, and cannot be imported by name"
        if specialised.module_of(function) in closure.MAIN:
            return f"{name}: its program is no file that could be imported"
        module = sys.modules.get(str(function.module))
        if module is None or (written.is_generated(function) and function is asked.function):
            continue
        if not any(found is function for found in named.candidates(module, function.__qualname__)):
            return f"{name}: its module does not hold it under a name, or in a wrapper that can be looked into"
    return ""


def _made_of(asked: specialised.Asked) -> Iterable[Any]:
    return asked.function, *asked.handed


def _reads(asked: specialised.Asked) -> Iterator[tuple[str, str]]:
    """Values that were read from modules, by the names under which a build imports these modules."""
    for place, text in closure.readings(_made_of(asked)).items():
        module, _, name = place.partition(":")
        if module in closure.MAIN:
            yield f"{asked.module}:{name}", text
        elif getattr(sys.modules.get(module), "__spec__", None) is not None:
            yield place, text
