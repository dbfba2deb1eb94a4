"""Scalar arithmetic: SOP1, SOP2, SOPC and SOPK.

A scalar instruction works on one value a wave, so its sources are `(waves,)`. Most set SCC; the tables say how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Fetch, Kind, OperandError, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.vector_integer import highest_bit, highest_difference, lowest_bit, ones, reversed_bits
from aotkern.emulator.waves import EXEC, Array, Waves

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
Put = Callable[[Waves, Any], None]
Flag = Literal["keep", "nonzero", "own"]


def writer(operands: Operands, text: str, kind: Kind) -> Put:
    """A function that sets a scalar destination, and renews the lane mask when that is EXEC."""
    wide = kind in ("u64", "i64")
    register = operands.scalar(text, 2 if wide else 1)
    place, half = register // 2, register % 2

    def put(w: Waves, value: Any) -> None:
        w.scalar_u64[place] = value

    def put_half(w: Waves, value: Any) -> None:
        w.scalar[place, :, half] = value

    def put_exec(w: Waves, value: Any) -> None:
        (put if wide else put_half)(w, value)
        w.exec_changed()

    if place == EXEC // 2:
        return put_exec
    return put if wide else put_half


@dataclass(frozen=True, slots=True)
class ScalarAlu:
    """What a scalar instruction computes.

    Attributes:
        result: Kind of the destination; signed kinds only matter to the function.
        sources: Kinds of the sources.
        function: Takes the sources; returns the result, or result and SCC when `flag` is `own`.
        flag: What becomes of SCC: kept, set when the result is not zero, or returned by the function.
    """

    result: Kind
    sources: tuple[Kind, ...]
    function: Callable[..., Any]
    flag: Flag = "keep"

    def __call__(self, instruction: Instruction, operands: Operands) -> Step:
        """Bind one instruction."""
        spelt = instruction.operands[1:]
        if len(spelt) != len(self.sources):
            raise OperandError(f"expected {len(self.sources)} sources, found {len(spelt)}")
        fetches = tuple(operands.fetch_scalar(text, kind) for text, kind in zip(spelt, self.sources, strict=True))
        put = writer(operands, instruction.operands[0], self.result)
        return _step(self, fetches, put)


def _step(alu: ScalarAlu, fetches: tuple[Fetch, ...], put: Put) -> Step:
    function = alu.function
    bits = U64 if alu.result in ("u64", "i64") else U32

    def keep(w: Waves) -> None:
        put(w, np.asarray(function(*[fetch(w) for fetch in fetches])).view(bits))

    def nonzero(w: Waves) -> None:
        value = np.asarray(function(*[fetch(w) for fetch in fetches])).view(bits)
        w.scc[:] = value != 0
        put(w, value)

    def own(w: Waves) -> None:
        value, flag = function(*[fetch(w) for fetch in fetches])
        put(w, np.asarray(value).view(bits))
        w.scc[:] = flag

    return {"keep": keep, "nonzero": nonzero, "own": own}[alu.flag]


def _add_signed(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.asarray(a + b)
    return total, ((a ^ total) & (b ^ total)) < 0


def _subtract_signed(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.asarray(a - b)
    return total, ((a ^ b) & (a ^ total)) < 0


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.asarray(a + b)
    return total, total < a


def _subtract(a: Array, b: Array) -> tuple[Array, Array]:
    return np.asarray(a - b), np.asarray(b > a)


def _shift_add(by: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    def run(a: Array, b: Array) -> tuple[Array, Array]:
        total = np.asarray((a.astype(U64) << U64(by)) + b.astype(U64))
        return total.astype(U32), total >> U64(32) != 0

    return run


def _extreme(choose: Callable[[Array, Array], Any]) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Minimum or maximum; SCC says whether the first source was chosen."""

    def run(a: Array, b: Array) -> tuple[Array, Array]:
        first = np.asarray(choose(a, b))
        return np.where(first, a, b), first

    return run


def _field(signed: bool, width: int) -> Callable[[Array, Array], Array]:
    """`s_bfe`: bits 0 to 4 (or 5) of the second source are the start, bits 16 to 22 the number of bits."""

    def run(value: Array, where: Array) -> Array:
        start = (where & U32(width - 1)).astype(I64)
        size = np.minimum((where >> U32(16)) & U32(127), U32(width)).astype(I64)
        size = np.minimum(size, width - start)
        if signed:
            wide = value.astype(I64)
            up = 64 - start - size
            return np.where(size == 0, 0, (wide << np.minimum(up, 63)) >> np.minimum(64 - size, 63)).astype(value.dtype)
        wide_mask = np.where(size >= 64, ~U64(0), (U64(1) << np.minimum(size, 63).astype(U64)) - U64(1))
        return np.asarray(((value.astype(U64) >> start.astype(U64)) & wide_mask).astype(value.dtype))

    return run


