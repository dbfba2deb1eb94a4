"""Which outside names a function reads, by its text and in the order of its statements."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator


@functools.lru_cache(maxsize=4096)
def names_read(text: str, *, defaults: bool = True) -> list[tuple[str, ...]]:
    """Every dotted name that a function reads from outside, sorted; what it has assigned before hides an outside name.

    Args:
        text: The function's text.
        defaults: Whether names in its default arguments count.
    """
    tree = ast.parse(text)
    function = tree.body[0]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return sorted(_names([tree]))
    given = function.args
    own = [arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if arg]
    body = _Body({arg.arg for arg in own}, function)
    body.run(function.body)
    around: list[ast.AST] = [*own, *function.decorator_list]
    if defaults:
        around += [value for value in (*given.defaults, *given.kw_defaults) if value is not None]
    return sorted(body.read | set(_names(around)))


def named_defaults(text: str) -> list[str]:
    """The parameters whose default is computed from names."""
    function = ast.parse(text).body[0]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [*zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None]
    return [arg.arg for arg, value in pairs if any(isinstance(node, ast.Name) for node in ast.walk(value))]


class _Body:
    """A function's statements, followed in order: Triton looks a name up outside until the function has assigned it.

    Attributes:
        read: The dotted names that are read from outside.
    """

    def __init__(self, own: set[str], function: ast.AST) -> None:
        self.read: set[tuple[str, ...]] = set()
        self._own = own
        declared = (node.names for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)))
        self._outside = {name for names in declared for name in names}

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Follow a block."""
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self._expressions(node.value)
            self._assign(*node.targets)
        elif isinstance(node, ast.AnnAssign):
            self._expressions(node.annotation, node.value)
            self._assign(*([node.target] if node.value else []))
        elif isinstance(node, ast.If):
            self._expressions(node.test)
            then, otherwise = self._branch(node.body), self._branch(node.orelse)
            self._own = then & otherwise
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._expressions(node.iter)
            self._branch(node.body, node.target)
            self._branch(node.orelse)
        elif isinstance(node, ast.While):
            self._expressions(node.test)
            self._branch(node.body)
            self._branch(node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._expressions(item.context_expr)
                self._assign(*([item.optional_vars] if item.optional_vars else []))
            self.run(node.body)
        else:
            self._expressions(node)

    def _branch(self, statements: Iterable[ast.stmt], *targets: ast.expr) -> set[str]:
        """Follow a block that may not run, or not always; the names that are the function's own at its end."""
        before, self._own = self._own, set(self._own)
        self._assign(*targets)
        self.run(statements)
        after, self._own = self._own, before
        return after

    def _assign(self, *targets: ast.expr) -> None:
        for target in targets:
            if isinstance(target, ast.Name):
                self._own |= {target.id} - self._outside
            elif isinstance(target, (ast.Tuple, ast.List)):
                self._assign(*target.elts)
            elif isinstance(target, ast.Starred):
                self._assign(target.value)
            else:
                self._expressions(target)

    def _expressions(self, *nodes: ast.AST | None) -> None:
        there = (node for node in nodes if node is not None)
        self.read |= {chain for chain in _names(there) if chain[0] not in self._own}


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield (inner.id, *parts)
