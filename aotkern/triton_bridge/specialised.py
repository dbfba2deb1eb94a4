"""What Triton asks its compiler for, as a request that a trace can hold and a bundle can answer.

Everything is taken from what Triton itself hands over: signature, constants, attributes and options. A request that
cannot be expressed (a tensor descriptor, an object as a constant) is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotkern.build import closure
from aotkern.compileoptions import RESERVED, as_constants
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.spec import ArgumentSpec, Constant, Fixed, FunctionName, Group, Runtime, VariantKey
from aotkern.spec.key import flatten
from aotkern.target import Target

MAIN = ("__main__", "__mp_main__")
"""Names of the program's own module: in the process that was started, and in those that multiprocessing spawns."""
PINNED = ("enable_fp_fusion",)
"""Options that are always named, because their default depends on the environment."""


@dataclass(frozen=True)
class Asked:
    """One request for a binary.

    Attributes:
        name: Module and qualified name of the kernel.
        module: The module that defines it.
        function: The JIT function.
        source: Digest of what it is made of, with the functions that it is given as constants.
        functions: Those functions by qualified name.
        target: What the binary is for.
        arguments: The specialisation.
        options: All compile options in effect.
        changed: Those of them that a build must be told.
        raw: The options as Triton holds them.
    """

    name: str
    module: str
    function: Any
    source: Digest
    functions: Mapping[str, Any]
    target: Target
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    options: Mapping[str, Constant]
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
    raw = vars(backend.parse_options(dict(options or {})))
    defaults = vars(backend.parse_options({}))
    effective, plain = as_constants(raw), as_constants(defaults)
    different = {key: value for key, value in effective.items() if plain.get(key) != value or key in PINNED}
    if reserved := sorted(different.keys() & set(RESERVED)):
        raise InputError.one(name, "options that a build can be given", f"its own {', '.join(reserved)}")
    constants = dict(source.constants)
    functions = {value.__qualname__: value for value in _functions(constants.values())}
    return Asked(
        name=name,
        module=str(module_of(function)),
        function=function,
        source=digest(function, functions),
        functions=functions,
        target=target_of(gpu),
        arguments=_arguments(name, function.arg_names, source.signature, constants, source.attrs),
        options=effective,
        changed=different,
        raw=raw,
    )


def digest(function: Any, functions: Mapping[str, Any]) -> Digest:
    """The digest of a kernel, by the rule of the build.

    It is worked out once for each function and content: Triton's own key of a function changes with its content, but
    two functions may share one where they differ in a default argument that was computed.
    """
    made_of = (function, *(functions[name] for name in sorted(functions)))
    key = tuple((id(item), item.cache_key) for item in made_of)
    if key not in _DIGESTS:
        _DIGESTS[key] = made_of, closure.digest(made_of)
    return _DIGESTS[key][1]


_DIGESTS: dict[object, tuple[tuple[Any, ...], Digest]] = {}
"""By identity and Triton's key, with the functions themselves, so that no other object gets the identity."""


def module_of(function: Any) -> str:
    """The module that defines a kernel; a program that was started by its file is the module of that file."""
    module = str(function.module)
    if module not in MAIN:
        return module
    main = function.__globals__
    spec = main.get("__spec__")
    return (
        str(spec.name) if spec is not None else str(main.get("__file__", module)).rpartition("/")[2].removesuffix(".py")
    )


def name_of(source: Any) -> str:
    """Module and qualified name of the kernel that is compiled, or the name of an IR file."""
    function = getattr(source, "fn", None)
    if function is None:
        return str(getattr(source, "name", source)).rpartition("/")[2]
    return f"{module_of(function)}.{function.__qualname__}"


def _functions(values: Any) -> Iterator[Any]:
    for value in values:
        held = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        if isinstance(held, (list, tuple)):
            yield from _functions(held)
        elif hasattr(held, "cache_key") and hasattr(held, "get_capture_scope"):
            yield held


def _arguments(
    name: str,
    names: Sequence[str],
    signature: Mapping[str, Any],
    constants: Mapping[tuple[int, ...], Any],
    attributes: Mapping[Any, Any],
) -> tuple[tuple[str, ArgumentSpec], ...]:
    classes: dict[tuple[int, ...], set[str]] = {
        (names.index(path),) if isinstance(path, str) else tuple(path): {str(attribute[0]) for attribute in found}
        for path, found in attributes.items()
    }

    def spec(kind: Any, path: tuple[int, ...], where: str) -> ArgumentSpec:
        if isinstance(kind, (list, tuple)):
            return Group(tuple(spec(item, (*path, at), f"{where}[{at}]") for at, item in enumerate(kind)))
        if kind == "constexpr":
            return Fixed(Constant.of(constants.get(path), where))
        found = classes.get(path, set())
        try:
            return Runtime(str(kind), divisible="tt.divisibility" in found, small="tt.pointer_range" in found)
        except InputError as error:
            raise InputError(error.within(where)) from error

    return tuple(
        (parameter, spec(signature.get(parameter, "constexpr"), (at,), f"{name}: {parameter}"))
        for at, parameter in enumerate(names)
    )


def target_of(gpu: Any) -> Target:
    """Triton's target object as a target.

    Raises:
        InputError: aotkern does not know it.
    """
    return Target.parse(f"{gpu.backend}:{gpu.arch}")


def fixed(key: VariantKey, functions: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The constants of a variant by path, as Triton holds them: functions by the objects that they name."""
    for at, (_, spec) in enumerate(key.arguments):
        for path, leaf in flatten(spec, (at,)):
            if isinstance(leaf, Fixed):
                value = leaf.constant.value
                yield path, functions.get(value.name) if isinstance(value, FunctionName) else value
