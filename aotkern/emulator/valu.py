"""How a vector ALU instruction is bound: sources, encodings (plain, SDWA, DPP), result.

The families of vector instructions are tables of `Alu` values: the kinds of result and sources and a function in the
manner of a numpy ufunc, `function(*sources, out=..., where=...)`. `bind_alu` makes the step that runs one instruction,
as plain as its modifiers allow: without any, one call of the function writes the destination in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import (
    DTYPES,
    Fetch,
    Kind,
    OperandError,
    Operands,
    Spelling,
    narrowed,
    signed,
    vector_register,
)
from aotkern.emulator.waves import LANES, Array, Mask, Waves

Step = Callable[[Waves], None]
Function = Callable[..., Any]
Bind = Callable[[Instruction, Operands], Step]

_SELECTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16)}
_SELECTS["WORD_1"] = (16, 16)
_OMOD = {"2": 2.0, "4": 4.0}
_RANGES = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1), "u16": (0, 2**16 - 1), "i16": (-(2**15), 2**15 - 1)}
_DPP_ROWS = ("row_shl", "row_shr", "row_ror", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_bcast")
DPP_MODIFIERS = frozenset(
    (*_DPP_ROWS, "quad_perm", "row_mirror", "row_half_mirror", "row_mask", "bank_mask", "bound_ctrl", "row_newbcast")
)
SDWA_MODIFIERS = frozenset(("dst_sel", "dst_unused", "src0_sel", "src1_sel"))
ALU_MODIFIERS = frozenset(("clamp", "mul", "div", "op_sel")) | DPP_MODIFIERS | SDWA_MODIFIERS


@dataclass(frozen=True, slots=True)
class Alu:
    """What a vector instruction computes.

    Attributes:
        result: Kind of the destination.
        sources: Kinds of the sources, in the order in which they are spelt.
        function: Called with the sources, `out` and `where`, like a ufunc.
        order: Positions of the sources as the function takes them, where that is not as they are spelt.
        keeps_high: A 16-bit result leaves the upper half of the register alone instead of clearing it.
        reads_result: The old destination is the function's last argument (multiply and accumulate).
    """

    result: Kind
    sources: tuple[Kind, ...]
    function: Function
    order: tuple[int, ...] = ()
    keeps_high: bool = False
    reads_result: bool = False

    @property
    def modifiers(self) -> frozenset[str]:
        """The modifiers that `bind_alu` understands."""
        return ALU_MODIFIERS

    def __call__(self, instruction: Instruction, operands: Operands) -> Step:
        """Bind one instruction; so an `Alu` can stand in the table beside plain functions."""
        return bind_alu(self, instruction, operands)


def pure(function: Callable[..., Any]) -> Function:
    """Give a function that returns its result the manner of a ufunc."""

    def stored(*sources: Array, out: Array, where: Mask) -> None:
        np.copyto(out, function(*sources), where=where)

    return stored


def bind_alu(alu: Alu, instruction: Instruction, operands: Operands) -> Step:
    """The step for one instruction.

    Raises:
        OperandError: An operand or a modifier that this instruction cannot have.
    """
    count = 2 if alu.result in ("u64", "i64", "f64") else 1
    target = operands.vector(instruction.operands[0], count)
    spelt = instruction.operands[1:]
    if len(spelt) != len(alu.sources):
        raise OperandError(f"expected {len(alu.sources)} sources, found {len(spelt)}")
    fetches = [
        source(instruction, operands, index, text, kind)
        for index, (text, kind) in enumerate(zip(spelt, alu.sources, strict=True))
    ]
    if alu.order:
        fetches = [fetches[index] for index in alu.order]
    if alu.reads_result:
        fetches.append(vector_register(target, alu.result))
    finish = _finish(alu, instruction)
    if finish is None and count == 1 and alu.result not in ("u16", "i16", "f16") and instruction.encoding != "dpp":
        return _plain(alu.function, tuple(fetches), vector_register(target, alu.result))
    return _general(alu, instruction, tuple(fetches), target, finish)


def _plain(function: Function, fetches: tuple[Fetch, ...], out: Fetch) -> Step:
    if len(fetches) == 1:
        (first,) = fetches
        return lambda w: function(first(w), out=out(w), where=w.mask)
    if len(fetches) == 2:
        left, right = fetches
        return lambda w: function(left(w), right(w), out=out(w), where=w.mask)
    return lambda w: function(*[fetch(w) for fetch in fetches], out=out(w), where=w.mask)


def _general(
    alu: Alu, instruction: Instruction, fetches: tuple[Fetch, ...], target: int, finish: Callable[[Array], Array] | None
) -> Step:
    """Compute into a fresh array, finish the value, then write what the encoding lets through."""
    dtype, function = DTYPES[alu.result], alu.function
    write = writer(alu, instruction, target)
    enable = dpp_enable(instruction) if instruction.encoding == "dpp" else None

    def step(w: Waves) -> None:
        value: Array = np.empty((w.count, LANES), dtype)
        function(*[fetch(w) for fetch in fetches], out=value, where=True)
        if finish is not None:
            value = finish(value)
        write(w, value, w.mask if enable is None else enable(w))

    return step


def writer(alu: Alu, instruction: Instruction, target: int) -> Callable[[Waves, Array, Mask], None]:
    """A function that writes a result where a mask says, into the part of the register that the encoding names."""
    if DTYPES[alu.result] in (np.uint64, np.int64, np.float64):
        return lambda w, value, where: _write_halves(w, target, value, where)
    select = instruction.modifier("dst_sel") or "DWORD"
    unused = instruction.modifier("dst_unused") or "UNUSED_PAD"
    if alu.result in ("u16", "i16", "f16") and select == "DWORD":
        high = instruction.modifier("op_sel") is not None and bool(instruction.bits("op_sel", ())[-1])
        select = "WORD_1" if high else "WORD_0"
        unused = "UNUSED_PRESERVE" if high or alu.keeps_high else "UNUSED_PAD"
    if select == "DWORD":
        return lambda w, value, where: np.copyto(w.vector[target], as_bits(value), where=where)
    shift, width = _SELECTS[select]
    return _field_writer(target, shift, width, unused)


def _field_writer(target: int, shift: int, width: int, unused: str) -> Callable[[Waves, Array, Mask], None]:
    field = np.uint32(((1 << width) - 1) << shift)
    up, sign = np.uint32(shift), np.int32(32 - width - shift)

    def write(w: Waves, value: Array, where: Mask) -> None:
        bits = (as_bits(value) << up) & field
        if unused == "UNUSED_PRESERVE":
            bits |= w.vector[target] & ~field
        elif unused == "UNUSED_SEXT":
            bits = ((bits.view(np.int32) << sign) >> sign).view(np.uint32)
        np.copyto(w.vector[target], bits, where=where)

    if unused not in ("UNUSED_PRESERVE", "UNUSED_SEXT", "UNUSED_PAD"):
        raise OperandError(f"unknown modifier dst_unused:{unused}")
    return write


def _write_halves(w: Waves, target: int, value: Array, where: Mask) -> None:
    bits = value.view(np.uint32).reshape(*value.shape, 2)
    np.copyto(w.vector[target], bits[..., 0], where=where)
    np.copyto(w.vector[target + 1], bits[..., 1], where=where)


def as_bits(value: Array) -> Array:
    """A value of any kind of at most 32 bits as uint32; f16 and 16-bit integers get a clear upper half."""
    if value.dtype == np.float16:
        return value.view(np.uint16).astype(np.uint32)
    return value.view(np.uint32) if value.dtype != np.uint32 else value


def source(instruction: Instruction, operands: Operands, index: int, text: str, kind: Kind) -> Fetch:
    """A source of any encoding, with its sign modifiers, byte or half selection and lane pattern."""
    encoding = instruction.encoding
    if encoding == "sdwa" and index < 2:
        return sdwa_source(instruction, operands, index, text, kind)
    if encoding == "dpp" and index == 0:
        return dpp_source(instruction, operands, text, kind)
    select = instruction.bits("op_sel", (0,) * 4)
    if instruction.modifier("op_sel") is not None and index < len(select) and select[index]:
        spelling = Spelling.parse(text)
        whole = operands.fetch(spelling.body, "u32")
        narrow = narrowed(kind)
        if narrow is None:
            raise OperandError(f"op_sel on a source that is read as {kind}")
        high: Fetch = lambda w: narrow(whole(w) >> np.uint32(16))  # noqa: E731
        return signed(high, spelling, kind) if spelling.negate or spelling.absolute else high
    return operands.fetch(text, kind)


def sdwa_source(instruction: Instruction, operands: Operands, index: int, text: str, kind: Kind) -> Fetch:
    """A source of an SDWA instruction: a byte, a word or all of a register, extended by zeros or by its sign."""
    select = instruction.modifier(f"src{index}_sel") or "DWORD"
    spelling = Spelling.parse(text)
    if select == "DWORD" and not spelling.extend:
        return operands.fetch(text, kind)
    whole = operands.fetch(spelling.body, "u32")
    shift, width = _SELECTS[select] if select != "DWORD" else (0, 32)
    left, right, extend = np.uint32(32 - shift - width), np.uint32(32 - width), spelling.extend
    narrow, dtype = narrowed(kind), DTYPES[kind]

    def fetch(w: Waves) -> Array:
        bits = whole(w) << left
        bits = (bits.view(np.int32) >> right.astype(np.int32)).view(np.uint32) if extend else bits >> right
        return narrow(bits) if narrow else bits.view(dtype)

    return signed(fetch, spelling, kind) if spelling.negate or spelling.absolute else fetch


def dpp_lanes(instruction: Instruction) -> tuple[Array, Array]:
    """Which lane each lane reads, `(64,)`, and whether that lane exists, `(64,)` bool."""
    lane = np.arange(LANES)
    row, inside = lane & ~15, lane & 15
    valid = np.ones(LANES, np.bool_)
    quad = instruction.modifier("quad_perm")
    if quad is not None:
        chosen = np.array([int(part) for part in quad.strip("[]").split(",")])
        return (lane & ~3) + chosen[lane & 3], valid
    if instruction.modifier("row_mirror") is not None:
        return row + 15 - inside, valid
    if instruction.modifier("row_half_mirror") is not None:
        return (lane & ~7) + 7 - (lane & 7), valid
    if instruction.modifier("row_newbcast") is not None:
        return row + instruction.number("row_newbcast"), valid
    name = next((name for name in _DPP_ROWS if instruction.modifier(name) is not None), None)
    if name is None:
        raise OperandError("a DPP instruction without a lane pattern")
    by = instruction.number(name)
    if name == "row_bcast":
        # 15: the last lane of a row to the next row; 31: lane 31 to the upper two rows.
        origin = row - 1 if by == 15 else np.full(LANES, 31)
        return np.maximum(origin, 0), lane >= (16 if by == 15 else 32)
    start, size = (row, 16) if name.startswith("row") else (np.zeros_like(lane), LANES)
    place = lane - start
    moved = place + by if name.endswith(("shl", "rol")) else place - by
    if name.endswith(("ror", "rol")):
        return start + moved % size, valid
    return start + np.clip(moved, 0, size - 1), (moved >= 0) & (moved < size)


def dpp_source(instruction: Instruction, operands: Operands, text: str, kind: Kind) -> Fetch:
    """The first source of a DPP instruction: another lane's value, or zero where there is none."""
    spelling = Spelling.parse(text)
    index = operands.vector(spelling.body)
    lanes, valid = dpp_lanes(instruction)
    narrow, dtype = narrowed(kind), DTYPES[kind]

    def fetch(w: Waves) -> Array:
        there = valid if w.mask is True else w.lanes()[:, lanes] & valid
        bits = np.where(there, w.vector[index][:, lanes], np.uint32(0))
        return narrow(bits) if narrow else bits.view(dtype)

    return signed(fetch, spelling, kind) if spelling.negate or spelling.absolute else fetch


