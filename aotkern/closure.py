"""What a kernel is made of: the text of its function and of everything that it reaches, as one digest.

Covered are the functions that it calls, whichever way it reaches them; every global, closure value and class attribute
that they read; default arguments of what it calls, `noinline`, and the function that chooses its symbol. Not covered is
where all this stands: paths, line numbers, module names, comments, blank lines, object addresses; nor are the kernel's
own default arguments, which its key overrides. What Triton, Python's own library, numpy or torch define is known by
name only: the manifest records the toolchain beside this digest.
"""

from __future__ import annotations

import enum
import functools
import inspect
import io
import numbers
import sys
import textwrap
import tokenize
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.reading import named_defaults, names_read
from aotkern.spec import spelling

_FOREIGN = frozenset({*sys.stdlib_module_names, "triton", "numpy", "torch"})
_RECORDS = frozenset({("types", "SimpleNamespace"), ("argparse", "Namespace")})
"""Classes of Python's own library whose objects are nothing but the values that somebody put into them."""
_PLAIN = (bytes, bytearray, range, slice)
_MISSING = object()


def digest(functions: Iterable[Any]) -> Digest:
    """The digest of what a kernel and the functions that it is given are made of, together and in this order.

    Args:
        functions: `@triton.jit` functions; the first is the kernel.
    """
    return _walked(functions)[0]


def readings(functions: Iterable[Any]) -> dict[str, str]:
    """The values that these functions, and what they call, read from modules.

    Args:
        functions: As for `digest`.

    Returns:
        By `module:NAME`, and by `module:function(parameter)` for default arguments of what is called: the canonical
        text of a constant, or `#` and a digest of anything else that is no function, class or module. A text is shown
        only where it is a `tl.constexpr`, since it may say something of the machine.
    """
    return _walked(functions)[1]


def _walked(functions: Iterable[Any]) -> tuple[Digest, dict[str, str]]:
    made_of = list(functions)
    closure = _Closure(made_of[0] if made_of else None)
    found = closure.digest(made_of)
    return found, dict(sorted(closure.readings.items()))


def identity(value: Any) -> str:
    """The first 16 digits of the digest of a function or class.

    They are remembered as long as it lives and its text stays the same, because a launch may ask for them; `forget`
    makes whoever asks next look again at what it reads.
    """
    text = getattr(value, "src", None)
    known = _KNOWN.get(id(value))
    if known is None or known[0]() is not value or known[1] is not text:
        # Its own defaults count: unlike a kernel's, no key overrides them.
        known = _KNOWN[id(value)] = weakref.ref(value), text, _Closure(None).digest((value,)).hex[:16]
    return known[2]


_KNOWN: dict[int, tuple[Callable[[], object], object, str]] = {}


def forget() -> None:
    """Digest every function and class anew that is asked for from now on."""
    _KNOWN.clear()


MAIN = ("__main__", "__mp_main__")
"""Names of the program's own module: in the process that was started, and in those that multiprocessing spawns."""


def module_name(name: str) -> str:
    """The name under which a module can be imported; a program that was started by its file is the module of that."""
    main = vars(sys.modules[name]) if name in MAIN and name in sys.modules else None
    if main is None:
        return name
    spec = main.get("__spec__")
    if spec is not None:
        return str(spec.name)
    return str(main.get("__file__", name)).rpartition("/")[2].removesuffix(".py")


def function_module(function: Any) -> str:
    """The module that defines a JIT function, as it can be imported."""
    name = str(getattr(function, "module", None) or function.__module__)
    if name in MAIN and (name not in sys.modules or function.__globals__ is not vars(sys.modules[name])):
        # It was read by `runpy`, or its module has been replaced since.
        spec, file = function.__globals__.get("__spec__"), str(function.__globals__.get("__file__", name))
        return str(spec.name) if spec is not None else file.rpartition("/")[2].removesuffix(".py")
    return module_name(name)


