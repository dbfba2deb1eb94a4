"""What a declaration pays for without using it: notes for people, never a reason to refuse."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from aotkern.build.registry import LoadedKernel


def notes(kernel: LoadedKernel) -> Iterator[str]:
    """One line for each parameter that multiplies variants to no effect.

    A parameter that the kernel never reads gives equal code for all its values: they share one code object, but each is
    a variant, and at run time each new value would be a miss. `do_not_specialize` cannot keep a `tl.constexpr` from
    being compiled in.
    """
    read = _names_read(kernel.declaration.function.src)
    for parameter in kernel.parameters:
        where = f"kernel {kernel.declaration.name}, parameter {parameter.name}"
        if parameter.name not in read:
            yield f"{where}: it is never read; each value that is declared for it is a variant with the same code"
        if parameter.constexpr and not parameter.specialised:
            yield f"{where}: do_not_specialize has no effect on a tl.constexpr; each of its values is a variant"


def _names_read(source: str) -> set[str]:
    function = ast.parse(source).body[0]
    body = function.body if isinstance(function, ast.FunctionDef) else []
    return {
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
