"""What Triton asks its compiler for, as a request that a trace can hold and a bundle can answer.

Everything is taken from what Triton itself hands over: signature, constants, attributes and options. A request that
cannot be expressed (a tensor descriptor, an object as a constant) is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern import closure
from aotkern.compileoptions import RESERVED, as_constants
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.influences import BUILD_DEFAULTS
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Runtime
from aotkern.target import Backend, Target
from aotkern.triton_bridge import knobs

PINNED = ("enable_fp_fusion",)
"""Options that are always named, because their default depends on the environment."""


@dataclass(frozen=True)
class Asked:
    """One request for a binary.

    Attributes:
        name: Module and qualified name of the kernel.
        module: The module that defines it.
        function: The JIT function.
        handed: The JIT functions among its constants, each once.
        source: Digest of what it is made of.
        target: What the binary is for.
        arguments: The specialisation.
        options: All compile options in effect.
        settings: Knobs and variables that differ from those of a plain build; see `aotkern.influences`.
        changed: The options and settings that a build must be told.
        raw: The options as Triton holds them.
    """

    name: str
    module: str
    function: Any
    handed: tuple[Any, ...]
    source: Digest
    target: Target
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    options: Mapping[str, Constant]
    settings: Mapping[str, Constant]
    changed: Mapping[str, Constant]
    raw: Mapping[str, Any]


def read(source: Any, target: Any, options: Mapping[str, Any] | None) -> Asked:
    """The request in the arguments of `triton.compile`.

    Raises:
        InputError: It cannot be expressed; the problem says why.
    """
    from triton.compiler.compiler import make_backend  # noqa: PLC0415 - the caller's own Triton
    from triton.runtime.driver import driver  # noqa: PLC0415

    name = name_of(source)
    if type(source).__name__ != "ASTSource":
        raise InputError.one(name, "a kernel written in Triton", f"{type(source).__name__}")
    function = source.fn
    gpu = driver.active.get_current_target() if target is None else target
    backend = make_backend(gpu)
    there = target_of(gpu)
    closure.forget()  # what a function or a class reads may have changed since it was last looked at
    settings = knobs.settings(there.backend, name)
    raw = vars(backend.parse_options(dict(options or {})))
    defaults = vars(backend.parse_options({}))
    effective, plain = as_constants(raw), {**as_constants(defaults), **BUILD_DEFAULTS}
    different = {key: value for key, value in effective.items() if plain.get(key) != value or key in PINNED}
    if reserved := sorted(different.keys() & set(RESERVED)):
        raise InputError.one(name, "options that a build can be given", f"its own {', '.join(reserved)}")
    return Asked(
        name=name,
        module=str(module_of(function)),
        function=function,
        handed=tuple({id(value): value for value in _functions(source.constants)}.values()),
        source=digest(function),
        target=there,
        arguments=_arguments(name, source, there.backend),
        options=effective,
        settings=settings,
        changed={**different, **settings},
        raw=raw,
    )


def _functions(value: object) -> Iterator[Any]:
    """The JIT functions in constants, and in tuples and `tl.constexpr` objects of them."""
    inner: Iterable[object] = ()
    if closure.is_jit(value):
        yield value
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    elif closure.is_constexpr(value):
        inner = (getattr(value, "value", None),)
    for item in inner:
        yield from _functions(item)


def digest(function: Any) -> Digest:
    """The digest of a kernel, by the rule of the build.

    It is worked out anew for each request, because what a kernel reads may change; Triton's own key is not asked for,
    which would be kept from then on.
    """
    return closure.digest((function,))


def module_of(function: Any) -> str:
    """The module that defines a kernel; a program that was started by its file is the module of that file."""
    return closure.function_module(function)


def name_of(source: Any) -> str:
    """Module and qualified name of the kernel that is compiled, or the name of an IR file."""
    function = getattr(source, "fn", None)
    if function is None:
        return str(getattr(source, "name", source)).rpartition("/")[2]
    return f"{module_of(function)}.{function.__qualname__}"


_DIVISIBLE = ("tt.divisibility", 16)
_SMALL = ("tt.pointer_range", 32)
_READ = {Backend.HIP: {_DIVISIBLE, _SMALL}, Backend.CUDA: {_DIVISIBLE}}
"""The attributes that a key can say, with their values: those that Triton's own binder gives an argument."""


def _arguments(name: str, source: Any, backend: Backend) -> tuple[tuple[str, ArgumentSpec], ...]:
    names: Sequence[str] = source.fn.arg_names
    signature: Mapping[str, Any] = source.signature
    constants: dict[tuple[int, ...], Any] = {_path(names, path): value for path, value in source.constants.items()}
    attributes = {_path(names, path): _attributes(found) for path, found in source.attrs.items()}
    fixed: set[tuple[int, ...]] = set()

    def spec(kind: Any, path: tuple[int, ...], where: str) -> ArgumentSpec:
        if type(kind) in (list, tuple):
            return Group(tuple(spec(item, (*path, at), f"{where}[{at}]") for at, item in enumerate(kind)))
        if isinstance(kind, tuple):
            found = f"a {type(kind).__module__}.{type(kind).__qualname__}"
            raise InputError.one(where, "a plain tuple, where its items are run-time arguments", found)
        if kind == "constexpr":
            # The compiler ignores attributes of constants; Triton 3.6 makes some of the letters of a text.
            fixed.add(path)
            return Fixed(Constant.of(constants.pop(path, None), where))
        given = attributes.pop(path, set())
        if unknown := given - _READ[backend]:
            raise InputError.one(where, f"attributes among {_say(_READ[backend])}", _say(unknown))
        try:
            return Runtime(str(kind), divisible=_DIVISIBLE in given, small=_SMALL in given)
        except InputError as error:
            raise InputError(error.within(where)) from error

    found = tuple(
        (parameter, spec(signature.get(parameter, "constexpr"), (at,), f"{name}: {parameter}"))
        for at, parameter in enumerate(names)
    )
    # The compiler would fold such a value in and still take the parameter, as no call of a JIT function does.
    both = [*constants, *(path for path, given in attributes.items() if given and not _within(path, fixed))]
    if both:
        parts = ", ".join(dict.fromkeys(names[path[0]] for path in both))
        raise InputError.one(name, "a constant or a run-time value for each parameter", f"both for {parts}")
    return found


def _path(names: Sequence[str], path: Any) -> tuple[int, ...]:
    return (names.index(path),) if isinstance(path, str) else tuple(path)


def _within(path: tuple[int, ...], holders: set[tuple[int, ...]]) -> bool:
    return any(path[: len(holder)] == holder for holder in holders)


def _attributes(found: Iterable[Sequence[Any]]) -> set[tuple[str, Any]]:
    return {(str(name), value) for name, value in found}


def _say(attributes: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(attributes, key=str)) or "none"


def target_of(gpu: Any) -> Target:
    """Triton's target object as a target.

    Raises:
        InputError: aotkern does not know it, or its waves have another size than the target's.
    """
    found = Target.parse(f"{gpu.backend}:{gpu.arch}")
    if int(gpu.warp_size) != found.limits.wave:
        raise InputError.one(f"target {found}", f"waves of {found.limits.wave} lanes", f"{gpu.warp_size}")
    return found
