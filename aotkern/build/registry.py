"""Kernel sources: finding and importing them. The only importer of kernel files.

A source is a module on the import path, a `.py` file, or a folder (a package, or loose files). Each module declares its
kernels in a tuple named `KERNELS`. What a kernel is made of is digested in `closure`.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from aotkern import closure
from aotkern.digest import Digest
from aotkern.errors import InputError, Problem
from aotkern.spec import Constant, Constexpr, Kernel, Named, Parameter, Tuple, VariantKey

SHIPPED = "aotkern_kernels"
"""The package of kernels that aotkern itself ships."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where kernels come from: a module by name, or a file or folder by path (then `name` says as what it is imported).

    Attributes:
        name: Dotted module name; for a path without one, its stem.
        path: The file or folder, or None to look on the import path. A file of plain rows (`.jsonl`) is a trace; see
            `aotkern.build.traced`.
        allow_stale: Traces only: take kernels whose source has changed since they were recorded.
        generated: Traces only: execute the text of kernels that were generated at run time. Nothing but a person's
            `--generated` sets it, so that a trace is data wherever it is given.
    """

    name: str
    path: Path | None = None
    allow_stale: bool = False
    generated: bool = False

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
        named: The functions and classes that its constants name, by the text of `aotkern.spec.Named`.
        keys: Exactly the variants to build, where a trace names them; None where the declaration's spaces do.
        reads: Values of modules that were recorded with it; they are set before it is compiled.
    """

    declaration: Kernel
    parameters: tuple[Parameter, ...]
    source: Digest
    named: dict[str, Any]
    keys: tuple[VariantKey, ...] | None = None
    reads: tuple[tuple[str, str], ...] = ()


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
        yield import_file(source.path)
    elif (source.path / "__init__.py").is_file():
        yield from _package_modules(_import_package(source.name, source.path))
    else:
        for path in sorted(source.path.glob("*.py")):
            yield import_file(path)


def _package_modules(root: ModuleType) -> Iterator[ModuleType]:
    yield root
    for info in sorted(pkgutil.iter_modules(getattr(root, "__path__", [])), key=lambda info: info.name):
        yield from _package_modules(_import(f"{root.__name__}.{info.name}", root.__name__))


def _import(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError.one(where, f"a module {name} that can be imported", describe(error)) from error


def _import_package(name: str, path: Path) -> ModuleType:
    """Import a folder as package `name`, whatever of that name may be installed."""
    spec = importlib.util.spec_from_file_location(name, path / "__init__.py", submodule_search_locations=[str(path)])
    for known in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]
    return _execute(spec, str(path), keep=True)


def import_file(path: Path) -> ModuleType:
    """Import one file; inside a package, as the module of that package that it is.

    Raises:
        InputError: It cannot be imported.
    """
    if path.suffix != ".py" or not path.is_file():
        found = f"the folder {path.name}" if path.is_dir() else path.name
        raise InputError.one(str(path), "a Python file, whose name ends in .py", found)
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
    except (Exception, SystemExit) as error:
        raise InputError.one(where, "a kernel source that can be imported", describe(error)) from error
    finally:
        if not keep:
            del sys.modules[spec.name]
            if before is not None:
                sys.modules[spec.name] = before
    return module


def describe(error: BaseException) -> str:
    """What somebody's code raised: kind, message and line."""
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    place = f" at line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _loaded(kernel: Kernel) -> LoadedKernel:
    _require_jit(kernel)
    return loaded(kernel, _named(kernel))


def _require_jit(kernel: Kernel) -> None:
    function = kernel.function
    if not closure.is_jit(function) or not hasattr(function, "params"):
        kind = type(function).__name__
        advice = "TRITON_INTERPRET must not be set" if kind == "InterpretedFunction" else "decorate it with @triton.jit"
        raise InputError.one(f"kernel {kernel.name}", "a @triton.jit function", f"{kind} ({advice})")


def loaded(kernel: Kernel, named: dict[str, Any], keys: tuple[VariantKey, ...] | None = None) -> LoadedKernel:
    """A kernel with its digest.

    Args:
        kernel: Its declaration.
        named: The functions and classes that its constants name, by the text of `aotkern.spec.Named`.
        keys: Exactly the variants to build, if they do not follow from the declaration.

    Raises:
        InputError: The declaration's function is no `@triton.jit` function.
    """
    _require_jit(kernel)
    function = kernel.function
    parameters = tuple(_parameter(param) for param in function.params)
    return LoadedKernel(kernel, parameters, closure.digest((function,)), named, keys)


def _parameter(param: Any) -> Parameter:
    default = Constant.of(param.default).text if param.has_default else None
    return Parameter(param.name, param.is_constexpr, default, not param.do_not_specialize, param.annotation_type)


def _named(kernel: Kernel) -> dict[str, Any]:
    """The functions and classes of the constants that a declaration, or a default, hands to a kernel."""
    handed = [[space.arguments, [joint.rows for joint in space.joint]] for space in kernel.spaces]
    found: dict[str, Any] = {}
    for value in _handed([*handed, *(param.default for param in kernel.function.params)]):
        spelled = Constant.of(value, f"kernel {kernel.name}").value
        of = spelled if isinstance(spelled, Named) else spelled.of
        found[str(of)] = value if closure.is_jit(value) else type(value)
    return dict(sorted(found.items()))


def _handed(value: object) -> Iterator[Any]:
    """Every function, enum's member and named tuple inside choices, rows, tuples and mappings of them."""
    own = isinstance(value, (enum.Enum, tuple)) and type(value) is not tuple
    if own or closure.is_jit(value):
        yield value
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    elif closure.is_constexpr(value):
        inner = (getattr(value, "value", None),)
    elif isinstance(value, enum.Enum):
        inner = (value.value,)
    elif isinstance(value, Constexpr):
        inner = value.values
    elif isinstance(value, Tuple):
        inner = value.items
    for item in inner:
        yield from _handed(item)
