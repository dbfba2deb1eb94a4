"""Kernel sources: finding, importing, and digesting what a kernel is made of. The only importer of kernel files.

A source is a module on the import path, a `.py` file, or a folder (a package, or loose files). Each module declares its
kernels in a tuple named `KERNELS`.

The digest of a kernel covers its function, everything that it calls, every global and closure value that they read, and
the functions that its declaration hands to it. It does not cover where any of that stands: neither paths, nor line
numbers, nor module names, nor comments and blank lines.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import io
import pkgutil
import sys
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError, Problem
from aotkern.spec import Constant, Kernel, Parameter

SHIPPED = "aotkern_kernels"
"""The package of kernels that aotkern itself ships."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where kernels come from: a module by name, or a file or folder by path (then `name` says as what it is imported).

    Attributes:
        name: Dotted module name; for a path without one, its stem.
        path: The file or folder, or None to look on the import path.
    """

    name: str
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> Source:
        """A path if it ends in `.py`, holds a separator or exists; a module name otherwise.

        Raises:
            InputError: A path that does not exist.
        """
        path = Path(text)
        if not (text.endswith(".py") or "/" in text or path.exists()):
            return cls(text)
        if not path.exists():
            raise InputError.one(text, "a kernel file or folder", "nothing there")
        path = path.resolve()
        return cls(path.stem, path)


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel whose module has been imported.

    Attributes:
        declaration: As its module declares it, under a name that is unique among the loaded kernels.
        parameters: The call signature of its function.
        source: The digest of all that it is made of.
        functions: The functions that its declaration hands to it as constants, by qualified name.
    """

    declaration: Kernel
    parameters: tuple[Parameter, ...]
    source: Digest
    functions: dict[str, Any]


def load(sources: Sequence[Source]) -> tuple[LoadedKernel, ...]:
    """Import the sources and digest their kernels.

    Raises:
        InputError: A source cannot be imported or declares nothing, or two kernels cannot be told apart.
    """
    found: list[tuple[str, Kernel]] = []
    for source in sources:
        before = len(found)
        for module in _modules(source):
            found.extend((module.__name__, kernel) for kernel in _declared(module))
        if len(found) == before:
            where = str(source.path or source.name)
            raise InputError.one(where, "a tuple KERNELS of aotkern.spec.Kernel", "no declaration")
    return tuple(_loaded(kernel) for kernel in _distinct(found))


def _distinct(found: list[tuple[str, Kernel]]) -> Iterator[Kernel]:
    """Kernels under unique names: those that share one are qualified by their module."""
    counts = Counter(kernel.name for _, kernel in found)
    problems: list[Problem] = []
    seen: set[str] = set()
    for module, kernel in found:
        name = kernel.name if counts[kernel.name] == 1 else f"{module.rpartition('.')[2]}.{kernel.name}"
        if name in seen:
            problems.append(Problem(f"kernel {name}", "one declaration of each name", "several; give one a name="))
        seen.add(name)
        yield Kernel(kernel.function, *kernel.spaces, name=name)
    if problems:
        raise InputError(problems)


def _declared(module: ModuleType) -> tuple[Kernel, ...]:
    kernels = getattr(module, "KERNELS", ())
    bad = [kernel for kernel in kernels if not isinstance(kernel, Kernel)] if isinstance(kernels, tuple) else [kernels]
    if bad:
        where = f"{module.__file__}: KERNELS"
        raise InputError.one(where, "a tuple of aotkern.spec.Kernel", type(bad[0]).__name__)
    return tuple(kernels)


def _modules(source: Source) -> Iterator[ModuleType]:
    """Every module of a source, sorted by name within a package or folder."""
    if source.path is None:
        yield from _package_modules(_import(source.name, source.name))
    elif source.path.is_file():
        yield _import_file(source.path)
    elif (source.path / "__init__.py").is_file():
        yield from _package_modules(_import_package(source.name, source.path))
    else:
        for path in sorted(source.path.glob("*.py")):
            yield _import_file(path)


def _package_modules(root: ModuleType) -> Iterator[ModuleType]:
    yield root
    for info in sorted(pkgutil.iter_modules(getattr(root, "__path__", [])), key=lambda info: info.name):
        yield from _package_modules(_import(f"{root.__name__}.{info.name}", root.__name__))


def _import(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InputError.one(where, f"a module {name} that can be imported", _describe(error)) from error


def _import_package(name: str, path: Path) -> ModuleType:
    """Import a folder as package `name`, whatever of that name may be installed."""
    spec = importlib.util.spec_from_file_location(name, path / "__init__.py", submodule_search_locations=[str(path)])
    for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]
    return _execute(spec, str(path), keep=True)


def _import_file(path: Path) -> ModuleType:
    """Import one file; inside a package, as the module of that package that it is."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    if len(names) > 1:
        top = _import_package(names[0], root / names[0])
        return _import(".".join(names), str(path)) if path.stem != "__init__" else top
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # for its neighbours
    return _execute(importlib.util.spec_from_file_location(path.stem, path), str(path), keep=False)


def _execute(spec: Any, where: str, *, keep: bool) -> ModuleType:
    """Run a module; a loose file leaves no entry behind that could hide a module of the same name."""
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError.one(where, "a kernel source that can be imported", _describe(error)) from error
    finally:
        if not keep:
            del sys.modules[spec.name]
            if before is not None:
                sys.modules[spec.name] = before
    return module


def _describe(error: Exception) -> str:
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    place = f" at line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _loaded(kernel: Kernel) -> LoadedKernel:
    function = kernel.function
    if not hasattr(function, "cache_key") or not hasattr(function, "params"):
        kind = type(function).__name__
        advice = "TRITON_INTERPRET must not be set" if kind == "InterpretedFunction" else "decorate it with @triton.jit"
        raise InputError.one(f"kernel {kernel.name}", "a @triton.jit function", f"{kind} ({advice})")
    functions = {value.__qualname__: value for value in _function_constants(kernel)}
    parameters = tuple(_parameter(param) for param in function.params)
    parts = [_closure(function), *(_closure(functions[name]) for name in sorted(functions))]
    return LoadedKernel(kernel, parameters, Digest.of(dumps(parts).encode()), functions)


def _parameter(param: Any) -> Parameter:
    default = Constant.of(param.default).text if param.has_default else None
    return Parameter(param.name, param.is_constexpr, default, not param.do_not_specialize, param.annotation_type)


def _function_constants(kernel: Kernel) -> Iterator[Any]:
    stack: list[Any] = [[space.arguments, [joint.rows for joint in space.joint]] for space in kernel.spaces]
    while stack:
        value = stack.pop()
        if hasattr(value, "values") and not callable(value.values):
            stack.extend(value.values)
        elif hasattr(value, "items") and callable(value.items):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif hasattr(value, "cache_key"):
            yield value


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