def dpp_enable(instruction: Instruction) -> Callable[[Waves], Array]:
    """Which lanes a DPP instruction writes: its row and bank masks, and without bound control only valid sources."""
    lane = np.arange(LANES)
    rows, banks = (int(instruction.modifier(name) or "0xf", 0) for name in ("row_mask", "bank_mask"))
    fixed = ((rows >> (lane >> 4)) & 1).astype(np.bool_) & ((banks >> ((lane >> 2) & 3)) & 1).astype(np.bool_)
    lanes, valid = dpp_lanes(instruction)
    bounded = instruction.modifier("bound_ctrl") is not None

    def enable(w: Waves) -> Array:
        active = w.lanes()
        return active & fixed if bounded else active & fixed & valid & active[:, lanes]

    return enable


def _finish(alu: Alu, instruction: Instruction) -> Callable[[Array], Array] | None:
    """Output modifiers and SDWA's partial writes; None when the value is written as it was computed."""
    clamp = instruction.modifier("clamp") is not None
    factor = _OMOD.get(instruction.modifier("mul") or "") or (0.5 if instruction.modifier("div") == "2" else None)
    if clamp and alu.result in _RANGES:
        raise OperandError("clamp on an integer instruction that has no saturating form here")
    if factor is None and not clamp:
        partial = instruction.modifier("dst_sel") not in (None, "DWORD")
        return (lambda value: value) if partial else None
    if alu.result not in ("f32", "f16", "f64"):
        raise OperandError(f"output modifier on a result of kind {alu.result}")
    scale = DTYPES[alu.result](1.0 if factor is None else factor)
    zero, one = DTYPES[alu.result](0), DTYPES[alu.result](1)

    def finish(value: Array) -> Array:
        value = value * scale
        return np.fmin(np.fmax(value, zero), one) if clamp else value

    return finish


def saturating(alu: Alu) -> Bind:
    """The bind function of an integer add or subtract that may be spelt with `clamp`."""
    low, high = _RANGES[alu.result]
    dtype = DTYPES[alu.result]

    def clamped(*sources: Array, out: Array, where: Mask) -> None:
        exact: Array = np.empty(out.shape, np.int64)
        alu.function(*[source.astype(np.int64) for source in sources], out=exact, where=True)
        np.copyto(out, np.clip(exact, low, high).astype(dtype), where=where)

    def bind(instruction: Instruction, operands: Operands) -> Step:
        if instruction.modifier("clamp") is None:
            return bind_alu(alu, instruction, operands)
        plain = Instruction(
            instruction.pc,
            instruction.code,
            instruction.text,
            instruction.mnemonic,
            instruction.operands,
            tuple(pair for pair in instruction.modifiers if pair[0] != "clamp"),
        )
        chosen = Alu(alu.result, alu.sources, clamped, alu.order, alu.keeps_high)
        return bind_alu(chosen, plain, operands)

    return bind
