"""Faults of machine code that show without running it.

Checked along every path from the kernel's entry, with and without preloaded arguments: results of loads used before
the wait that they need, registers that nothing has written on any path, branches that leave the text, and bytes that
are no instruction of the target. Not checked: hazards that need nops, memory contents (loads into LDS among them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from aotkern.emulator.control import branch_target
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.effects import Counter, Effects, effects, register_name
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.waves import EXEC, SCALARS
from aotkern.errors import EmulatorError

_PRELOAD_ENTRY = 256
_MOST = 63  # no counter goes beyond it, so older instructions need no exact age
_WAIT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")


class Fault(str, Enum):
    """The kinds of faults."""

    MISSING_WAIT = "missing wait"
    NEVER_WRITTEN = "register never written"
    LEAVES_TEXT = "leaves the text"
    NO_INSTRUCTION = "no instruction of the target"
    UNDECLARED = "register beyond the declared ones"
    UNKNOWN_JUMP = "jump that cannot be followed"


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    """One fault of the code.

    Attributes:
        pc: Offset of the instruction in the code object's image.
        fault: Its kind.
        instruction: The instruction as the disassembler spells it.
        detail: The register concerned, the branch's target, ...
    """

    pc: int
    fault: Fault
    instruction: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Pending:
    """A load that may be outstanding: which counter, and how many later ones it has at least been followed by."""

    counter: Counter
    later: int


@dataclass(frozen=True, slots=True)
class _State:
    """What is known before an instruction: registers written on some path, and loads outstanding on some path."""

    written: frozenset[int]
    pending: tuple[tuple[int, _Pending], ...] = ()

    def merged(self, other: _State) -> _State:
        """What is known where two paths meet."""
        pending = dict(self.pending)
        for register, load in other.pending:
            known = pending.get(register)
            pending[register] = load if known is None or load.later < known.later else known
        return _State(self.written | other.written, tuple(sorted(pending.items(), key=lambda item: item[0])))


def check(code: bytes, where: str = "code object") -> tuple[Flaw, ...]:
    """All faults of an HSACO, in the order of their places.

    Raises:
        IntegrityError: Not an HSACO of a known architecture with exactly one kernel.
        MissingToolError: The decoder is not installed.
    """
    kernel = Kernel.read(code, where)
    operands = Operands(kernel.vgprs, kernel.agprs, arch=kernel.target.arch)
    walk = _Walk(kernel, operands)
    for entry, state in _entries(kernel):
        walk.follow(entry, state)
    return tuple(sorted(walk.flaws))


def _entries(kernel: Kernel) -> list[tuple[int, _State]]:
    """Where waves may start, and which registers are set there."""
    descriptor = kernel.descriptor
    ids = sum(descriptor.workgroup_ids)
    always = {SCALARS, EXEC, EXEC + 1, *range(descriptor.user_sgprs, descriptor.user_sgprs + ids)}
    plain = range(descriptor.user_sgprs - descriptor.preload_dwords)
    entries = [(kernel.entry, _State(frozenset(always.union(plain))))]
    if descriptor.preload_dwords:
        entries.append((kernel.entry + _PRELOAD_ENTRY, _State(frozenset(always.union(range(descriptor.user_sgprs))))))
    return entries


class _Walk:
    """Follows the code until nothing new is learnt about any place where paths meet."""

    def __init__(self, kernel: Kernel, operands: Operands) -> None:
        self._kernel, self._operands = kernel, operands
        start, end = kernel.text
        self._listing = listing(kernel.image[start:end], kernel.target, start)
        self._known: dict[int, _State] = {}
        self._decoded: dict[int, tuple[Instruction, Effects]] = {}
        self.flaws: set[Flaw] = set()

    def follow(self, entry: int, state: _State) -> None:
        """Follow every path from an entry."""
        todo = [(entry, state)]
        while todo:
            pc, before = todo.pop()
            known = self._known.get(pc)
            merged = before if known is None else known.merged(before)
            if merged == known:
                continue
            self._known[pc] = merged
            todo.extend(self._block(pc, merged))

    def _block(self, pc: int, state: _State) -> list[tuple[int, _State]]:
        """From one place to the next branch; where the paths go on, and what is known there."""
        written, pending = set(state.written), dict(state.pending)
        seen: list[Instruction] = []
        while True:
            found = self._at(pc)
            if found is None:
                return []
            instruction, effect = found
            seen.append(instruction)
            self._judge(instruction, effect, written, pending)
            targets = self._targets(seen)
            if targets is not None:
                after = _State(frozenset(written), tuple(sorted(pending.items(), key=lambda item: item[0])))
                return [(target, after) for target in targets]
            pc = instruction.end

    def _at(self, pc: int) -> tuple[Instruction, Effects] | None:
        """The instruction at a place; None, and a flaw, where there is none."""
        if pc not in self._decoded:
            try:
                instruction = self._listing.at(pc)
                self._decoded[pc] = instruction, effects(instruction, self._operands)
            except EmulatorError as error:
                self._flaw(pc, Fault.NO_INSTRUCTION, error.instruction, self._kernel.target.arch)
                return None
            except OperandError as error:
                self._flaw(pc, Fault.UNDECLARED, instruction.text, str(error))
                return None
        return self._decoded[pc]

    def _judge(
        self, instruction: Instruction, effect: Effects, written: set[int], pending: dict[int, _Pending]
    ) -> None:
        """Note the flaws of one instruction, then what it changes."""
        for register in sorted(effect.reads | effect.writes):
            name = register_name(register, self._operands)
            if register in pending:
                self._flaw(
                    instruction.pc, Fault.MISSING_WAIT, instruction.text, f"{name}: {pending[register].counter.value}"
                )
            if register in effect.reads and register not in written:
                self._flaw(instruction.pc, Fault.NEVER_WRITTEN, instruction.text, name)
        if instruction.name == "s_waitcnt":
            _wait(instruction, pending)
        for register in effect.writes:
            pending.pop(register, None)
        written |= effect.writes
        if effect.counter is not None:
            _age(effect.counter, pending)
            pending |= dict.fromkeys(effect.writes, _Pending(effect.counter, 0))

    def _targets(self, seen: list[Instruction]) -> list[int] | None:
        """Where the last instruction leads, when it does not just go on."""
        last = seen[-1]
        if last.name == "s_endpgm":
            return []
        if last.name in ("s_setpc_b64", "s_swappc_b64"):
            target = _computed(seen)
            if target is None:
                self._flaw(last.pc, Fault.UNKNOWN_JUMP, last.text, last.operands[-1])
                return []
            targets = [target]
        elif last.name == "s_branch":
            targets = [branch_target(last)]
        elif last.name.startswith("s_cbranch"):
            targets = [branch_target(last), last.end]
        elif last.end >= self._kernel.text[1]:
            targets = [last.end]
        else:
            return None
        start, end = self._kernel.text
        for target in targets:
            if not start <= target < end or target % 4:
                self._flaw(last.pc, Fault.LEAVES_TEXT, last.text, f"{target:#x} is outside {start:#x} to {end:#x}")
        return [target for target in targets if start <= target < end and target % 4 == 0]

    def _flaw(self, pc: int, fault: Fault, text: str, detail: str) -> None:
        self.flaws.add(Flaw(pc, fault, text, detail))


def _wait(instruction: Instruction, pending: dict[int, _Pending]) -> None:
    """Take away what an `s_waitcnt` waits for; what arrives in any order needs a wait for none outstanding."""
    limits = {name: int(value) for name, value in _WAIT.findall(instruction.text)}
    vector, lds = limits.get("vmcnt", _MOST + 1), limits.get("lgkmcnt", _MOST + 1)
    done: dict[Counter, Callable[[_Pending], bool]] = {
        Counter.VECTOR: lambda load: load.later >= vector,
        Counter.LDS: lambda load: load.later >= lds,
        Counter.SCALAR: lambda _: lds == 0,
        Counter.FLAT: lambda _: lds == 0 and vector == 0,
    }
    for register, load in list(pending.items()):
        if done[load.counter](load):
            del pending[register]


def _age(counter: Counter, pending: dict[int, _Pending]) -> None:
    """One more instruction of a counter follows what is outstanding there."""
    if counter not in (Counter.VECTOR, Counter.LDS):
        return
    for register, load in pending.items():
        if load.counter is counter and load.later < _MOST:
            pending[register] = _Pending(counter, load.later + 1)


def _computed(seen: list[Instruction]) -> int | None:
    """The target of a long branch: `s_getpc_b64`, `s_add_u32` and `s_addc_u32` with constants, then the jump."""
    if len(seen) < 4:
        return None
    where, low, high = seen[-4:-1]
    names = (where.name, low.name, high.name)
    if names != ("s_getpc_b64", "s_add_u32", "s_addc_u32") or seen[-1].operands[-1] != where.operands[0]:
        return None
    try:
        offset = (int(low.operands[2], 0) & 0xFFFFFFFF) | (int(high.operands[2], 0) & 0xFFFFFFFF) << 32
    except ValueError:
        return None
    return (where.end + offset) & 0xFFFF_FFFF_FFFF_FFFF
