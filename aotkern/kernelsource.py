"""What a kernel is made of, and its digest: one rule for the build, for recorders and for programs that are served.

The digest of a kernel covers its function, everything that it calls, every global and closure value that they read, and
the functions that are handed to it as constants. It does not cover where any of that stands: neither paths, nor line
numbers, nor module names, nor comments and blank lines.

Triton's objects are recognised by what they offer; Triton itself is not imported.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.spec import Constant


def digest(function: Any, functions: Mapping[str, Any]) -> Digest:
    """The digest of a kernel.

    Args:
        function: The `@triton.jit` function.
        functions: The functions that are handed to it as constants, by qualified name.
    """
    parts = [_closure(function), *(_closure(functions[name]) for name in sorted(functions))]
    return Digest.of(dumps(parts).encode())


def _closure(function: Any) -> list[list[str]]:
    """What a function is made of: rows of kind, name and text, itself first, in order of first use."""
    rows: dict[tuple[str, str], str] = {}
    _collect(function, rows)
    return [[*name, text] for name, text in rows.items()]


def _collect(function: Any, rows: dict[tuple[str, str], str]) -> None:
    # The name alone would merge two helpers of the same name from two modules, so the text is part of the row's name.
    text = normalised(function.src)
    name = ("function", f"{function.__qualname__} {Digest.of(text.encode()).short} {getattr(function, 'noinline', '')}")
    if name in rows:
        return
    rows[name] = text
    scope = function.get_capture_scope()
    for chain in _references(text):
        value = scope.get(chain[0], _MISSING)
        for attribute in chain[1:]:
            if not isinstance(value, ModuleType):
                break
            value = getattr(value, attribute, _MISSING)
        _collect_value(".".join(chain), value, rows)


def _collect_value(name: str, value: object, rows: dict[tuple[str, str], str]) -> None:
    if value is _MISSING or isinstance(value, ModuleType):
        return
    module = getattr(value, "__module__", None) or ""
    if module.partition(".")[0] == "triton" and hasattr(value, "__name__"):
        return  # a function or class of Triton's own: part of the toolchain
    if hasattr(value, "cache_key") and hasattr(value, "get_capture_scope"):
        _collect(value, rows)
        return
    try:
        rows["value", name] = Constant.of(value).text
    except InputError:
        # Triton refuses to read most other objects; a class may be an aggregate whose methods are compiled.
        rows["value", name] = _class_text(value) if inspect.isclass(value) else f"{type(value).__qualname__}"


def _class_text(value: type) -> str:
    try:
        return normalised(inspect.getsource(value))
    except (OSError, TypeError):
        return f"{value.__module__}.{value.__qualname__}"


_MISSING = object()


def _references(text: str) -> list[tuple[str, ...]]:
    """Every dotted name that a function reads, longest chains as written, sorted."""
    chains: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(text)):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            chains.add((inner.id, *parts))
    return sorted(chains)


def normalised(text: str) -> str:
    """Source text without comments, blank lines, trailing spaces and common indentation."""
    text = textwrap.dedent(text)
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    kept = _inside_strings(text)
    return "\n".join(
        line if number in kept else line.rstrip()
        for number, line in enumerate(lines, 1)
        if line.strip() or number in kept
    )


def _inside_strings(text: str) -> set[int]:
    """Lines that lie inside a multi-line string, whose blanks are part of the value."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            inside.update(range(token.start[0], token.end[0]))
    return inside
