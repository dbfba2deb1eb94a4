"""Vector comparisons and the select that uses their masks.

A comparison writes one bit a lane to a scalar pair; bits of inactive lanes become zero. The `cmpx` forms write EXEC
as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Kind, OperandError, Operands
from aotkern.emulator.valu import Alu, Bind, Step, dpp_enable, source, writer
from aotkern.emulator.waves import EXEC, Array, Waves

Compare = Callable[[Array, Array], Any]


def _never(a: Array, b: Array) -> Any:
    return np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_)


def _always(a: Array, b: Array) -> Any:
    return ~_never(a, b)


_ORDER: dict[str, Compare] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_FLOAT: dict[str, Compare] = {
    **_ORDER,
    "f": _never,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
    "tru": _always,
}
_INTEGER: dict[str, Compare] = {**_ORDER, "ne": np.not_equal, "f": _never, "t": _always}


def classes(value: Array, wanted: Array) -> Array:
    """`v_cmp_class`: whether a float belongs to one of the classes whose bits are set in `wanted`.

    Bits 0 to 9: signalling NaN, quiet NaN, -infinity, -normal, -denormal, -0, +0, +denormal, +normal, +infinity.
    """
    info = np.finfo(value.dtype)
    bits = value.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])
    quiet = ((bits >> bits.dtype.type(info.nmant - 1)) & bits.dtype.type(1)).astype(np.bool_)
    size, negative = np.abs(value), np.signbit(value)
    kind = np.select([np.isinf(value), size >= info.tiny, size > 0], [0, 1, 2], 3)
    number = np.where(np.isnan(value), np.where(quiet, 1, 0), np.where(negative, 2 + kind, 9 - kind))
    return np.asarray((wanted >> number.astype(np.uint32)) & np.uint32(1)).astype(np.bool_)


def _comparison(kind: Kind, second: Kind, compare: Compare, *, also_exec: bool) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        spelt = list(instruction.operands)
        target = operands.scalar(spelt.pop(0), 2) if len(spelt) == 3 else EXEC
        if len(spelt) != 2:
            raise OperandError(f"expected two sources, found {len(spelt)}")
        left = source(instruction, operands, 0, spelt[0], kind)
        right = source(instruction, operands, 1, spelt[1], second)

        def step(w: Waves) -> None:
            flags = compare(left(w), right(w))
            w.write_mask(target, flags)

        def step_exec(w: Waves) -> None:
            step(w)
            w.scalar_u64[EXEC // 2] = w.scalar_u64[target // 2]
            w.exec_changed()

        return step_exec if also_exec or target == EXEC else step

    return bind


def select(instruction: Instruction, operands: Operands) -> Step:
    """`v_cndmask_b32`: the second source where a lane's bit is set, else the first."""
    target = operands.vector(instruction.operands[0])
    no = source(instruction, operands, 0, instruction.operands[1], "u32")
    yes = source(instruction, operands, 1, instruction.operands[2], "u32")
    pair = operands.scalar(instruction.operands[3], 2)
    write = writer(Alu("u32", (), np.bitwise_or), instruction, target)
    enable = dpp_enable(instruction) if instruction.encoding == "dpp" else None

    def step(w: Waves) -> None:
        value = np.where(w.flags(pair), yes(w), no(w))
        write(w, value, w.mask if enable is None else enable(w))

    return step


def _all() -> dict[str, Bind]:
    table: dict[str, Bind] = {"v_cndmask_b32": select}
    kinds: tuple[tuple[Kind, dict[str, Compare]], ...] = (
        ("f16", _FLOAT),
        ("f32", _FLOAT),
        ("f64", _FLOAT),
        ("i16", _INTEGER),
        ("u16", _INTEGER),
        ("i32", _INTEGER),
        ("u32", _INTEGER),
        ("i64", _INTEGER),
        ("u64", _INTEGER),
    )
    for prefix, also_exec in (("v_cmp", False), ("v_cmpx", True)):
        for kind, compares in kinds:
            for name, compare in compares.items():
                table[f"{prefix}_{name}_{kind}"] = _comparison(kind, kind, compare, also_exec=also_exec)
        for kind in ("f16", "f32", "f64"):
            table[f"{prefix}_class_{kind}"] = _comparison(kind, "u32", classes, also_exec=also_exec)
    return table


COMPARE: dict[str, Bind] = _all()
"""Mnemonic without its encoding suffix, to how it is bound."""
