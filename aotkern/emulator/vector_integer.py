"""Vector integer arithmetic, bit operations, shifts and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Kind, Operands, full
from aotkern.emulator.valu import Alu, Bind, Function, Step, bind_alu, pure, saturating
from aotkern.emulator.waves import Array, Mask, Waves

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
_FLIPPED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)[:, ::-1], axis=1)[:, 0]


def then(first: Callable[[Array, Array], Any], second: Callable[..., Any]) -> Function:
    """`second(first(a, b), c)`, the shape of most three-source integer instructions."""

    def run(a: Array, b: Array, c: Array, *, out: Array, where: Mask) -> None:
        second(first(a, b), c, out=out, where=where)

    return run


def moved(value: Array, *, out: Array, where: Mask) -> None:
    """A move."""
    np.copyto(out, value, where=where)


def reversed_bits(value: Array) -> Array:
    """Bit 31 becomes bit 0, and so on."""
    flipped = _FLIPPED[np.ascontiguousarray(value).reshape(-1).view(np.uint8)]
    return np.asarray(flipped.view(U32).byteswap().reshape(value.shape))


def highest_bit(value: Array) -> Array:
    """Zeros above the highest set bit of a uint32, all ones when none is set (`ffbh`)."""
    exponent = np.frexp(value.astype(np.float64))[1]
    return np.where(value == 0, -1, 32 - exponent).astype(I32).view(U32)


def highest_difference(value: Array) -> Array:
    """Bits above the first one that differs from the sign, all ones when none does (`ffbh_i32`)."""
    return highest_bit((value ^ (value >> I32(31))).view(U32))


def lowest_bit(value: Array) -> Array:
    """Zeros below the lowest set bit, all ones when none is set (`ffbl`)."""
    exponent = np.frexp((value & (~value + U32(1))).astype(np.float64))[1]
    return np.where(value == 0, -1, exponent - 1).astype(I32).view(U32)


def ones(value: Array, base: Array) -> Array:
    """Set bits of `value`, plus `base`."""
    halves = value.astype(U32)
    halves = halves - ((halves >> U32(1)) & U32(0x55555555))
    halves = (halves & U32(0x33333333)) + ((halves >> U32(2)) & U32(0x33333333))
    halves = (halves + (halves >> U32(4))) & U32(0x0F0F0F0F)
    return np.asarray(((halves * U32(0x01010101)) >> U32(24)) + base)


def _high_unsigned(a: Array, b: Array) -> Array:
    return np.asarray(((a.astype(U64) * b.astype(U64)) >> U64(32)).astype(U32))


def _high_signed(a: Array, b: Array) -> Array:
    return np.asarray(((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(I32))


def _field_unsigned(value: Array, start: Array, width: Array) -> Array:
    return np.asarray((value >> start) & ((U64(1) << width.astype(U64)) - U64(1)).astype(U32))


def _field_signed(value: Array, start: Array, width: Array) -> Array:
    up = np.where(width == 0, U32(0), U32(32) - width).astype(I64)
    low = (value >> start.astype(I32)).astype(I64) << (up + I64(32))
    return np.asarray(np.where(width == 0, I32(0), (low >> (up + I64(32))).astype(I32)))


def _merged_bits(mask: Array, a: Array, b: Array) -> Array:
    return np.asarray((mask & a) | (~mask & b))


def _aligned(high: Array, low: Array, shift: Array) -> Array:
    joined = (high.astype(U64) << U64(32)) | low.astype(U64)
    return np.asarray((joined >> shift.astype(U64)).astype(U32))


def _aligned_bytes(high: Array, low: Array, shift: Array) -> Array:
    return _aligned(high, low, (shift & U32(3)) * U32(8))


def permuted(high: Array, low: Array, select: Array) -> Array:
    """`v_perm_b32`: each byte of `select` names a byte of the eight, a sign, zero or all ones."""
    if select.shape[-1:] in ((), (1,)) and (select == select.flat[0]).all():
        return _permuted_alike(high, low, int(select.flat[0]))
    eight = (high.astype(U64) << U64(32)) | low.astype(U64)
    result: Any = U32(0)
    for place in range(4):
        code = (select >> U32(8 * place)) & U32(0xFF)
        byte = (eight >> ((code & U32(7)).astype(U64) * U64(8))).astype(U32) & U32(0xFF)
        sign_at = ((code & U32(3)) * U32(2) + U32(1)).astype(U64) * U64(8) + U64(7)
        sign = ((eight >> sign_at) & U64(1)).astype(U32) * U32(0xFF)
        special = np.where(code > U32(12), U32(0xFF), np.where(code < U32(12), sign, U32(0)))
        result = result | (np.where(code > U32(7), special, byte) << U32(8 * place))
    return np.asarray(result)


def _permuted_alike(high: Array, low: Array, select: int) -> Array:
    """The same for one selector: bytes are copied where they go."""
    shape = np.broadcast_shapes(high.shape, low.shape, (1,))
    sources = [np.array(np.broadcast_to(half, shape)).view(np.uint8).reshape(*shape, 4) for half in (low, high)]
    result: Array = np.empty((*shape, 4), np.uint8)
    for place, code in enumerate(select.to_bytes(4, "little")):
        if code < 8:
            result[..., place] = sources[code // 4][..., code % 4]
        elif code < 12:
            result[..., place] = (sources[code // 2 % 2][..., code % 2 * 2 + 1] >> 7) * np.uint8(0xFF)
        else:
            result[..., place] = 0 if code == 12 else 0xFF
    return result.view(U32)[..., 0]


def _middle(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)))


def _absolute_difference(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.maximum(a, b) - np.minimum(a, b) + c)


def _bitop3(kind: str) -> Bind:
    """`v_bitop3`: the truth table of three inputs is a modifier; input values a, b, c count 4, 2, 1."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        table = instruction.number("bitop3")
        return bind_alu(Alu(kind, (kind,) * 3, _truth(table), keeps_high=True), instruction, operands)  # type: ignore[arg-type]

    return bind


