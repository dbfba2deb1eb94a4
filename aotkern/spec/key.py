"""Variant keys: which binary of which kernel, written in one canonical text.

    add[hip:gfx942](x:*fp32:DS,out:*fp32:DS,n:i32:D,shape(=1,:i32),BLOCK=128){num_warps=4}

Kernel name, target, every parameter of the kernel in its own order, then the options that were asked for in
alphabetical order. A parameter is a run-time value (`:type`, then `:D` when it is assumed to be a multiple of 16, `:S`
when the storage behind a pointer is assumed to be at most 2 GiB - 1, `:DS` for both), a constant (`=text`), or a tuple
of these. `VariantKey.parse` and `str` are inverses.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from aotkern.errors import InputError
from aotkern.spec.constant import Constant, Named, named, scan
from aotkern.target import Target

INTEGER_TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOAT_TYPES = ("fp16", "bf16", "fp32", "fp64")
FP8_TYPES = ("fp8e4nv", "fp8e4b8", "fp8e4b15", "fp8e5", "fp8e5b16")
SCALAR_TYPES = ("u1", *INTEGER_TYPES, *FLOAT_TYPES)
ELEMENT_TYPES = ("i1", *SCALAR_TYPES, *FP8_TYPES)

_KERNEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TYPE = re.compile(r"(\*k?)?([a-z0-9]+)", re.ASCII)
_FLAT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)([:=][^,()"]+)(?=[,)])', re.ASCII)
"""A parameter that is neither a tuple nor holds a text: nearly every one."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A value that arrives with each launch, and what the binary assumes of it.

    Attributes:
        type: `i32`, `fp32`, `u1`, ... or `*fp8e4nv` for a pointer (`*k` marks a pointer to constant data).
        divisible: The integer, or the address, is a multiple of 16.
        small: AMD pointers only: the whole storage behind the pointer is at most 2^31 - 1 bytes.
    """

    type: str
    divisible: bool = False
    small: bool = False

    def __post_init__(self) -> None:
        match = _TYPE.fullmatch(self.type)
        allowed = ELEMENT_TYPES if match and match[1] else SCALAR_TYPES
        if match is None or match[2] not in allowed:
            raise InputError.one(
                "argument type", f"one of {', '.join(allowed)}, or a pointer '*' to one", repr(self.type)
            )
        if self.small and not self.is_pointer:
            raise InputError.one("argument class", "S (small storage) on pointers only", repr(self.type))

    @property
    def is_pointer(self) -> bool:
        """Whether the value is an address."""
        return self.type.startswith("*")

    @property
    def element(self) -> str:
        """The type of what a pointer points to, or of the scalar itself."""
        return self.type.removeprefix("*k").removeprefix("*") if self.is_pointer else self.type

    @property
    def attributes(self) -> str:
        """The class letters, as Triton writes them: `D`, `S`, `DS` or nothing."""
        return "D" * self.divisible + "S" * self.small

    def __str__(self) -> str:
        return f":{self.type}:{self.attributes}" if self.attributes else f":{self.type}"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A parameter compiled into the binary: a constexpr, an integer known to be 1, or None."""

    constant: Constant

    def __str__(self) -> str:
        return f"={self.constant}"


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple argument; each item is specialised by itself."""

    items: tuple[ArgumentSpec, ...]

    def __str__(self) -> str:
        return f"({','.join(map(str, self.items))})"


ArgumentSpec = Union[Runtime, Fixed, Group]


def flatten(spec: ArgumentSpec, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Runtime | Fixed]]:
    """The leaves of one argument in order, each with its path of tuple positions."""
    if isinstance(spec, Group):
        for index, item in enumerate(spec.items):
            yield from flatten(item, (*path, index))
    else:
        yield path, spec


@dataclass(frozen=True, slots=True)
class VariantKey:
    """One kernel compiled for one target with one specialisation and one set of options.

    Attributes:
        kernel: The declared name.
        target: What the code object is for.
        arguments: Every parameter of the kernel, in its order.
        options: The options asked for, in alphabetical order; the manifest records beside them what took effect.
    """

    kernel: str
    target: Target
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    options: tuple[tuple[str, Constant], ...] = ()

    @classmethod
    def parse(cls, text: str, where: str = "variant key") -> VariantKey:
        """Read a key back from its canonical text.

        Raises:
            InputError: Not a key, or not in its canonical spelling.
        """
        reader = _Reader(text, where)
        key = reader.key()
        if not reader.exact and str(key) != text:
            raise InputError.one(where, f"the canonical spelling {key}"[:400], repr(text)[:400])
        return key

    def __str__(self) -> str:
        arguments = ",".join(f"{name}{spec}" for name, spec in self.arguments)
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.kernel}[{self.target}]({arguments})" + (f"{{{options}}}" if options else "")

    @property
    def parameters(self) -> tuple[tuple[tuple[int, ...], Runtime], ...]:
        """The run-time parameters of the binary in order, by path: argument position, then tuple positions."""
        return tuple(
            (path, leaf)
            for index, (_, spec) in enumerate(self.arguments)
            for path, leaf in flatten(spec, (index,))
            if isinstance(leaf, Runtime)
        )


def named_in(key: VariantKey) -> tuple[Named, ...]:
    """The functions and classes that the constants of a variant name, each once, in the order of the parameters."""
    leaves = (leaf for _, spec in key.arguments for _, leaf in flatten(spec))
    return tuple(dict.fromkeys(of for leaf in leaves if isinstance(leaf, Fixed) for of in named(leaf.constant.value)))


@functools.lru_cache(maxsize=4096)
def _flat(text: str) -> ArgumentSpec | None:
    """The canonical spelling of one assumption, or None; the keys of a kernel repeat few of them."""
    reader = _Reader(text, "")
    try:
        spec = reader.argument()
    except InputError:
        return None
    return spec if str(spec) == text else None


class _Reader:
    """A cursor over the text of one key.

    Attributes:
        exact: Whether all that was read so far is known to be in its canonical spelling.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where, self.at, self.exact = text, where, 0, True

    def fail(self, expected: str) -> InputError:
        found = repr(self.text[self.at : self.at + 40])
        return InputError.one(self.where, f"{expected} at column {self.at + 1}", found)

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.fail(what)
        self.at = match.end()
        return match[0]

    def accept(self, mark: str) -> bool:
        found = self.text.startswith(mark, self.at)
        self.at += len(mark) * found
        return found

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.fail(f"'{mark}'")

    def constant(self) -> Constant:
        start = self.at
        value, self.at = scan(self.text, self.at, self.where)
        constant = Constant.of(value, self.where)
        self.exact = self.exact and constant.text == self.text[start : self.at]
        return constant

    def parameter(self) -> tuple[str, ArgumentSpec]:
        flat = _FLAT.match(self.text, self.at)
        spec = _flat(flat[2]) if flat else None
        if flat is None or spec is None:
            self.exact = False
            return self.take(_NAME, "a parameter name"), self.argument()
        self.at = flat.end()
        return flat[1], spec

    def argument(self, depth: int = 0) -> ArgumentSpec:
        if self.accept("="):
            return Fixed(self.constant())
        if self.accept(":"):
            kind = self.take(_TYPE, "an argument type")
            letters = self.take(re.compile("DS|D|S"), "D, S or DS") if self.accept(":") else ""
            return Runtime(kind, "D" in letters, "S" in letters)
        self.expect("(")
        if depth > 50:
            raise self.fail("tuples nested at most 50 deep")
        items: list[ArgumentSpec] = []
        while not self.accept(")"):
            if items:
                self.expect(",")
            items.append(self.argument(depth + 1))
        return Group(tuple(items))

    def key(self) -> VariantKey:
        kernel = self.take(_KERNEL, "a kernel name")
        self.expect("[")
        named = self.take(re.compile(r"[^\]]+"), "a target")
        target = Target.parse(named, self.where)
        self.exact = self.exact and str(target) == named
        self.expect("]")
        self.expect("(")
        arguments: list[tuple[str, ArgumentSpec]] = []
        while not self.accept(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.parameter())
        options: list[tuple[str, Constant]] = []
        if self.accept("{"):
            while not self.accept("}"):
                if options:
                    self.expect(",")
                name = self.take(_NAME, "an option name")
                self.expect("=")
                options.append((name, self.constant()))
        # Braces around nothing are not how a key without options is written.
        self.exact = self.exact and not self.text.endswith("{}")
        if self.at != len(self.text) or options != sorted(options, key=lambda pair: pair[0]):
            raise self.fail("options in alphabetical order and then the end of the key")
        return VariantKey(kernel, target, tuple(arguments), tuple(options))