def _mask(bits: int) -> Callable[[Array, Array], Array]:
    dtype = U32 if bits == 32 else U64

    def run(size: Array, start: Array) -> Array:
        low = (dtype(1) << (size & U32(bits - 1)).astype(dtype)) - dtype(1)
        return np.asarray(low << (start & U32(bits - 1)).astype(dtype))

    return run


def _arithmetic(value: Array, by: Array) -> Array:
    return np.asarray(value >> by.astype(value.dtype))


def _count64(value: Array) -> Array:
    low, high = value.astype(U32), (value >> U64(32)).astype(U32)
    return ones(high, ones(low, np.asarray(U32(0))))


def _first64(value: Array) -> Array:
    low, high = value.astype(U32), (value >> U64(32)).astype(U32)
    upper = lowest_bit(high)
    return np.where(low != 0, lowest_bit(low), np.where(high != 0, upper + U32(32), U32(0xFFFFFFFF)))


def _leading64(value: Array) -> Array:
    low, high = value.astype(U32), (value >> U64(32)).astype(U32)
    return np.where(high != 0, highest_bit(high), np.where(low != 0, highest_bit(low) + U32(32), U32(0xFFFFFFFF)))


def _reversed64(value: Array) -> Array:
    low, high = value.astype(U32), (value >> U64(32)).astype(U32)
    return np.asarray(reversed_bits(low).astype(U64) << U64(32) | reversed_bits(high).astype(U64))


def _leading_difference64(value: Array) -> Array:
    return _leading64((value ^ (value >> I64(63))).view(U64))


