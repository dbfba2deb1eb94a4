"""A kernel of a module that was generated at run time (by Inductor, for one), written down as a module of its own.

Such a module cannot be imported anywhere else, so a trace carries its kernels as text: the function and whatever else
its module defines for it, and an import of everything that comes from elsewhere. Decorators stay behind, as they do
when Triton compiles: the text that Triton compiles, and with it the digest of the source, is the same.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

from aotkern import closure
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.reading import names_read
from aotkern.spec import Constant
from aotkern.trace import GENERATED


def is_generated(function: Any) -> bool:
    """Whether a kernel's module cannot be imported by name."""
    return function.module not in closure.MAIN and getattr(sys.modules.get(function.module), "__spec__", None) is None


def write(function: Any) -> tuple[str, str]:
    """Name and text of a module that defines the kernel.

    Raises:
        InputError: It reads something that can be neither imported nor written as a constant.
    """
    text = _Writer(function.module).text(function)
    return f"{GENERATED}{Digest.of(text.encode()).hex[:12]}", text


class _Writer:
    """The parts of one module.

    Attributes:
        imports: Import statements.
        constants: Assignments of constants.
        functions: Definitions, each after those that it calls.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self.imports = {"import triton"}
        self.constants: set[str] = set()
        self.functions: dict[str, str] = {}
        self._names: dict[str, Any] = {}

    def text(self, function: Any) -> str:
        """The whole module."""
        self._define(function)
        head = [*sorted(self.imports), *sorted(self.constants)]
        return "\n".join(head) + "".join(f"\n\n\n{part}" for part in self.functions.values()) + "\n"

    def _define(self, function: Any) -> None:
        name, text = function.__name__, closure.normalised(function.src)
        scope = function.get_capture_scope()
        for read in sorted({chain[0] for chain in names_read(text)} & scope.keys()):
            if scope[read] is not function:
                self._bind(f"{function.__qualname__}: {read}", read, scope[read])
        decorator = "@triton.jit(noinline=True)" if getattr(function, "noinline", False) else "@triton.jit"
        self.functions[name] = f"{decorator}\n{text}"

    def _bind(self, where: str, name: str, value: Any) -> None:
        """Make a name stand for a value."""
        if self._names.setdefault(name, value) is not value and not _equal(self._names[name], value):
            raise InputError.one(where, "one meaning of a name in all functions of a kernel", "two")
        home = getattr(value, "__module__", None)
        own = str(getattr(value, "__name__", ""))
        if isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__} as {name}")
        elif own and home != self._home and getattr(sys.modules.get(str(home)), own, None) is value:
            self.imports.add(f"from {home} import {own} as {name}")
        elif closure.is_jit(value) and home == self._home and own == name:
            if name not in self.functions:
                self._define(value)
        elif closure.is_jit(value):
            self._wrapped(where, name, value)
        elif closure.is_constexpr(value):
            self.constants.add(f"{name} = triton.language.constexpr({_constant(where, value.value)})")
        else:
            self.constants.add(f"{name} = {_constant(where, value)}")

    def _wrapped(self, where: str, name: str, function: Any) -> None:
        """A function whose module holds a wrapper around it: taken out of the wrapper, or written down itself."""
        home, own = str(function.module), function.__name__
        found = getattr(sys.modules.get(home), own, None) if home != self._home else None
        way = ""
        while found is not None and found is not function:
            found, way = getattr(found, "fn", None), f"{way}.fn"
        if found is not None:
            self.imports.add(f"from {home} import {own} as {name}")
            self.constants.add(f"{name} = {name}{way}")
        elif own == name:
            if name not in self.functions:
                self._define(function)
        else:
            raise InputError.one(where, "a function under its own name, or one to import", "JITFunction")


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are one constant."""
    try:
        return bool(type(one) is type(other) and Constant.of(one) == Constant.of(other))
    except InputError:
        return False


def _constant(where: str, value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (bool, int, float, str, type(None))):
        return Constant.of(value, where).text
    kind = type(value).__name__
    raise InputError.one(where, f"something to import, or a number or text, and no {kind}", kind)
