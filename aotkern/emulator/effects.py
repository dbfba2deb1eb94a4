"""What an instruction reads, writes and leaves outstanding, from its spelling: for looking at code without running it.

Registers are numbers: a scalar register its own, a vector register 128 and its position in the unified file. SCC,
MODE and memory are not among them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from aotkern.emulator.control import WITHOUT_EFFECT
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import OperandError, Operands, Register, Spelling
from aotkern.emulator.waves import EXEC, M0, SCALARS, VCC


class Counter(Enum):
    """What counts an outstanding memory instruction.

    `VECTOR`: vmcnt, in order. `LDS`: lgkmcnt, in order. `SCALAR`: lgkmcnt, in any order. `FLAT`: both, in any order.
    """

    VECTOR = "vmcnt"
    LDS = "lgkmcnt"
    SCALAR = "lgkmcnt, any order"
    FLAT = "vmcnt and lgkmcnt"


@dataclass(frozen=True, slots=True)
class Effects:
    """What one instruction does to registers.

    Attributes:
        reads: Registers whose value it needs.
        writes: Registers that it sets, all lanes or some.
        counter: Where it counts as outstanding until its result has arrived or its store is done.
    """

    reads: frozenset[int] = frozenset()
    writes: frozenset[int] = frozenset()
    counter: Counter | None = None


_NO_RESULT = re.compile(
    r"s_cmp|s_bitcmp|s_cbranch|s_branch|s_setpc|s_setreg|s_endpgm|s_barrier"
    r"|(global|flat|scratch|buffer)_store|ds_write|global_load_lds"
)
_TWO_RESULTS = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_div_scale|v_mad_[ui]64")
_EXCHANGES = re.compile(r"v_swap|v_permlane\d+_swap")
_ACCUMULATES = re.compile(r"v_fmac|v_dot\dc|s_addk|s_mulk|s_cmov|s_bitset")
_ATOMIC = re.compile(r"(global|flat|buffer)_atomic")
_LDS_RESULT = re.compile(r"ds_(read|.*_rtn_|bpermute|permute|swizzle)")
_OWN_COUNTERS: tuple[tuple[str, Counter], ...] = (
    ("flat_", Counter.FLAT),
    ("global_", Counter.VECTOR),
    ("scratch_", Counter.VECTOR),
    ("buffer_", Counter.VECTOR),
    ("ds_", Counter.LDS),
    ("s_load", Counter.SCALAR),
    ("s_buffer_load", Counter.SCALAR),
)


def results(instruction: Instruction) -> int:
    """How many of the first operands are results."""
    name = instruction.name
    if _NO_RESULT.match(name) or instruction.modifier("lds") is not None:
        return 0
    if name.startswith("ds_"):
        return 1 if _LDS_RESULT.match(name) else 0
    if _ATOMIC.match(name):
        return 1 if instruction.modifier("sc0") is not None else 0
    return 2 if _TWO_RESULTS.match(name) or _EXCHANGES.match(name) else 1


def effects(instruction: Instruction, operands: Operands) -> Effects:
    """What an instruction reads, writes and leaves outstanding.

    Raises:
        OperandError: An operand that the kernel did not declare.
    """
    name = instruction.name
    if name in WITHOUT_EFFECT:
        return Effects()
    count = results(instruction)
    named = [_registers(text, operands) for text in instruction.operands]
    writes = frozenset[int]().union(*named[:count])
    reads = frozenset[int]().union(*named[count:])
    if _EXCHANGES.match(name) or _ACCUMULATES.match(name) or name.startswith("buffer_atomic"):
        reads |= frozenset[int]().union(*named[: max(count, 1)])
    counter = next((kind for prefix, kind in _OWN_COUNTERS if name.startswith(prefix)), None)
    return _implied(instruction, Effects(reads, writes, counter))


def _implied(instruction: Instruction, found: Effects) -> Effects:
    """Registers that an instruction uses without naming them."""
    name = instruction.name
    reads, writes = set(found.reads), set(found.writes)
    if name.startswith("v_div_fmas") or name in ("s_cbranch_vccz", "s_cbranch_vccnz"):
        reads |= {VCC, VCC + 1}
    if name.startswith("global_load_lds") or instruction.modifier("lds") is not None:
        reads.add(M0)
    if name.endswith("saveexec_b64") or name.startswith("v_cmpx"):
        writes |= {EXEC, EXEC + 1}
    return replace(found, reads=frozenset(reads), writes=frozenset(writes))


def _registers(text: str, operands: Operands) -> frozenset[int]:
    if text == "off" or text.startswith("hwreg("):
        return frozenset()
    body = text[5:-1] if text.startswith("sext(") else text
    try:
        found = operands.resolve(Spelling.parse(body).body)
    except OperandError:
        if re.match(r"[-|]*(v|s|a|ttmp)\[?\d", body):
            raise
        return frozenset()
    if not isinstance(found, Register):
        return frozenset()
    start = found.first + (SCALARS if found.file == "v" else 0)
    return frozenset(range(start, start + found.count))


def register_name(number: int, operands: Operands) -> str:
    """The spelling of a register by its number."""
    named = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi"}
    if number < SCALARS:
        return named.get(number, f"s{number}")
    position = number - SCALARS
    return f"v{position}" if position < operands.vgprs else f"a{position - operands.vgprs}"
