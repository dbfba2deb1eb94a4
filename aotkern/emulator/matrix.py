"""Matrix multiply-accumulate (MFMA), dense, with and without block scales.

Lane l holds row l mod M of A, or column l mod M of B, and the (l div M)-th slice of K; consecutive values of a lane
are consecutive in K. Products and sums are made in float64 and rounded once, so hardware's own order of additions and
intermediate rounding are not modelled. Every lane takes part, whatever EXEC says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.formats import BF6, FP4, FP6, bf16_values
from aotkern.emulator.operands import Constant, OperandError, Operands, Register
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.vector_convert import small_format
from aotkern.emulator.waves import LANES, Array, Waves

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32
Unpack = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Shape:
    """An MFMA of one block: `rows x rows` results, `depth` products each."""

    rows: int
    depth: int

    @property
    def slices(self) -> int:
        """Into how many parts K is cut over the lanes."""
        return LANES // self.rows

    @property
    def per_lane(self) -> int:
        """Values of A, and of B, that each lane holds."""
        return self.depth // self.slices


def _words(bits: Array, convert: Callable[[Array], Array]) -> Array:
    """`(registers, ...)` uint32 as `(2 * registers, ...)` float64 of their 16-bit halves."""
    both = np.stack([bits & U32(0xFFFF), bits >> U32(16)], axis=1)
    return convert(both).astype(F64).reshape(-1, *bits.shape[1:])


def _bytes(table: Array) -> Unpack:
    def unpack(bits: Array) -> Array:
        four = np.stack([bits >> U32(at) & U32(0xFF) for at in (0, 8, 16, 24)], axis=1)
        return np.asarray(table[four].reshape(-1, *bits.shape[1:]))

    return unpack


def _bit_fields(table: Array, width: int) -> Unpack:
    """Codes of 4 or 6 bits, packed without gaps."""

    def unpack(bits: Array) -> Array:
        count = bits.shape[0] * 32 // width
        codes = []
        for index in range(count):
            register, shift = divmod(index * width, 32)
            code = bits[register] >> U32(shift)
            if shift + width > 32:
                code = code | (bits[register + 1] << U32(32 - shift))
            codes.append(code & U32((1 << width) - 1))
        return np.asarray(table[np.stack(codes)])

    return unpack


def _shortened(bits: Array) -> Array:
    """xf32: a float32 of which 10 bits of mantissa count; rounded to nearest, ties away from zero."""
    return np.asarray(((bits + U32(1 << 12)) & U32(0xFFFFE000)).view(F32).astype(F64))


def _unpacker(name: str, arch: str) -> Unpack:
    if name == "bf16":
        return lambda bits: _words(bits, bf16_values)
    if name == "f16":
        return lambda bits: _words(bits, lambda both: both.astype(np.uint16).view(F16))
    if name in ("fp8", "bf8"):
        return _bytes(small_format(arch, name).values())
    if name == "i8":
        return _bytes(np.arange(256).astype(np.uint8).view(np.int8).astype(F64))
    if name == "f32":
        return lambda bits: bits.view(F32).astype(F64)
    if name == "xf32":
        return _shortened
    if name == "f64":
        return lambda bits: np.ascontiguousarray(np.moveaxis(bits, 0, -1)).view(F64)[..., 0][None]
    formats = {"fp6": FP6, "bf6": BF6, "fp4": FP4}
    if name not in formats:
        raise OperandError(f"unknown matrix format {name}")
    return _bit_fields(formats[name].values(), formats[name].bits)


def as_matrix(values: Array, shape: Shape) -> Array:
    """`(values a lane, waves, 64)` as `(waves, rows, depth)`."""
    count = values.shape[1]
    apart = values.reshape(shape.per_lane, count, shape.slices, shape.rows)
    return np.asarray(apart.transpose(1, 3, 2, 0).reshape(count, shape.rows, shape.depth))


def as_split_matrix(values: Array, shape: Shape) -> Array:
    """The same for 8-bit values of `f8f6f4`: each half of a lane's values lies in its own half of K."""
    count = values.shape[1]
    apart = values.reshape(2, shape.per_lane // 2, count, shape.slices, shape.rows)
    return np.asarray(apart.transpose(2, 4, 0, 3, 1).reshape(count, shape.rows, shape.depth))


def result_rows(rows: int) -> Array:
    """Row of each result: `(registers, 64)` for a 16- or 32-sided tile of 32-bit values."""
    register, lane = np.arange(rows * rows // LANES)[:, None], np.arange(LANES)[None]
    if rows == 16:
        return 4 * (lane // 16) + register
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4


def _registers(operands: Operands, text: str) -> slice:
    found = operands.resolve(text)
    if not isinstance(found, Register) or found.file != "v":
        raise OperandError(f"expected vector registers, found {text}")
    return slice(found.first, found.first + found.count)


def _accumulator(operands: Operands, text: str, shape: Shape, *, integer: bool) -> Callable[[Waves], Array]:
    """The third source as `(waves, rows, rows)` float64."""
    found = operands.resolve(text)
    kind = np.int32 if integer else F32
    if isinstance(found, Constant):
        bits = found.bits("i32" if integer else "f32")
        value = float(np.array(bits, U32).view(kind))
        return lambda w: np.full((w.count, shape.rows, shape.rows), value)
    where = _registers(operands, text)
    if where.stop - where.start != shape.rows**2 // LANES:
        raise OperandError(f"{text} is no {shape.rows}x{shape.rows} tile")
    rows, columns = result_rows(shape.rows), np.arange(LANES)[None] % shape.rows

    def fetch(w: Waves) -> Array:
        tile = np.empty((w.count, shape.rows, shape.rows))
        tile[:, rows, columns] = w.vector[where].view(kind).transpose(1, 0, 2)
        return tile

    return fetch


def _store(shape: Shape, target: slice, *, integer: bool) -> Callable[[Waves, Array], None]:
    rows, columns = result_rows(shape.rows), np.arange(LANES)[None] % shape.rows

    def store(w: Waves, tile: Array) -> None:
        values = tile[:, rows, columns].transpose(1, 0, 2)
        if integer:
            w.vector[target] = values.astype(np.int64).astype(U32)
        else:
            w.vector_f32[target] = values.astype(F32)

    return store


def _mfma(shape: Shape, left: str, right: str) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        unpack_a, unpack_b = _unpacker(left, operands.arch), _unpacker(right, operands.arch)
        return _bound(shape, instruction, operands, unpack_a, unpack_b, integer=left == "i8")

    return bind


def _bound(
    shape: Shape, instruction: Instruction, operands: Operands, unpack_a: Unpack, unpack_b: Unpack, *, integer: bool
) -> Step:
    target, a, b = (_registers(operands, text) for text in instruction.operands[:3])
    addend = _accumulator(operands, instruction.operands[3], shape, integer=integer)
    store = _store(shape, target, integer=integer)

    def step(w: Waves) -> None:
        first = as_matrix(unpack_a(w.vector[a]), shape)
        second = as_matrix(unpack_b(w.vector[b]), shape)
        store(w, np.matmul(first, second.transpose(0, 2, 1)) + addend(w))

    return step


_SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
_SIZES = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def _small_format_mfma(shape: Shape, *, scaled: bool) -> Bind:
    """`f8f6f4`: the formats of A and B are modifiers; a scale of 8 exponent bits serves 32 values of K."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        names = tuple(_SMALL[instruction.number(name)] for name in ("cbsz", "blgp"))
        unpack = tuple(_unpacker(name, operands.arch) for name in names)
        for name, text in zip(names, instruction.operands[1:3], strict=True):
            found = _registers(operands, text)
            if (found.stop - found.start) * 32 != shape.per_lane * _SIZES[name]:
                raise OperandError(f"{text} does not hold {shape.per_lane} values of {name}")
        layouts = tuple(as_split_matrix if _SIZES[name] == 8 else as_matrix for name in names)
        factors = _scales(instruction, operands, shape) if scaled else ()
        return _bound_small(shape, instruction, operands, tuple(zip(unpack, layouts, strict=True)), factors)

    return bind


def _scales(instruction: Instruction, operands: Operands, shape: Shape) -> tuple[Callable[[Waves], Array], ...]:
    """For A and B: `(waves, rows, depth)` factors from the byte that op_sel names."""
    low, high = instruction.bits("op_sel", (0, 0, 0)), instruction.bits("op_sel_hi", (0, 0, 0))
    made = []
    for index in range(2):
        fetch = operands.fetch(instruction.operands[4 + index], "u32")
        shift = U32(8 * (low[index] + 2 * high[index]))

        def factors(w: Waves, fetch: Callable[[Waves], Array] = fetch, shift: np.uint32 = shift) -> Array:
            code = np.broadcast_to((fetch(w) >> shift) & U32(0xFF), (w.count, LANES)).astype(F64)
            factor = np.where(code == 255, np.nan, np.exp2(code - 127.0))
            return as_matrix(np.broadcast_to(factor, (shape.per_lane, *factor.shape)), shape)

        made.append(factors)
    return tuple(made)


def _bound_small(
    shape: Shape,
    instruction: Instruction,
    operands: Operands,
    sources: tuple[tuple[Unpack, Callable[[Array, Shape], Array]], ...],
    factors: tuple[Callable[[Waves], Array], ...],
) -> Step:
    target, a, b = (_registers(operands, text) for text in instruction.operands[:3])
    addend = _accumulator(operands, instruction.operands[3], shape, integer=False)
    store = _store(shape, target, integer=False)

    def step(w: Waves) -> None:
        given = zip(sources, (a, b), strict=True)
        first, second = (layout(unpack(w.vector[where]), shape) for (unpack, layout), where in given)
        if factors:
            first, second = first * factors[0](w), second * factors[1](w)
        store(w, np.matmul(first, second.transpose(0, 2, 1)) + addend(w))

    return step


def double(instruction: Instruction, operands: Operands) -> Step:
    """`v_mfma_f64_16x16x4_f64`: row 4 * register + lane div 16 of the result, column lane mod 16."""
    shape = Shape(16, 4)
    target, a, b = (_registers(operands, text) for text in instruction.operands[:3])
    addend = operands.resolve(instruction.operands[3])
    third = None if isinstance(addend, Constant) else _registers(operands, instruction.operands[3])
    if isinstance(addend, Constant) and addend.bits("f64"):
        raise OperandError("a constant other than 0 as accumulator")
    lane = np.arange(LANES)[None]
    rows, columns = 4 * np.arange(4)[:, None] + lane // 16, lane % 16
    unpack = _unpacker("f64", operands.arch)

    def step(w: Waves) -> None:
        first, second = (as_matrix(unpack(w.vector[which]), shape) for which in (a, b))
        product = np.matmul(first, second.transpose(0, 2, 1))
        values = product[:, rows, columns].transpose(1, 0, 2)
        if third is not None:
            old = np.ascontiguousarray(w.vector[third].reshape(4, 2, w.count, LANES).transpose(0, 2, 3, 1)).view(F64)
            values = values + old[..., 0]
        halves = np.ascontiguousarray(values)[..., None].view(U32)
        w.vector[target] = halves.transpose(0, 3, 1, 2).reshape(8, w.count, LANES)

    return step


def _all() -> dict[str, Bind]:
    shapes = {
        "bf16": ((16, 16), (32, 8), (16, 32), (32, 16)),
        "f16": ((16, 16), (32, 8), (16, 32), (32, 16)),
        "f32": ((16, 4), (32, 2)),
        "xf32": ((16, 8), (32, 4)),
    }
    table: dict[str, Bind] = {"v_mfma_f64_16x16x4_f64": double}
    for name, all_shapes in shapes.items():
        for rows, depth in all_shapes:
            shape = Shape(rows, depth)
            table[f"v_mfma_f32_{rows}x{rows}x{depth}_{name}"] = _mfma(shape, name, name)
    for rows, depth in ((16, 32), (32, 16)):
        for left in ("fp8", "bf8"):
            for right in ("fp8", "bf8"):
                table[f"v_mfma_f32_{rows}x{rows}x{depth}_{left}_{right}"] = _mfma(Shape(rows, depth), left, right)
    for rows, depth in ((16, 32), (32, 16), (16, 64), (32, 32)):
        table[f"v_mfma_i32_{rows}x{rows}x{depth}_i8"] = _mfma(Shape(rows, depth), "i8", "i8")
    for rows, depth in ((16, 128), (32, 64)):
        spelling = f"f32_{rows}x{rows}x{depth}_f8f6f4"
        table[f"v_mfma_{spelling}"] = _small_format_mfma(Shape(rows, depth), scaled=False)
        table[f"v_mfma_scale_{spelling}"] = _small_format_mfma(Shape(rows, depth), scaled=True)
    return table


MATRIX: dict[str, Bind] = _all()
"""Mnemonic, to how it is bound."""
