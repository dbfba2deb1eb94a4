"""How a kernel file declares the variants that are to be built.

A `Kernel` binds a `@triton.jit` function to its `Space`s; a space says, for some targets, what each argument may be.
The variants of a space are all combinations of its choices, with three axes that move together instead of multiplying:
every pointer whose storage is "both", every pointer whose alignment is "both", and the rows of each `Joint`.

    KERNELS = (
        Kernel(
            add,
            Space(
                targets=("gfx942", "gfx950", "cuda:90"),
                arguments={"x": Pointer("fp32"), "out": Pointer("fp32"), "n": Int(), "BLOCK": Constexpr(128, 1024)},
                options={"num_warps": 4},
            ),
        ),
    )
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from aotkern.errors import InputError
from aotkern.spec.key import Runtime

StorageClass = Literal["small", "any", "both"]
Alignment = Literal["aligned", "any", "both"]
IntegerClass = Literal["1", "16", "any"]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer argument.

    Attributes:
        element: Element type: `fp32`, `bf16`, `fp8e4nv`, `u8`, ...
        storage: AMD only. "small": the whole storage is at most 2^31 - 1 bytes, which allows 32-bit offsets; "any"
            makes no such promise and serves every storage; "both" (the default) builds the two. All pointers of a space
            that say "both" are small together or not.
        alignment: "aligned" (a multiple of 16 bytes), "any", or "both" (moving together, as for `storage`).
        const: Whether the kernel declares the pointer as pointing to constant data.
    """

    element: str
    storage: StorageClass = "both"
    alignment: Alignment = "aligned"
    const: bool = False

    def __post_init__(self) -> None:
        Runtime(self.type)
        _one_of("Pointer.storage", self.storage, ("small", "any", "both"))
        _one_of("Pointer.alignment", self.alignment, ("aligned", "any", "both"))

    @property
    def type(self) -> str:
        """The pointer type as it stands in a key."""
        return ("*k" if self.const else "*") + self.element


@dataclass(frozen=True, slots=True)
class Int:
    """A run-time integer.

    Attributes:
        type: `i32`, `i64`, `u64`, ...
        classes: Which specialisations to build: "1" (folded into the code), "16" (a multiple of 16) and "any", which
            assumes nothing and serves every value. A parameter that Triton is told not to specialise takes ("any",).
    """

    type: str = "i32"
    classes: tuple[IntegerClass, ...] = ("16", "any")

    def __post_init__(self) -> None:
        if Runtime(self.type).type[0] not in "iu" or self.type == "u1":
            raise InputError.one("Int.type", "an integer type", repr(self.type))
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise InputError.one("Int.classes", "one or more distinct classes", repr(self.classes))
        for name in self.classes:
            _one_of("Int.classes", name, ("1", "16", "any"))


@dataclass(frozen=True, slots=True)
class Float:
    """A run-time float; a Python float reaches the kernel as fp32 unless its parameter is annotated otherwise."""

    type: str = "fp32"

    def __post_init__(self) -> None:
        if Runtime(self.type).type not in ("fp16", "bf16", "fp32", "fp64"):
            raise InputError.one("Float.type", "fp16, bf16, fp32 or fp64", repr(self.type))


@dataclass(frozen=True, slots=True)
class Bool:
    """A run-time bool (`u1`)."""


@dataclass(frozen=True, slots=True)
class Null:
    """An argument that is None; it is not a parameter of the binary."""


@dataclass(frozen=True, slots=True, init=False)
class Constexpr:
    """A compile-time value: one variant for each of `values` (None, bool, int, float, str, dtype, function, tuple)."""

    values: tuple[Any, ...]

    def __init__(self, *values: object) -> None:
        if not values:
            raise InputError.one("Constexpr", "one or more values", "none")
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, slots=True, init=False)
class Tuple:
    """A tuple argument, one choice for each item."""

    items: tuple[Choice, ...]

    def __init__(self, *items: Choice) -> None:
        object.__setattr__(self, "items", items)


Choice = Union[Pointer, Int, Float, Bool, Null, Constexpr, Tuple]


@dataclass(frozen=True, slots=True)
class Joint:
    """Arguments whose choices belong together: each row gives one choice, or one plain constant, for each name.

    Attributes:
        names: The arguments (or `options.NAME` for a compile option that goes with them).
        rows: The combinations to build.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        bad = [row for row in self.rows if len(row) != len(self.names)]
        if not self.names or not self.rows or bad:
            found = repr(bad[0]) if bad else f"{len(self.rows)} rows"
            raise InputError.one(f"Joint{self.names!r}", f"rows of {len(self.names)} values", found[:100])


@dataclass(frozen=True, slots=True)
class Space:
    """The variants of a kernel for some targets.

    Attributes:
        targets: Targets by name.
        arguments: A choice for each parameter that is not in a `Joint`; a constexpr parameter with a default may be
            left out. A plain value stands for `Constexpr(value)`.
        joint: Groups of arguments that take their values row by row.
        options: Compile options (`num_warps`, `num_stages`, `waves_per_eu`, ...).
    """

    targets: tuple[str, ...]
    arguments: Mapping[str, Any]
    joint: tuple[Joint, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, init=False)
class Kernel:
    """A kernel with its declaration.

    Attributes:
        function: The `@triton.jit` function.
        spaces: Its variant spaces; variants that several spaces name are built once.
        name: By which callers ask for it; the function's own name unless given.
    """

    function: Any
    spaces: tuple[Space, ...]
    name: str

    def __init__(self, function: Any, *spaces: Space, name: str | None = None) -> None:
        inner, depth = function, 0
        while not hasattr(inner, "__name__") and hasattr(inner, "fn"):
            inner, depth = inner.fn, depth + 1
        if depth or not hasattr(function, "__name__"):
            what = type(function).__name__
            found = f"{what}: declare {'.'.join(['it', *['fn'] * depth])}, the function inside" if depth else what
            raise InputError.one(f"Kernel({name or getattr(inner, '__name__', what)})", "a @triton.jit function", found)
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "spaces", spaces)
        object.__setattr__(self, "name", name or function.__name__)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel function, as its call signature has it.

    Attributes:
        name: Its name.
        constexpr: Whether it is annotated `tl.constexpr`.
        default: Canonical text of its default, or None when it has none.
        specialised: False when Triton is told not to specialise it (`do_not_specialize`).
        type: The type that its annotation fixes (`i64`, `fp16`, ...), or nothing.
    """

    name: str
    constexpr: bool = False
    default: str | None = None
    specialised: bool = True
    type: str = ""


def _one_of(where: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError.one(where, f"one of {', '.join(allowed)}", repr(value))
