"""Operands: from their spelling to functions that fetch them from `Waves`.

An operand is read as one of a few kinds (`Kind`): a 32-bit integer, a float, a pair of registers, a shift amount and so
on. `Operands` knows how many registers the kernel declared and refuses every other one when the code is bound, which
is before it runs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aotkern.emulator.waves import EXEC, LANES, M0, VCC, Array, Waves

Kind = Literal["u32", "i32", "f32", "u64", "i64", "f64", "u16", "i16", "f16", "u24", "i24", "u4", "u5", "u6", "u8"]
Fetch = Callable[[Waves], Array]

DTYPES: dict[Kind, type[np.generic]] = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint32,
    "i16": np.int32,
    "f16": np.float16,
    "u24": np.uint32,
    "i24": np.int32,
    "u4": np.uint32,
    "u5": np.uint32,
    "u6": np.uint64,
    "u8": np.uint32,
}
"""The dtype in which each kind is computed. A masked kind (u24, shift amounts) is computed in a full word."""

_MASKS: dict[Kind, int] = {"u16": 0xFFFF, "u24": 0xFFFFFF, "u8": 0xFF, "u4": 15, "u5": 31, "u6": 63}
_SIGNED: dict[Kind, int] = {"i16": 16, "i24": 8}  # left, then right by so much
_WIDE = ("u64", "i64", "f64")
_NAMED = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (102, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
}
_TTMP = 108
_REGISTER = re.compile(r"(ttmp|[vas])(?:(\d+)|\[(\d+):(\d+)\])")
_INVERSE_TWO_PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
SHARED_BASE, PRIVATE_BASE = 0x0001_0000_0000_0000, 0x0002_0000_0000_0000
"""Where the apertures of LDS and scratch begin in the flat address space; no process has memory there."""


class OperandError(Exception):
    """An operand that cannot be what it is spelt as; the program adds where it stands."""


class UndeclaredError(OperandError):
    """A register beyond those that the kernel declares: the code is at fault."""


@dataclass(frozen=True, slots=True)
class Register:
    """A run of registers: `file` is `v` (AGPRs included, by position) or `s`."""

    file: Literal["v", "s"]
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as spelt: an integer, or a float when `spelling` has a point."""

    spelling: str

    def bits(self, kind: Kind) -> int:
        """The bits that this constant puts on an operand of a kind."""
        wide = kind in _WIDE
        if "." in self.spelling:
            return self._float_bits("f16" if kind in ("f16", "u16", "i16") else "f64" if wide else "f32")
        value = int(self.spelling, 0)
        if not wide:
            return value & 0xFFFFFFFF
        literal = self.spelling.lower().startswith("0x")
        if kind == "f64" and literal:  # a literal gives the upper half of a double
            return (value << 32) & 0xFFFF_FFFF_FFFF_FFFF if value < 1 << 32 else value
        if kind == "i64" and literal and value >> 31 == 1:
            value -= 1 << 32
        return value & 0xFFFF_FFFF_FFFF_FFFF

    def _float_bits(self, width: Literal["f16", "f32", "f64"]) -> int:
        if self.spelling.lstrip("-").startswith("0.15915494"):
            return _INVERSE_TWO_PI[width]
        code, whole = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}[width]
        bits: int = struct.unpack(whole, struct.pack(code, float(self.spelling)))[0]
        return bits


@dataclass(frozen=True, slots=True)
class Special:
    """A value that hardware supplies: `scc`, `src_vccz`, `src_execz`, an aperture."""

    name: str


@dataclass(frozen=True, slots=True)
class Spelling:
    """An operand with its sign modifiers taken off: `-|v3|` is `v3`, negated, absolute."""

    body: str
    negate: bool
    absolute: bool
    extend: bool

    @classmethod
    def parse(cls, text: str) -> Spelling:
        """Take the modifiers off."""
        extend = text.startswith("sext(")
        text = text[5:-1] if extend else text
        negate = bool(re.match(r"-[|vsae]|-ttmp|-m0|neg\(", text))
        text = text[4:-1] if text.startswith("neg(") else text[1:] if negate else text
        absolute = text.startswith("|")
        return cls(text.strip("|"), negate, absolute, extend)