class _Closure:
    """Everything reached so far.

    Args:
        kernel: The function whose own defaults do not count.

    Attributes:
        rows: One for each function and class, in order of first use; they refer to each other by number.
        readings: Values that were read from modules; see `readings`.
    """

    def __init__(self, kernel: Any) -> None:
        self.rows: list[list[Any]] = []
        self.readings: dict[str, str] = {}
        self._kernel, self._open = kernel, set[int]()
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # an address names an object only as long as that object lives

    def digest(self, values: Iterable[Any]) -> Digest:
        """The digest of what these are made of, together and in this order."""
        roots = [self.reference(value) for value in values]
        return Digest.of(dumps([roots, self.rows]).encode())

    def reference(self, value: object) -> list[Any]:
        """How a row speaks of a value: by its text, by a name, or by the number of another row."""
        if isinstance(value, ModuleType) or _is_foreign(value):
            return ["foreign", _name(value)]
        if is_jit(value) or isinstance(value, (FunctionType, type)):
            return ["row", self._row(value)]
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return [type(value).__name__, [self.reference(item) for item in value]]
        if isinstance(value, (dict, frozenset, set)):
            return self._collection(value)
        if is_constexpr(value):
            return ["constexpr", self.reference(getattr(value, "value", None))]
        try:
            text = spelling.plain(value, "constant")
        except InputError:
            text = None
        return ["constant", text] if text is not None else self._instance(value)

    def _collection(self, value: dict[Any, Any] | frozenset[Any] | set[Any]) -> list[Any]:
        if isinstance(value, dict):
            return ["dict", [[self.reference(key), self.reference(item)] for key, item in value.items()]]
        return ["set", sorted(dumps(self.reference(item)) for item in value)]

    def _instance(self, value: object) -> list[Any]:
        """An object of some class: a number or text of a class of its own, an enum member, a record."""
        kind = self.reference(type(value))
        base: Any
        for base in (int, float, str, tuple):
            if isinstance(value, base):
                return ["instance", kind, self.reference(base.__new__(base, value))]
        if isinstance(value, (numbers.Number, *_PLAIN)):
            return ["instance", kind, repr(value)]
        if _is_machinery(value):
            return ["foreign", _name(value)]
        if id(value) in self._open:
            return ["cycle"]
        self._open.add(id(value))
        members = self._members(getattr(value, "__dict__", {}))
        self._open.discard(id(value))
        return ["instance", kind, members]

    def _row(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = number = len(self.rows)
            self._alive.append(value)
            self.rows.append([])
            if isinstance(value, type):
                self.rows[number] = self._class(value)
            elif isinstance(value, FunctionType):
                self.rows[number] = self._plain(value)
            else:
                self.rows[number] = self._jit(value)
        return self._numbers[id(value)]

    def _jit(self, function: Any) -> list[Any]:
        text = normalised(function.src)
        symbol = getattr(function, "_repr", None)
        return [
            "jit",
            function.__qualname__,
            bool(getattr(function, "noinline", False)),
            self.reference(symbol) if symbol else [],
            text,
            self._reads(text, function.get_capture_scope(), getattr(function, "fn", function)),
            *([] if function is self._kernel else self._defaults(text, getattr(function, "fn", function))),
        ]

    def _plain(self, function: FunctionType) -> list[Any]:
        """A Python function that runs while a kernel is compiled."""
        try:
            text = normalised(inspect.getsource(function))
            names = inspect.getclosurevars(function)
            scope = {**names.globals, **names.nonlocals}
            reads, defaults = self._reads(text, scope, function), self._defaults(text, function)
            return ["function", function.__qualname__, text, reads, *defaults]
        except (OSError, SyntaxError, TypeError, ValueError, tokenize.TokenError):
            return ["function", function.__qualname__, _raw(function), []]

    def _class(self, value: type) -> list[Any]:
        if issubclass(value, enum.Enum):
            members = [[name, self.reference(member.value)] for name, member in value.__members__.items()]
            own = self._members(_methods(value))
            return ["enum", value.__qualname__, members, *([own] if own else [])]
        bases = [self.reference(base) for base in value.__bases__]
        return ["class", value.__qualname__, bases, self._members(vars(value))]

    def _members(self, members: Mapping[str, Any]) -> list[Any]:
        rows: list[Any] = []
        for name, value in sorted(members.items()):
            inner = getattr(value, "__func__", getattr(value, "fget", value))
            own = isinstance(inner, FunctionType) and not _is_foreign(inner)
            if not (name.startswith("__") and name.endswith("__")) or own or name == "__annotations__":
                rows.append([name, self.reference(inner)])
        return rows

    def _reads(self, text: str, scope: Mapping[str, Any], function: Any) -> list[Any]:
        """Each outside name that a function reads, with what it stands for."""
        own = getattr(function, "__globals__", {})
        reads: dict[str, list[Any]] = {}
        for chain in names_read(text, defaults=False):
            value, holder = scope.get(chain[0], _MISSING), ""
            if chain[0] in own and own[chain[0]] is value:
                holder = str(own.get("__name__", ""))
            taken = 1
            for attribute in chain[1:]:
                if not isinstance(value, ModuleType):
                    break
                holder = value.__name__
                value = getattr(value, attribute, _MISSING)
                taken += 1
            if value is not _MISSING:
                reads[".".join(chain[:taken])] = reference = self.reference(value)
                self._note(f"{holder}:{chain[taken - 1]}" if holder else "", reference)
        return [[name, reference] for name, reference in reads.items()]

    def _defaults(self, text: str, function: Any) -> list[Any]:
        """The values of default arguments that are not written out, for a caller that leaves these out."""
        named = named_defaults(text)
        values = inspect.signature(function).parameters if named else {}
        found: list[Any] = []
        for name in named:
            found.append([name, self.reference(values[name].default)])
            self._note(f"{function.__module__}:{function.__qualname__}({name})", found[-1][1])
        return [found] if found else []

    def _note(self, place: str, reference: list[Any]) -> None:
        """Keep a value that was read, if it is one."""
        kind = reference[0]
        if not place or kind in ("foreign", "row") or place.partition(":")[0].partition(".")[0] in _FOREIGN:
            return
        inner = reference[1] if kind == "constexpr" else reference
        shown = inner[0] == "constant" and (kind == "constexpr" or not inner[1].startswith('"'))
        self.readings[place] = inner[1] if shown else f"#{Digest.of(dumps(reference).encode()).hex[:12]}"


def is_jit(value: object) -> bool:
    """Whether this is a function of Triton's, `@triton.jit` or `@triton.constexpr_function`."""
    # By the class: asking the object would make Triton compute its own key, and fail for what it does not like.
    return hasattr(type(value), "cache_key") and hasattr(type(value), "get_capture_scope")


def is_jit_function(value: object) -> bool:
    """Whether this is a function as Triton's own decorators make it, and no subclass of another language's."""
    kind = type(value)
    own = kind.__module__ == "triton.runtime.jit" and kind.__name__ in ("JITFunction", "ConstexprFunction")
    return own and is_jit(value)


def is_constexpr(value: object) -> bool:
    """Whether this is a `tl.constexpr` object."""
    return type(value).__name__ == "constexpr" and type(value).__module__.partition(".")[0] == "triton"


def _methods(value: type) -> dict[str, Any]:
    """The functions that a class statement of an enum defines; the rest of it is made by Python."""
    found = {name: getattr(item, "__func__", getattr(item, "fget", item)) for name, item in vars(value).items()}
    return {name: item for name, item in found.items() if isinstance(item, FunctionType) and not _is_foreign(item)}


def _is_foreign(value: object) -> bool:
    """A function or class that is part of the toolchain or of Python, and not of the kernel sources."""
    root = str(getattr(value, "__module__", None) or "").partition(".")[0]
    if is_jit(value) and root != "triton":
        return False  # numpy has none, and the toolchain beside this digest does not say which torch was there
    named = hasattr(value, "__name__") or callable(value)
    return named and (root in _FOREIGN or inspect.isbuiltin(value)) and not is_constexpr(value)


def _is_machinery(value: object) -> bool:
    """An object of Python's own library that does something, such as a logger: no part of what is computed."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    return root in sys.stdlib_module_names and (kind.__module__, kind.__qualname__) not in _RECORDS


def _name(value: object) -> str:
    return "" if isinstance(value, ModuleType) else f"{getattr(value, '__qualname__', type(value).__qualname__)}"


def _raw(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""  # made at run time, such as the methods of a named tuple: its class says all there is


@functools.lru_cache(maxsize=4096)
def normalised(text: str) -> str:
    """Source text without comments, blank lines, trailing spaces and common indentation."""
    text = textwrap.dedent(text)
    lines = text.split("\n")  # as the tokenizer counts; str.splitlines also splits inside strings
    inside: set[int] = set()
    starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (row, column), (end, _) = token.start, token.end
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            lines[row - 1] = lines[row - 1][:column]
        elif kind == "STRING":
            inside.update(range(row, end))  # lines whose end lies inside a string: their spaces are its value
        elif kind.endswith("STRING_START"):
            starts.append(row)
        elif kind.endswith("STRING_END"):
            inside.update(range(starts.pop(), end))
    kept = ((number, line if number in inside else line.rstrip()) for number, line in enumerate(lines, 1))
    return "\n".join(line for number, line in kept if line or number in inside)
