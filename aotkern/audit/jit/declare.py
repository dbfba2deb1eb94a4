"""The lines to add to a declaration, so that a build holds the variants that a program compiled.

One `Space` for each shape of arguments (a tensor here and None there are two shapes). A space covers at least the
variants it is made from, and may cover more: classes of several arguments multiply.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotkern.dispatchadvice import python
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Runtime
from aotkern.spec.difference import Arguments

_MANY_CONSTANTS = 16
"""An integer constant of more values than this is declared as the run-time argument that it should become."""


def declaration(target: str, variants: Sequence[Arguments], constexprs: frozenset[str]) -> str:
    """`Space(...)` texts for these variants of one kernel; those with tensor descriptors are left out.

    Args:
        target: The target that they were compiled for.
        variants: Their specialisations.
        constexprs: Parameters that are declared `tl.constexpr`.
    """
    shapes: dict[str, list[Arguments]] = {}
    for arguments in variants:
        if any(_is_descriptor(spec) for name, spec in arguments if name not in constexprs):
            continue  # no declaration can say it
        shape = ",".join(_shape(name, spec, constexprs) for name, spec in arguments)
        shapes.setdefault(shape, []).append(arguments)
    return "\n".join(_space(target, rows, constexprs) for rows in shapes.values())


def _is_descriptor(spec: ArgumentSpec) -> bool:
    if isinstance(spec, Group):
        return any(map(_is_descriptor, spec.items))
    return isinstance(spec, Fixed) and spec.constant.text.startswith('"tensordesc')


def _shape(name: str, spec: ArgumentSpec, constexprs: frozenset[str]) -> str:
    if name in constexprs:
        return "constant"
    if isinstance(spec, Group):
        return f"({','.join(_shape('', item, frozenset()) for item in spec.items)})"
    if isinstance(spec, Fixed):
        return "integer" if spec.constant.text == "1" else spec.constant.text
    return spec.type if spec.is_pointer or spec.type[0] not in "iu" or spec.type == "u1" else "integer"


def _space(target: str, rows: Sequence[Arguments], constexprs: frozenset[str]) -> str:
    columns: dict[str, list[ArgumentSpec]] = {}
    for arguments in rows:
        for name, spec in arguments:
            columns.setdefault(name, []).append(spec)
    choices = ", ".join(f'"{name}": {_choice(specs, name in constexprs)}' for name, specs in columns.items())
    return f'Space(("{target}",), {{{choices}}}),'


def _choice(specs: Sequence[ArgumentSpec], constexpr: bool) -> str:
    unique = list(dict.fromkeys(specs))
    if constexpr:
        texts = [spec.constant.text for spec in unique if isinstance(spec, Fixed)]
        if len(texts) > _MANY_CONSTANTS and all(text.lstrip("-").isdigit() for text in texts):
            return 'Int(classes=("any",))'
        return f"Constexpr({', '.join(python(Constant(text)) for text in texts)})"
    if all(isinstance(spec, Group) for spec in unique):
        items = zip(*(spec.items for spec in unique if isinstance(spec, Group)), strict=True)
        return f"Tuple({', '.join(_choice(list(column), constexpr=False) for column in items)})"
    if any(isinstance(spec, Fixed) and spec.constant.text == "None" for spec in unique):
        return "Null()"
    runtimes = [spec for spec in unique if isinstance(spec, Runtime)]
    if runtimes and runtimes[0].is_pointer:
        return _pointer(runtimes)
    if runtimes and (runtimes[0].type[0] not in "iu" or runtimes[0].type == "u1"):
        return "Bool()" if runtimes[0].type == "u1" else f'Float("{runtimes[0].type}")'
    return _integer(unique, runtimes)


def _pointer(runtimes: Sequence[Runtime]) -> str:
    words = [f'"{runtimes[0].element}"']
    if {spec.divisible for spec in runtimes} == {True, False}:
        words.append('alignment="both"')
    elif not runtimes[0].divisible:
        words.append('alignment="any"')
    if {spec.small for spec in runtimes} == {True, False}:
        words.append('storage="both"')
    return f"Pointer({', '.join(words)})"


def _integer(unique: Sequence[ArgumentSpec], runtimes: Sequence[Runtime]) -> str:
    classes = [
        *(['"1"'] if any(isinstance(spec, Fixed) for spec in unique) else []),
        *(['"16"'] if any(spec.divisible for spec in runtimes) else []),
        *(['"any"'] if any(not spec.divisible for spec in runtimes) else []),
    ]
    widest = max((spec.type for spec in runtimes), key=lambda kind: int(kind[1:]), default="i32")
    return f'Int("{widest}", classes=({", ".join(classes)}{"," if len(classes) == 1 else ""}))'