@dataclass(frozen=True, slots=True)
class Operands:
    """Registers that a kernel declared, and how to reach them.

    Attributes:
        vgprs: Architectural VGPRs; `v` registers from here on do not exist for the kernel.
        agprs: AGPRs, which lie behind the VGPRs in the register file.
        sgprs: SGPRs that are addressed by number.
        arch: `gfx942` or `gfx950`, where instructions of one name differ.
    """

    vgprs: int
    agprs: int
    sgprs: int = 102
    arch: str = "gfx950"

    def resolve(self, text: str) -> Register | Constant | Special:
        """What an operand without sign modifiers is.

        Raises:
            OperandError: A register that the kernel did not declare, or no operand at all.
        """
        if text in _NAMED:
            first, count = _NAMED[text]
            return Register("s", first, count)
        match = _REGISTER.fullmatch(text)
        if match is None:
            if text == "scc" or text.startswith("src_"):
                return Special(text)
            if re.fullmatch(r"-?(0x[0-9a-f]+|\d+(\.\d+)?)", text):
                return Constant(text)
            raise OperandError(f"unknown operand {text!r}")
        first = int(match[2] or match[3])
        count = 1 if match[2] else int(match[4]) - first + 1
        limit = {"v": self.vgprs, "a": self.agprs, "s": self.sgprs, "ttmp": 16}[match[1]]
        if first + count > limit:
            raise UndeclaredError(f"{text} is beyond the {limit} registers that the kernel declares")
        offset = {"v": 0, "a": self.vgprs, "s": 0, "ttmp": _TTMP}[match[1]]
        return Register("v" if match[1] in "va" else "s", first + offset, count)

    def vector(self, text: str, count: int = 1) -> int:
        """The position of a vector operand's first register; it must have `count` of them."""
        found = self.resolve(text)
        if not isinstance(found, Register) or found.file != "v" or found.count != count:
            raise OperandError(f"expected {count} vector registers, found {text}")
        return found.first

    def scalar(self, text: str, count: int = 1) -> int:
        """The number of a scalar operand's first register; it must have `count` of them, pairs even."""
        found = self.resolve(text)
        if not isinstance(found, Register) or found.file != "s" or found.count != count:
            raise OperandError(f"expected {count} scalar registers, found {text}")
        if count > 1 and found.first % 2:
            raise OperandError(f"{text} begins at an odd register")
        return found.first

    def fetch(self, text: str, kind: Kind) -> Fetch:
        """A function that reads a vector instruction's source, `(waves, 64)` or something that broadcasts to it."""
        spelling = Spelling.parse(text)
        if spelling.extend:
            raise OperandError(f"sign extension outside SDWA: {text}")
        plain = self._plain(spelling.body, kind)
        return signed(plain, spelling, kind) if spelling.negate or spelling.absolute else plain

    def fetch_scalar(self, text: str, kind: Kind) -> Fetch:
        """A function that reads a scalar instruction's source, `(waves,)` or a scalar array."""
        found = self.resolve(text)
        if isinstance(found, Constant):
            return _constant(found, kind)
        if isinstance(found, Special):
            return _special(found.name, kind, column=False)
        if found.file != "s":
            raise OperandError(f"{text} is no scalar operand")
        return _scalar_register(found, text, kind, column=False)

    def _plain(self, text: str, kind: Kind) -> Fetch:
        found = self.resolve(text)
        if isinstance(found, Constant):
            return _constant(found, kind)
        if isinstance(found, Special):
            return _special(found.name, kind, column=True)
        if found.file == "s":
            return _scalar_register(found, text, kind, column=True)
        if found.count != (2 if kind in _WIDE else 1):
            raise OperandError(f"{text} has {found.count} registers where {kind} is read")
        return vector_register(found.first, kind)


def signed(plain: Fetch, spelling: Spelling, kind: Kind) -> Fetch:
    """`plain` with the sign modifiers of a float operand; for other 32-bit kinds they act on bit 31."""
    negate, absolute = spelling.negate, spelling.absolute
    if kind in ("f16", "f32", "f64"):

        def float_sign(w: Waves) -> Array:
            value = np.abs(plain(w)) if absolute else plain(w)
            return np.asarray(np.negative(value) if negate else value)

        return float_sign
    if kind != "u32":
        raise OperandError(f"sign modifier on an operand that is read as {kind}")

    def bit_sign(w: Waves) -> Array:
        value = plain(w) & np.uint32(0x7FFFFFFF) if absolute else plain(w)
        return np.asarray(value ^ np.uint32(0x80000000) if negate else value)

    return bit_sign