def _truth(table: int) -> Function:
    known: dict[int, Callable[[Array, Array, Array], Any]] = {
        0x36: lambda a, b, c: b ^ (a | c),
        0x6C: lambda a, b, c: b ^ (a & c),
        0x78: lambda a, b, c: a ^ (b & c),
        0x96: lambda a, b, c: a ^ b ^ c,
        0xC8: lambda a, b, c: b & (a | c),
        0xF8: lambda a, b, c: a | (b & c),
        0xFE: lambda a, b, c: a | b | c,
    }
    if table in known:
        return pure(known[table])

    def terms(a: Array, b: Array, c: Array) -> Any:
        result: Any = U32(0)
        for row in range(8):
            if table >> row & 1:
                result = result | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
        return result

    return pure(terms)


def _wide_product(signed: bool) -> Bind:
    """`v_mad_u64_u32` and its signed form: 32 x 32 + 64 bits; the carry goes to a scalar pair."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], 2)
        carry = operands.scalar(instruction.operands[1], 2)
        dtype = I64 if signed else U64
        left = operands.fetch(instruction.operands[2], "i32" if signed else "u32")
        right = operands.fetch(instruction.operands[3], "i32" if signed else "u32")
        addend = operands.fetch(instruction.operands[4], "i64" if signed else "u64")

        def step(w: Waves) -> None:
            product = left(w).astype(dtype) * right(w).astype(dtype)
            old = addend(w)
            total = np.ascontiguousarray(full(product + old, w))
            # Bit 64 of the exact sum: for signed operands its sign, which is the wrong way round after an overflow.
            over = (total < 0) ^ (((product ^ total) & (old ^ total)) < 0) if signed else total < old
            w.write_mask(carry, over)
            w.write_pair(target, total)

        return step

    return bind


def _carrying(sign: int, *, carry_in: bool, reverse: bool) -> Bind:
    """Add or subtract with carry out, and maybe carry in; both carries are one bit a lane of a scalar pair."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        carry_out = operands.scalar(instruction.operands[1], 2)
        left, right = (operands.fetch(text, "u32") for text in instruction.operands[2:4])
        if reverse:
            left, right = right, left
        pair = operands.scalar(instruction.operands[4], 2) if carry_in else None

        def step(w: Waves) -> None:
            total = left(w).astype(I64) + sign * right(w).astype(I64)
            if pair is not None:
                total = total + sign * w.flags(pair)
            w.write_mask(carry_out, (total >> I64(32)) != 0)
            w.write(target, total.astype(U32))

        return step

    return bind


def _mul24(a: Array, b: Array) -> Array:
    return (a.astype(I64) * b.astype(I64)).astype(U32)