def _quads(bits: int) -> Callable[[Array], Array]:
    """`s_quadmask`: one bit for each group of four that has any bit set."""
    dtype = U32 if bits == 32 else U64

    def run(value: Array) -> Array:
        result = np.zeros_like(value, dtype)
        for quad in range(bits // 4):
            result |= ((value >> dtype(4 * quad)) & dtype(15) != 0).astype(dtype) << dtype(quad)
        return result

    return run


def _whole_quads(bits: int) -> Callable[[Array], Array]:
    """`s_wqm`: all four bits of each group that has any bit set."""
    dtype = U32 if bits == 32 else U64

    def run(value: Array) -> Array:
        result = np.zeros_like(value, dtype)
        for quad in range(bits // 4):
            result |= ((value >> dtype(4 * quad)) & dtype(15) != 0).astype(dtype) * dtype(15) << dtype(4 * quad)
        return result

    return run


def _doubled_bits(value: Array) -> Array:
    """`s_bitreplicate`: every bit twice."""
    result = np.zeros_like(value, U64)
    for bit in range(32):
        result |= ((value >> U32(bit)) & U32(1)).astype(U64) * U64(3) << U64(2 * bit)
    return result


def _cycled(high: bool, signed: bool) -> Callable[[Array, Array], Array]:
    dtype = I64 if signed else U64

    def run(a: Array, b: Array) -> Array:
        product = np.asarray(a.astype(dtype) * b.astype(dtype))
        return (product >> dtype(32)).astype(U32) if high else product.astype(U32)

    return run


def _logic(width: Kind, function: Callable[..., Any], count: int = 2) -> ScalarAlu:
    return ScalarAlu(width, (width,) * count, function, "nonzero")


def _logic_family(width: Kind) -> dict[str, Bind]:
    bits = width[1:]
    return {
        f"s_and_b{bits}": _logic(width, np.bitwise_and),
        f"s_or_b{bits}": _logic(width, np.bitwise_or),
        f"s_xor_b{bits}": _logic(width, np.bitwise_xor),
        f"s_andn2_b{bits}": _logic(width, lambda a, b: a & ~b),
        f"s_orn2_b{bits}": _logic(width, lambda a, b: a | ~b),
        f"s_nand_b{bits}": _logic(width, lambda a, b: ~(a & b)),
        f"s_nor_b{bits}": _logic(width, lambda a, b: ~(a | b)),
        f"s_xnor_b{bits}": _logic(width, lambda a, b: ~(a ^ b)),
        f"s_not_b{bits}": _logic(width, np.invert, 1),
        f"s_mov_b{bits}": ScalarAlu(width, (width,), lambda a: a),
    }


def _saved(function: Callable[[Array, Array], Any], *, writes_new: bool = False) -> Bind:
    """The `saveexec` instructions: the old EXEC to the destination, a combination of it and the source to EXEC.

    The `wrexec` instructions put the new EXEC into the destination too.
    """

    def bind(instruction: Instruction, operands: Operands) -> Step:
        put = writer(operands, instruction.operands[0], "u64")
        fetch = operands.fetch_scalar(instruction.operands[1], "u64")

        def step(w: Waves) -> None:
            old = w.scalar_u64[EXEC // 2].copy()
            new = np.asarray(function(fetch(w), old))
            put(w, new if writes_new else old)
            w.scalar_u64[EXEC // 2] = new
            w.scc[:] = new != 0
            w.exec_changed()

        return step

    return bind


def _chosen(kind: Kind) -> Bind:
    """`s_cselect`: by SCC."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        put = writer(operands, instruction.operands[0], kind)
        yes, no = (operands.fetch_scalar(text, kind) for text in instruction.operands[1:3])
        return lambda w: put(w, np.where(w.scc, yes(w), no(w)))

    return bind


def _moved_if(instruction: Instruction, operands: Operands) -> Step:
    """`s_cmov` and `s_cmovk`: only where SCC is set."""
    kind: Kind = "u64" if instruction.name.endswith("64") else "u32"
    put = writer(operands, instruction.operands[0], kind)
    new, old = (operands.fetch_scalar(instruction.operands[index], kind) for index in (1, 0))
    return lambda w: put(w, np.where(w.scc, new(w), old(w)))


def _moved_if_short(instruction: Instruction, operands: Operands) -> Step:
    """`s_cmovk_i32`: a 16-bit constant, only where SCC is set."""
    put = writer(operands, instruction.operands[0], "u32")
    old = operands.fetch_scalar(instruction.operands[0], "u32")
    new = _short(instruction.operands[1], "i32")
    return lambda w: put(w, np.where(w.scc, new(w).view(U32), old(w)))


def _with_carry(sign: int) -> Bind:
    """`s_addc_u32` and `s_subb_u32`: SCC goes in and comes out."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        put = writer(operands, instruction.operands[0], "u32")
        left, right = (operands.fetch_scalar(text, "u32") for text in instruction.operands[1:3])

        def step(w: Waves) -> None:
            total = left(w).astype(I64) + sign * (right(w).astype(I64) + w.scc)
            put(w, total.astype(U32))
            w.scc[:] = (total >> I64(32)) != 0

        return step

    return bind


def _compared(kind: Kind, function: Callable[[Array, Array], Any], *, short: bool = False) -> Bind:
    """SOPC, and SOPK's comparisons with a 16-bit constant, which the decoder spells unextended."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        left = operands.fetch_scalar(instruction.operands[0], kind)
        right = _short(instruction.operands[1], kind) if short else operands.fetch_scalar(instruction.operands[1], kind)

        def step(w: Waves) -> None:
            w.scc[:] = function(left(w), right(w))

        return step

    return bind


def _short(text: str, kind: Kind) -> Fetch:
    """A 16-bit constant, extended by its sign for signed kinds and by zeros otherwise."""
    value = int(text, 0) & 0xFFFF
    if kind == "i32" and value & 0x8000:
        value -= 0x10000
    fixed = np.array(value, I32 if kind == "i32" else U32)
    return lambda _: fixed


def _short_arithmetic(function: Callable[[Array, Array], Any], flag: Flag) -> Bind:
    """`s_addk_i32`, `s_mulk_i32` and `s_movk_i32`: the destination is the first source."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        put = writer(operands, instruction.operands[0], "i32")
        old = operands.fetch_scalar(instruction.operands[0], "i32")
        return _step(ScalarAlu("i32", (), function, flag), (old, _short(instruction.operands[1], "i32")), put)

    return bind


def _tested(value: int) -> Callable[[Array, Array], Any]:
    return lambda bits, where: ((bits >> (where & U32(31))) & U32(1)) == value


def _comparisons() -> dict[str, Bind]:
    orders: dict[str, Callable[[Array, Array], Any]] = {
        "eq": np.equal,
        "lg": np.not_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "lt": np.less,
        "le": np.less_equal,
    }
    table: dict[str, Bind] = {}
    for name, function in orders.items():
        for kind in ("i32", "u32"):
            table[f"s_cmp_{name}_{kind}"] = _compared(kind, function)
            table[f"s_cmpk_{name}_{kind}"] = _compared(kind, function, short=True)
    table["s_cmp_eq_u64"] = _compared("u64", np.equal)
    table["s_cmp_lg_u64"] = _compared("u64", np.not_equal)
    table["s_bitcmp0_b64"] = _compared_bit64(0)
    table["s_bitcmp1_b64"] = _compared_bit64(1)
    table["s_bitcmp0_b32"] = _compared("u32", _tested(0))
    table["s_bitcmp1_b32"] = _compared("u32", _tested(1))
    return table


def _compared_bit64(value: int) -> Bind:
    """`s_bitcmp0_b64` and `s_bitcmp1_b64`."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        bits = operands.fetch_scalar(instruction.operands[0], "u64")
        where = operands.fetch_scalar(instruction.operands[1], "u6")

        def step(w: Waves) -> None:
            w.scc[:] = ((bits(w) >> where(w)) & U64(1)) == value

        return step

    return bind


def _set_bit(value: int) -> Bind:
    """`s_bitset0` and `s_bitset1`, of one register or of two."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        wide = instruction.name.endswith("b64")
        kind: Kind = "u64" if wide else "u32"
        one = U64(1) if wide else U32(1)
        put = writer(operands, instruction.operands[0], kind)
        old = operands.fetch_scalar(instruction.operands[0], kind)
        where = operands.fetch_scalar(instruction.operands[1], "u6" if wide else "u5")

        def step(w: Waves) -> None:
            bit = one << where(w)
            put(w, old(w) | bit if value else old(w) & ~bit)

        return step

    return bind


def _packed(low: int, high: int) -> ScalarAlu:
    """`s_pack`: a half of each source."""
    return ScalarAlu(
        "u32",
        ("u32", "u32"),
        lambda a, b: ((a >> U32(16 * low)) & U32(0xFFFF)) | (((b >> U32(16 * high)) & U32(0xFFFF)) << U32(16)),
    )


_II: tuple[Kind, ...] = ("i32", "i32")
_UU: tuple[Kind, ...] = ("u32", "u32")

SCALAR: dict[str, Bind] = {
    **_logic_family("u32"),
    **_logic_family("u64"),
    **_comparisons(),
    "s_add_i32": ScalarAlu("i32", _II, _add_signed, "own"),
    "s_sub_i32": ScalarAlu("i32", _II, _subtract_signed, "own"),
    "s_add_u32": ScalarAlu("u32", _UU, _add, "own"),
    "s_sub_u32": ScalarAlu("u32", _UU, _subtract, "own"),
    "s_addc_u32": _with_carry(1),
    "s_subb_u32": _with_carry(-1),
    "s_mul_i32": ScalarAlu("u32", _UU, _cycled(high=False, signed=False)),
    "s_mul_hi_u32": ScalarAlu("u32", _UU, _cycled(high=True, signed=False)),
    "s_mul_hi_i32": ScalarAlu("u32", _II, _cycled(high=True, signed=True)),
    "s_min_i32": ScalarAlu("i32", _II, _extreme(np.less), "own"),
    "s_max_i32": ScalarAlu("i32", _II, _extreme(np.greater), "own"),
    "s_min_u32": ScalarAlu("u32", _UU, _extreme(np.less), "own"),
    "s_max_u32": ScalarAlu("u32", _UU, _extreme(np.greater), "own"),
    "s_lshl_b32": ScalarAlu("u32", ("u32", "u5"), np.left_shift, "nonzero"),
    "s_lshr_b32": ScalarAlu("u32", ("u32", "u5"), np.right_shift, "nonzero"),
    "s_ashr_i32": ScalarAlu("i32", ("i32", "u5"), _arithmetic, "nonzero"),
    "s_lshl_b64": ScalarAlu("u64", ("u64", "u6"), np.left_shift, "nonzero"),
    "s_lshr_b64": ScalarAlu("u64", ("u64", "u6"), np.right_shift, "nonzero"),
    "s_ashr_i64": ScalarAlu("i64", ("i64", "u6"), _arithmetic, "nonzero"),
    **{f"s_lshl{by}_add_u32": ScalarAlu("u32", _UU, _shift_add(by), "own") for by in (1, 2, 3, 4)},
    "s_bfe_u32": ScalarAlu("u32", _UU, _field(signed=False, width=32), "nonzero"),
    "s_bfe_i32": ScalarAlu("i32", ("i32", "u32"), _field(signed=True, width=32), "nonzero"),
    "s_bfe_u64": ScalarAlu("u64", ("u64", "u32"), _field(signed=False, width=64), "nonzero"),
    "s_bfe_i64": ScalarAlu("i64", ("i64", "u32"), _field(signed=True, width=64), "nonzero"),
    "s_bfm_b32": ScalarAlu("u32", _UU, _mask(32)),
    "s_bfm_b64": ScalarAlu("u64", _UU, _mask(64)),
    "s_abs_i32": ScalarAlu("i32", ("i32",), np.abs, "nonzero"),
    "s_absdiff_i32": ScalarAlu("i32", _II, lambda a, b: np.abs(a - b), "nonzero"),
    "s_brev_b32": ScalarAlu("u32", ("u32",), reversed_bits),
    "s_bcnt1_i32_b32": ScalarAlu("u32", ("u32",), lambda a: ones(a, np.asarray(U32(0))), "nonzero"),
    "s_bcnt1_i32_b64": ScalarAlu("u32", ("u64",), _count64, "nonzero"),
    "s_bcnt0_i32_b32": ScalarAlu("u32", ("u32",), lambda a: ones(~a, np.asarray(U32(0))), "nonzero"),
    "s_bcnt0_i32_b64": ScalarAlu("u32", ("u64",), lambda a: _count64(~a), "nonzero"),
    "s_ff0_i32_b32": ScalarAlu("u32", ("u32",), lambda a: lowest_bit(~a)),
    "s_ff0_i32_b64": ScalarAlu("u32", ("u64",), lambda a: _first64(~a)),
    "s_brev_b64": ScalarAlu("u64", ("u64",), _reversed64),
    "s_flbit_i32_i64": ScalarAlu("u32", ("i64",), _leading_difference64),
    "s_quadmask_b32": ScalarAlu("u32", ("u32",), _quads(32), "nonzero"),
    "s_quadmask_b64": ScalarAlu("u64", ("u64",), _quads(64), "nonzero"),
    "s_wqm_b32": ScalarAlu("u32", ("u32",), _whole_quads(32), "nonzero"),
    "s_wqm_b64": ScalarAlu("u64", ("u64",), _whole_quads(64), "nonzero"),
    "s_bitreplicate_b64_b32": ScalarAlu("u64", ("u32",), _doubled_bits),
    "s_ff1_i32_b32": ScalarAlu("u32", ("u32",), lowest_bit),
    "s_ff1_i32_b64": ScalarAlu("u32", ("u64",), _first64),
    "s_flbit_i32_b32": ScalarAlu("u32", ("u32",), highest_bit),
    "s_flbit_i32_b64": ScalarAlu("u32", ("u64",), _leading64),
    "s_flbit_i32": ScalarAlu("u32", ("i32",), highest_difference),
    "s_sext_i32_i8": ScalarAlu("i32", ("i32",), lambda a: (a << I32(24)) >> I32(24)),
    "s_sext_i32_i16": ScalarAlu("i32", ("i32",), lambda a: (a << I32(16)) >> I32(16)),
    "s_pack_ll_b32_b16": _packed(0, 0),
    "s_pack_lh_b32_b16": _packed(0, 1),
    "s_pack_hh_b32_b16": _packed(1, 1),
    "s_cselect_b32": _chosen("u32"),
    "s_cselect_b64": _chosen("u64"),
    "s_cmov_b32": _moved_if,
    "s_cmov_b64": _moved_if,
    "s_bitset0_b32": _set_bit(0),
    "s_bitset1_b32": _set_bit(1),
    "s_bitset0_b64": _set_bit(0),
    "s_bitset1_b64": _set_bit(1),
    "s_cmovk_i32": _moved_if_short,
    "s_movk_i32": _short_arithmetic(lambda _, value: value, "keep"),
    "s_addk_i32": _short_arithmetic(_add_signed, "own"),
    "s_mulk_i32": _short_arithmetic(np.multiply, "keep"),
    "s_and_saveexec_b64": _saved(lambda source, old: source & old),
    "s_or_saveexec_b64": _saved(lambda source, old: source | old),
    "s_xor_saveexec_b64": _saved(lambda source, old: source ^ old),
    "s_andn2_saveexec_b64": _saved(lambda source, old: source & ~old),
    "s_orn2_saveexec_b64": _saved(lambda source, old: source | ~old),
    "s_andn1_saveexec_b64": _saved(lambda source, old: ~source & old),
    "s_orn1_saveexec_b64": _saved(lambda source, old: ~source | old),
    "s_nand_saveexec_b64": _saved(lambda source, old: ~(source & old)),
    "s_nor_saveexec_b64": _saved(lambda source, old: ~(source | old)),
    "s_xnor_saveexec_b64": _saved(lambda source, old: ~(source ^ old)),
    "s_andn1_wrexec_b64": _saved(lambda source, old: ~source & old, writes_new=True),
    "s_andn2_wrexec_b64": _saved(lambda source, old: source & ~old, writes_new=True),
}
"""Mnemonic, to how it is bound."""