def pair(low: Array, high: Array, kind: Kind) -> Array:
    """Two 32-bit halves as 64-bit values."""
    joined = np.empty((*low.shape, 2), np.uint32)
    joined[..., 0] = low
    joined[..., 1] = high
    return joined.view(DTYPES[kind])[..., 0]


def narrowed(kind: Kind) -> Callable[[Array], Array] | None:
    """How a uint32 becomes a value of a narrow kind; None when the kind is as wide as the register."""
    if kind in _MASKS:
        mask = np.uint32(_MASKS[kind])
        if kind == "u6":
            return lambda bits: (bits & mask).astype(np.uint64)
        return lambda bits: bits & mask
    if kind in _SIGNED:
        shift = np.int32(_SIGNED[kind])
        return lambda bits: (bits.view(np.int32) << shift) >> shift
    if kind == "f16":
        return lambda bits: bits.astype(np.uint16).view(np.float16)
    return None


def vector_register(index: int, kind: Kind) -> Fetch:
    """A function that reads a vector register, or two of them for a 64-bit kind."""
    if kind in _WIDE:
        return lambda w: pair(w.vector[index], w.vector[index + 1], kind)
    if kind == "u32":
        return lambda w: w.vector[index]
    if kind == "f32":
        return lambda w: w.vector_f32[index]
    if kind == "i32":
        return lambda w: w.vector_i32[index]
    narrow = narrowed(kind)
    if narrow is None:
        raise OperandError(f"no way to read a register as {kind}")
    return lambda w: narrow(w.vector[index])


def _constant(found: Constant, kind: Kind) -> Fetch:
    bits = found.bits(kind)
    wide = kind in _WIDE
    value = np.array([bits], np.uint64 if wide else np.uint32)
    narrow = narrowed(kind)
    value = narrow(value) if narrow else value.view(DTYPES[kind])
    fixed = value.reshape(())
    return lambda _: fixed


def _scalar_register(found: Register, text: str, kind: Kind, *, column: bool) -> Fetch:
    half, place = found.first % 2, found.first // 2
    new = (slice(None), None) if column else slice(None)
    if kind in _WIDE:
        if found.count != 2 or half:
            raise OperandError(f"{text} is read as {kind}")
        dtype = DTYPES[kind]
        return lambda w: w.scalar_u64[place].view(dtype)[new]
    if found.count != 1:
        raise OperandError(f"{text} is read as {kind}")
    at = (place, slice(None), half, None) if column else (place, slice(None), half)
    if kind == "u32":
        return lambda w: w.scalar[at]
    if kind == "f32":
        return lambda w: w.scalar_f32[at]
    if kind == "i32":
        return lambda w: w.scalar_i32[at]
    narrow = narrowed(kind)
    if narrow is None:
        raise OperandError(f"no way to read {text} as {kind}")
    return lambda w: narrow(w.scalar[at])


def _special(name: str, kind: Kind, *, column: bool) -> Fetch:
    bases = {"src_shared_base": SHARED_BASE, "src_private_base": PRIVATE_BASE}
    if name in bases:
        bits = bases[name] if kind in _WIDE else bases[name] >> 32
        fixed = np.array(bits, DTYPES[kind])
        return lambda _: fixed
    flags: dict[str, Fetch] = {
        "scc": lambda w: w.scc,
        "src_scc": lambda w: w.scc,
        "src_vccz": lambda w: w.scalar_u64[VCC // 2] == 0,
        "src_execz": lambda w: w.scalar_u64[EXEC // 2] == 0,
    }
    if name not in flags:
        raise OperandError(f"unknown operand {name!r}")
    flag, dtype = flags[name], DTYPES[kind]
    return (lambda w: flag(w).astype(dtype)[:, None]) if column else (lambda w: flag(w).astype(dtype))


def full(value: Array, w: Waves) -> Array:
    """`value` broadcast to every lane."""
    return np.broadcast_to(value, (w.count, LANES))
