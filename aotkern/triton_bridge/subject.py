"""What a compile is of, made from the objects that Triton passes to its hooks and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aotkern.spec import ArgumentSpec
from aotkern.triton_bridge import describe
from aotkern.triton_bridge.describe import Place


@dataclass(frozen=True)
class Subject:
    """A variant that is about to be compiled.

    Attributes:
        kernel: The kernel function's name, or the name of a launcher.
        module: The module that defines it.
        key: The text of its variant key.
        place: Where in the program.
        arguments: The specialisation.
        options: Compile options by their texts.
        details: More fields of the start event.
    """

    kernel: str
    module: str
    key: str
    place: Place
    arguments: tuple[tuple[str, ArgumentSpec], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The fields of a start event that say what is compiled."""
        return {
            "kernel": self.kernel,
            "module": self.module,
            "key": self.key,
            "arguments": [[name, str(spec)] for name, spec in self.arguments],
            "options": dict(self.options),
            "stack": self.place.stack,
            **self.details,
        }


def of_call(function: Any, call: Mapping[str, Any], place: Place) -> Subject:
    """The subject of a call of a JIT function; `call` is what Triton's cache hook is given as `compile`."""
    holder = place.options
    shared = ("num_warps", "num_ctas", "num_stages", "enable_fp_fusion", "launch_cooperative_grid")
    raw = vars(holder) if holder is not None else {name: call[name] for name in shared if name in call}
    return _subject(function, call["signature"], call["constants"], call["configs"][0], raw, place)


def of_source(source: Any, target: Any, asked: Mapping[str, Any], place: Place) -> Subject:
    """The subject of a direct `triton.compile(source, target, options)`; `source` may be the path of an IR file."""
    place.target = target
    function = getattr(source, "fn", None)
    if function is None:
        name = str(getattr(source, "name", source)).rpartition("/")[2].lstrip("@")
        return Subject(name, "", f"{name}[{describe.target_name(target)}] (IR)", place, options=describe.options(asked))
    return _subject(function, source.signature, source.constants, source.attrs, asked, place)


def of_launcher(name: str, place: Place) -> Subject:
    """The subject of a run of the C compiler."""
    return Subject(name, "", f"{name} (C source)", place)


def _subject(
    function: Any,
    signature: Mapping[str, Any],
    constants: Mapping[Any, Any],
    attributes: Mapping[Any, Any],
    raw_options: Mapping[str, Any],
    place: Place,
) -> Subject:
    arguments = tuple(describe.specialisation(function.arg_names, signature, constants, attributes))
    options = describe.options(raw_options)
    kernel = str(function.__name__)
    chosen = describe.changed(options, place.options)
    constexprs = frozenset(parameter.name for parameter in function.params if parameter.is_constexpr)
    details = {
        "constexprs": sorted(constexprs),
        "unspecialised": [parameter.name for parameter in function.params if parameter.do_not_specialize],
        "values": describe.values(place.bound, constexprs),
        "heuristic": place.heuristic,
        "tuned": place.tuned,
    }
    key = describe.key(kernel, describe.target_name(place.target), arguments, chosen)
    return Subject(kernel, str(function.module), key, place, arguments, options, details)
