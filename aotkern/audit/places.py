"""Where kernels are defined: file and line of each `@triton.jit` function, read from the text. Nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotkern.errors import InputError


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, from 1."""

    file: str
    line: int


def of(sources: Sequence[str]) -> dict[str, Place]:
    """The places of all kernels in files, folders or modules, by the names that keys give them.

    A file that is no Python has none, and a name that two files define is only known with its module's in front.

    Raises:
        InputError: A source that does not exist.
    """
    found: dict[str, list[Place]] = {}
    for file in dict.fromkeys(file for source in sources for file in _files(source)):
        for name, line in _defined(file):
            for known in (name, f"{file.stem}.{name}"):
                found.setdefault(known, []).append(Place(str(file), line))
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def place_of(subject: str, known: Mapping[str, Place]) -> Place | None:
    """The place of the kernel that a finding's subject, a key or a kernel's name, begins with."""
    return known.get(subject.partition("[")[0])


def _files(source: str) -> Iterator[Path]:
    path = Path(source)
    if not (source.endswith(".py") or "/" in source or path.exists()):
        yield from _of_module(source)
    elif path.is_dir():
        yield from sorted(path.rglob("*.py"))
    elif path.is_file():
        yield path
    else:
        raise InputError.one(source, "a kernel file or folder", "nothing there")


def _of_module(name: str) -> Iterator[Path]:
    """The files of a module on the import path; of a package that has it inside, for a dotted name."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        raise InputError.one(name, "a module that can be found", "none")
    if spec.submodule_search_locations is None:
        yield Path(spec.origin)
        return
    inner = Path(spec.origin).parent.joinpath(*rest)
    yield from [inner.with_suffix(".py")] if inner.with_suffix(".py").is_file() else sorted(inner.rglob("*.py"))


def _defined(file: Path) -> Iterator[tuple[str, int]]:
    """Names and lines of the decorated functions of a file, and of declarations that rename one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    lines: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list)):
            lines[node.name] = node.lineno
    yield from lines.items()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
            named = {word.arg: word.value for word in node.keywords}.get("name")
            function = node.args[0].id
            if isinstance(named, ast.Constant) and isinstance(named.value, str) and function in lines:
                yield named.value, lines[function]


def _is_jit(decorator: ast.expr) -> bool:
    """`@triton.jit`, `@jit`, or a call of either."""
    what = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (what.attr if isinstance(what, ast.Attribute) else getattr(what, "id", "")) == "jit"