def _saturated_packs() -> dict[str, Bind]:
    return {
        "v_add_u32": saturating(Alu("u32", ("u32", "u32"), np.add)),
        "v_sub_u32": saturating(Alu("u32", ("u32", "u32"), np.subtract)),
        "v_subrev_u32": saturating(Alu("u32", ("u32", "u32"), np.subtract, order=(1, 0))),
        "v_add_i32": saturating(Alu("i32", ("i32", "i32"), np.add)),
        "v_sub_i32": saturating(Alu("i32", ("i32", "i32"), np.subtract)),
        "v_add_u16": saturating(Alu("u16", ("u16", "u16"), np.add)),
        "v_sub_u16": saturating(Alu("u16", ("u16", "u16"), np.subtract)),
        "v_subrev_u16": saturating(Alu("u16", ("u16", "u16"), np.subtract, order=(1, 0))),
        "v_add_i16": saturating(Alu("i16", ("i16", "i16"), np.add, keeps_high=True)),
        "v_sub_i16": saturating(Alu("i16", ("i16", "i16"), np.subtract, keeps_high=True)),
    }


_UU: tuple[Kind, ...] = ("u32", "u32")
_UUU: tuple[Kind, ...] = ("u32", "u32", "u32")

INTEGER: dict[str, Bind] = {
    **_saturated_packs(),
    "v_mov_b32": Alu("u32", ("u32",), moved),
    "v_mov_b64": Alu("u64", ("u64",), moved),
    "v_accvgpr_read_b32": Alu("u32", ("u32",), moved),
    "v_accvgpr_write_b32": Alu("u32", ("u32",), moved),
    "v_accvgpr_mov_b32": Alu("u32", ("u32",), moved),
    "v_not_b32": Alu("u32", ("u32",), np.invert),
    "v_bfrev_b32": Alu("u32", ("u32",), pure(reversed_bits)),
    "v_ffbh_u32": Alu("u32", ("u32",), pure(highest_bit)),
    "v_ffbh_i32": Alu("u32", ("i32",), pure(highest_difference)),
    "v_ffbl_b32": Alu("u32", ("u32",), pure(lowest_bit)),
    "v_bcnt_u32_b32": Alu("u32", _UU, pure(ones)),
    "v_and_b32": Alu("u32", _UU, np.bitwise_and),
    "v_or_b32": Alu("u32", _UU, np.bitwise_or),
    "v_xor_b32": Alu("u32", _UU, np.bitwise_xor),
    "v_xnor_b32": Alu("u32", _UU, pure(lambda a, b: ~(a ^ b))),
    "v_mul_lo_u32": Alu("u32", _UU, np.multiply),
    "v_mul_hi_u32": Alu("u32", _UU, pure(_high_unsigned)),
    "v_mul_hi_i32": Alu("i32", ("i32", "i32"), pure(_high_signed)),
    "v_mul_u32_u24": Alu("u32", ("u24", "u24"), pure(_mul24)),
    "v_mul_i32_i24": Alu("u32", ("i24", "i24"), pure(_mul24)),
    "v_mul_lo_u16": Alu("u16", ("u16", "u16"), np.multiply),
    "v_mad_u32_u24": Alu("u32", ("u24", "u24", "u32"), pure(lambda a, b, c: _mul24(a, b) + c)),
    "v_mad_i32_i24": Alu("u32", ("i24", "i24", "u32"), pure(lambda a, b, c: _mul24(a, b) + c)),
    "v_mad_u16": Alu("u16", ("u16",) * 3, pure(lambda a, b, c: a * b + c), keeps_high=True),
    "v_mad_legacy_u16": Alu("u16", ("u16",) * 3, pure(lambda a, b, c: a * b + c)),
    "v_mad_u64_u32": _wide_product(signed=False),
    "v_mad_i64_i32": _wide_product(signed=True),
    "v_min_u32": Alu("u32", _UU, np.minimum),
    "v_max_u32": Alu("u32", _UU, np.maximum),
    "v_min_i32": Alu("i32", ("i32", "i32"), np.minimum),
    "v_max_i32": Alu("i32", ("i32", "i32"), np.maximum),
    "v_min_u16": Alu("u16", ("u16", "u16"), np.minimum),
    "v_max_u16": Alu("u16", ("u16", "u16"), np.maximum),
    "v_min_i16": Alu("i16", ("i16", "i16"), np.minimum),
    "v_max_i16": Alu("i16", ("i16", "i16"), np.maximum),
    "v_min3_u32": Alu("u32", _UUU, then(np.minimum, np.minimum)),
    "v_max3_u32": Alu("u32", _UUU, then(np.maximum, np.maximum)),
    "v_min3_i32": Alu("i32", ("i32",) * 3, then(np.minimum, np.minimum)),
    "v_max3_i32": Alu("i32", ("i32",) * 3, then(np.maximum, np.maximum)),
    "v_med3_i32": Alu("i32", ("i32",) * 3, pure(_middle)),
    "v_med3_u32": Alu("u32", _UUU, pure(_middle)),
    "v_sad_u32": Alu("u32", _UUU, pure(_absolute_difference)),
    "v_lshlrev_b32": Alu("u32", ("u5", "u32"), np.left_shift, order=(1, 0)),
    "v_lshrrev_b32": Alu("u32", ("u5", "u32"), np.right_shift, order=(1, 0)),
    "v_ashrrev_i32": Alu("i32", ("u5", "i32"), pure(lambda value, by: value >> by.astype(I32)), order=(1, 0)),
    "v_lshlrev_b16": Alu("u16", ("u4", "u16"), np.left_shift, order=(1, 0)),
    "v_lshrrev_b16": Alu("u16", ("u4", "u16"), np.right_shift, order=(1, 0)),
    "v_ashrrev_i16": Alu("i16", ("u4", "i16"), pure(lambda value, by: value >> by.astype(I32)), order=(1, 0)),
    "v_lshlrev_b64": Alu("u64", ("u6", "u64"), np.left_shift, order=(1, 0)),
    "v_lshrrev_b64": Alu("u64", ("u6", "u64"), np.right_shift, order=(1, 0)),
    "v_ashrrev_i64": Alu("i64", ("u6", "i64"), pure(lambda value, by: value >> by.astype(I64)), order=(1, 0)),
    "v_lshl_add_u32": Alu("u32", ("u32", "u5", "u32"), then(np.left_shift, np.add)),
    "v_lshl_or_b32": Alu("u32", ("u32", "u5", "u32"), then(np.left_shift, np.bitwise_or)),
    "v_lshl_add_u64": Alu("u64", ("u64", "u6", "u64"), then(np.left_shift, np.add)),
    "v_add_lshl_u32": Alu("u32", ("u32", "u32", "u5"), then(np.add, np.left_shift)),
    "v_add3_u32": Alu("u32", _UUU, then(np.add, np.add)),
    "v_xad_u32": Alu("u32", _UUU, then(np.bitwise_xor, np.add)),
    "v_or3_b32": Alu("u32", _UUU, then(np.bitwise_or, np.bitwise_or)),
    "v_and_or_b32": Alu("u32", _UUU, then(np.bitwise_and, np.bitwise_or)),
    "v_bfe_u32": Alu("u32", ("u32", "u5", "u5"), pure(_field_unsigned)),
    "v_bfe_i32": Alu("i32", ("i32", "u5", "u5"), pure(_field_signed)),
    "v_bfi_b32": Alu("u32", _UUU, pure(_merged_bits)),
    "v_bfm_b32": Alu("u32", ("u5", "u5"), pure(lambda width, start: ((U32(1) << width) - U32(1)) << start)),
    "v_alignbit_b32": Alu("u32", ("u32", "u32", "u5"), pure(_aligned)),
    "v_alignbyte_b32": Alu("u32", _UUU, pure(_aligned_bytes)),
    "v_perm_b32": Alu("u32", _UUU, pure(permuted)),
    "v_bitop3_b32": _bitop3("u32"),
    "v_bitop3_b16": _bitop3("u16"),
    "v_add_co_u32": _carrying(1, carry_in=False, reverse=False),
    "v_addc_co_u32": _carrying(1, carry_in=True, reverse=False),
    "v_sub_co_u32": _carrying(-1, carry_in=False, reverse=False),
    "v_subb_co_u32": _carrying(-1, carry_in=True, reverse=False),
    "v_subrev_co_u32": _carrying(-1, carry_in=False, reverse=True),
    "v_subbrev_co_u32": _carrying(-1, carry_in=True, reverse=True),
}
"""Mnemonic without its encoding suffix, to how it is bound."""
