"""The one table: mnemonic, without its encoding suffix, to how it is bound and which modifiers it may carry."""

from __future__ import annotations

from aotkern.emulator.control import CONTROL, WITHOUT_EFFECT
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.global_memory import GLOBAL_MEMORY, MEMORY_MODIFIERS
from aotkern.emulator.lds import LDS, LDS_MODIFIERS
from aotkern.emulator.matrix import MATRIX
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.scalar import SCALAR
from aotkern.emulator.scalar_memory import SCALAR_MEMORY, SCALAR_MEMORY_MODIFIERS
from aotkern.emulator.valu import ALU_MODIFIERS, DPP_MODIFIERS, SDWA_MODIFIERS, Bind, Step
from aotkern.emulator.vector_compare import COMPARE
from aotkern.emulator.vector_convert import CONVERT
from aotkern.emulator.vector_float import FLOAT
from aotkern.emulator.vector_half import HALF, MIXED
from aotkern.emulator.vector_integer import INTEGER
from aotkern.emulator.vector_lanes import LANE_MOVES
from aotkern.emulator.vector_packed import PACKED
from aotkern.emulator.vector_scaled import SCALED
from aotkern.emulator.vector_short import SHORT

_ENCODED = SDWA_MODIFIERS | DPP_MODIFIERS
_HALVES = frozenset(("op_sel", "op_sel_hi", "neg_lo", "neg_hi"))
_SCALED = frozenset(("op_sel", "op_sel_hi", "cbsz", "blgp"))

_FAMILIES: tuple[tuple[dict[str, Bind], frozenset[str]], ...] = (
    (SCALAR, frozenset()),
    (SCALAR_MEMORY, SCALAR_MEMORY_MODIFIERS),
    (CONTROL, frozenset()),
    (INTEGER, ALU_MODIFIERS | {"bitop3"}),
    (FLOAT, ALU_MODIFIERS),
    (CONVERT, ALU_MODIFIERS),
    (SCALED, frozenset(("op_sel",))),
    (HALF, ALU_MODIFIERS),
    (MIXED, frozenset(("op_sel", "op_sel_hi", "clamp"))),
    (SHORT, ALU_MODIFIERS),
    (COMPARE, _ENCODED | {"op_sel"}),
    (PACKED, _HALVES | {"clamp"}),
    (MATRIX, frozenset()),
    (LANE_MOVES, frozenset(("offset",))),
    (LDS, LDS_MODIFIERS),
    (GLOBAL_MEMORY, MEMORY_MODIFIERS),
)

BEHAVIOURS: dict[str, Bind] = {name: bind for family, _ in _FAMILIES for name, bind in family.items()}
"""Every mnemonic that the emulator knows, apart from those that end a block."""
_MODIFIERS = {name: allowed for family, allowed in _FAMILIES for name in family}
_MODIFIERS |= {name: _SCALED for name in MATRIX if name.endswith("f8f6f4")}


def bind(instruction: Instruction, operands: Operands) -> Step:
    """The step that runs one instruction.

    Raises:
        OperandError: An instruction, a modifier or an operand that the emulator does not know.
    """
    behaviour = BEHAVIOURS.get(instruction.name)
    if behaviour is None:
        raise OperandError("the emulator does not know this instruction")
    if instruction.name not in WITHOUT_EFFECT:
        for name, _ in instruction.modifiers:
            if name not in _MODIFIERS[instruction.name]:
                raise OperandError(f"the emulator does not know the modifier {name!r} here")
    return behaviour(instruction, operands)
