"""Faults of machine code that show without running it.

Checked along every path from the kernel's entry, with and without preloaded arguments: results of loads used before
the wait that they need, registers that nothing has written on any path, branches that leave the text, and bytes that
are no instruction of the target. At a barrier, this wave's own writes to LDS must have been waited for; a read of LDS
must not come before the wait for the only load that filled it. Calls are followed into the functions and back.

Not checked: hazards that need nops; which part of LDS a load into it fills, so that a pipeline of several such loads
is only looked at as a whole (the emulator's orders see more).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from aotkern.emulator.constants import Constants, Place, Values
from aotkern.emulator.control import branch_target, called
from aotkern.emulator.disassembler import Instruction, listing
from aotkern.emulator.effects import Counter, Effects, effects, register_name
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.operands import OperandError, Operands
from aotkern.emulator.waves import EXEC, SCALARS
from aotkern.errors import EmulatorError

_PRELOAD_ENTRY = 256
_MOST = {Counter.VECTOR: 63, Counter.LDS: 15}
"""How far the counters go whose instructions arrive in order."""
_UNLIMITED = 64  # more than any counter holds
_DEEPEST = 32  # calls inside one another
_TO_LDS = re.compile(r"ds_write|ds_(?!read|swizzle|permute|bpermute|nop)")
_FROM_LDS = re.compile(r"ds_read")
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
    """A memory instruction that may be outstanding.

    Attributes:
        counter: Which counter it is in.
        later: How many later ones of that counter it has at least been followed by. For one in two counters: 1 when
            the first has been waited for, 2 when the other has.
    """

    counter: Counter
    later: int

    def merged(self, other: _Pending) -> _Pending:
        """What is known of it where two paths meet."""
        if self.counter is Counter.FLAT and other.counter is Counter.FLAT:
            return _Pending(self.counter, self.later & other.later)
        return other if other.later < self.later else self


Stack = tuple[int, ...]
"""Where open calls return to, the innermost last."""
# In place of a register: LDS that this wave writes itself, and LDS that a load of it fills.
_LDS_WRITTEN, _LDS_FILLED, _LDS_FILLED_ONCE = -1, -2, -3
_BARRIERS = -4  # crossed since a load into LDS without any wait for vmcnt
_MANY_BARRIERS = 2


@dataclass(frozen=True, slots=True)
class _State:
    """What is known before an instruction.

    Attributes:
        written: Registers written on some path.
        pending: Memory instructions outstanding on some path, by the register that they set.
        values: What scalar registers hold on every path, as far as code addresses need it.
        stack: Where the calls that lead here return to.
    """

    written: frozenset[int]
    pending: tuple[tuple[int, _Pending], ...] = ()
    values: tuple[tuple[Place, int], ...] = ()
    stack: Stack = ()

    def merged(self, other: _State) -> _State:
        """What is known where two paths meet."""
        pending = dict(self.pending)
        for register, load in other.pending:
            known = pending.get(register)
            pending[register] = load if known is None else known.merged(load)
        values = tuple(item for item in self.values if item in other.values)
        return _State(self.written | other.written, _in_order(pending), values, self.stack)


def _in_order(pending: dict[int, _Pending]) -> tuple[tuple[int, _Pending], ...]:
    return tuple(sorted(pending.items(), key=lambda item: item[0]))


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
        self._known: dict[tuple[int, Stack], _State] = {}
        self._constants = Constants(operands)
        self._decoded: dict[int, tuple[Instruction, Effects]] = {}
        self.flaws: set[Flaw] = set()

    def follow(self, entry: int, state: _State) -> None:
        """Follow every path from an entry."""
        todo = [(entry, state)]
        while todo:
            pc, before = todo.pop()
            place = pc, before.stack
            known = self._known.get(place)
            merged = before if known is None else known.merged(before)
            if merged == known:
                continue
            self._known[place] = merged
            todo.extend(self._block(pc, merged))

    def _block(self, pc: int, state: _State) -> list[tuple[int, _State]]:
        """From one place to the next branch; where the paths go on, and what is known there."""
        written, pending, values = set(state.written), dict(state.pending), dict(state.values)
        while True:
            found = self._at(pc)
            if found is None:
                return []
            instruction, effect = found
            self._judge(instruction, effect, written, pending)
            ways = self._ways(instruction, values, state.stack)
            self._constants.follow(instruction, effect.writes, values)
            if ways is not None:
                known = frozenset(written), _in_order(pending), tuple(sorted(values.items(), key=repr))
                return [(target, _State(*known, stack)) for target, stack in ways]
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
            load = pending.get(register)
            if load is not None and not _overtakes(register, effect, load):
                self._flaw(instruction.pc, Fault.MISSING_WAIT, instruction.text, f"{name}: {load.counter.value}")
            if register in effect.reads and register not in written:
                self._flaw(instruction.pc, Fault.NEVER_WRITTEN, instruction.text, name)
        if instruction.name == "s_waitcnt":
            _wait(instruction, pending)
        elif instruction.name == "s_barrier":
            self._judge_barrier(instruction, pending)
        elif _FROM_LDS.match(instruction.name):
            self._judge_fill(instruction, written, pending)
        for register in effect.writes:
            pending.pop(register, None)
        written |= effect.writes
        if effect.counter is not None:
            _age(effect.counter, pending)
            pending |= dict.fromkeys(effect.writes, _Pending(effect.counter, 0))
            self._note_lds(instruction, effect.counter, written, pending)

    def _judge_barrier(self, instruction: Instruction, pending: dict[int, _Pending]) -> None:
        """Other waves read behind a barrier what this one wrote, and what its loads have filled."""
        if _LDS_WRITTEN in pending:
            self._flaw(instruction.pc, Fault.MISSING_WAIT, instruction.text, "LDS that ds_write sets: lgkmcnt")
        crossed = pending.get(_BARRIERS)
        if crossed is not None and crossed.later < _MANY_BARRIERS:
            pending[_BARRIERS] = _Pending(crossed.counter, crossed.later + 1)
        if crossed is not None and crossed.later + 1 >= _MANY_BARRIERS:
            detail = f"LDS that a load fills, without a wait over {_MANY_BARRIERS} barriers: vmcnt"
            self._flaw(instruction.pc, Fault.MISSING_WAIT, instruction.text, detail)

    def _judge_fill(self, instruction: Instruction, written: set[int], pending: dict[int, _Pending]) -> None:
        """A read of LDS while every load into LDS that there was may still be outstanding, and nothing else set it."""
        if _LDS_FILLED in pending and _LDS_FILLED not in written and _LDS_WRITTEN not in written:
            self._flaw(instruction.pc, Fault.MISSING_WAIT, instruction.text, "LDS that a load fills: vmcnt")

    def _note_lds(
        self, instruction: Instruction, counter: Counter, written: set[int], pending: dict[int, _Pending]
    ) -> None:
        """What is outstanding towards LDS; `written` keeps whether some of it has ever arrived."""
        if _TO_LDS.match(instruction.name):
            pending[_LDS_WRITTEN] = _Pending(counter, 0)
            written.add(_LDS_WRITTEN)
        elif instruction.name.startswith("global_load_lds") or instruction.modifier("lds") is not None:
            if _LDS_FILLED not in pending and _LDS_FILLED_ONCE in written:
                written.add(_LDS_FILLED)
            pending.setdefault(_LDS_FILLED, _Pending(counter, 0))  # the oldest: with it, some of LDS has arrived
            written.add(_LDS_FILLED_ONCE)
            pending.setdefault(_BARRIERS, _Pending(Counter.FLAT, 0))

    def _ways(self, last: Instruction, values: Values, stack: Stack) -> list[tuple[int, Stack]] | None:
        """Where an instruction leads and which calls are open there, when it does not just go on."""
        ways = self._leads(last, values, stack)
        if ways is None and last.end < self._kernel.text[1]:
            return None
        start, end = self._kernel.text
        inside = []
        for target, calls in [(last.end, stack)] if ways is None else ways:
            if not start <= target < end or target % 4:
                self._flaw(last.pc, Fault.LEAVES_TEXT, last.text, f"{target:#x} is outside {start:#x} to {end:#x}")
            elif len(calls) > _DEEPEST:
                self._flaw(last.pc, Fault.UNKNOWN_JUMP, last.text, f"more than {_DEEPEST} calls inside one another")
            else:
                inside.append((target, calls))
        return inside

    def _leads(self, last: Instruction, values: Values, stack: Stack) -> list[tuple[int, Stack]] | None:
        name = last.name
        if name == "s_endpgm":
            return []
        if name in ("s_setpc_b64", "s_swappc_b64"):
            return self._jumps(last, values, stack)
        if name == "s_call_b64":
            return [(called(last), (*stack, last.end))]
        if name == "s_branch":
            return [(branch_target(last), stack)]
        if name.startswith("s_cbranch"):
            return [(branch_target(last), stack), (last.end, stack)]
        return None

    def _jumps(self, jump: Instruction, values: Values, stack: Stack) -> list[tuple[int, Stack]]:
        target = self._constants.address(jump.operands[-1], values)
        if target is None and jump.name == "s_setpc_b64" and stack:
            target = stack[-1]  # the end of a function whose return address cannot be followed
        if target is None:
            self._flaw(jump.pc, Fault.UNKNOWN_JUMP, jump.text, jump.operands[-1])
            return []
        return [(target, _after_jump(jump, target, stack))]

    def _flaw(self, pc: int, fault: Fault, text: str, detail: str) -> None:
        self.flaws.add(Flaw(pc, fault, text, detail))


def _wait(instruction: Instruction, pending: dict[int, _Pending]) -> None:
    """Take away what an `s_waitcnt` waits for; what arrives in any order needs a wait for none outstanding."""
    limits = {name: int(value) for name, value in _WAIT.findall(instruction.text)}
    vector, lds = limits.get("vmcnt", _UNLIMITED), limits.get("lgkmcnt", _UNLIMITED)
    arrived = (vector == 0) + 2 * (lds == 0)
    done: dict[Counter, Callable[[_Pending], bool]] = {
        Counter.VECTOR: lambda load: load.later >= vector,
        Counter.LDS: lambda load: load.later >= lds,
        Counter.SCALAR: lambda _: lds == 0,
        Counter.FLAT: lambda load: load.later | arrived == 3,
    }
    for register, load in list(pending.items()):
        if register == _BARRIERS:
            if "vmcnt" in limits:
                del pending[register]
        elif done[load.counter](load):
            del pending[register]
        elif load.counter is Counter.FLAT:
            pending[register] = _Pending(load.counter, load.later | arrived)


def _age(counter: Counter, pending: dict[int, _Pending]) -> None:
    """One more instruction of a counter follows what is outstanding there.

    A full counter holds the next instruction back until one has arrived. What is followed by as many as the counter
    can count is therefore done.
    """
    most = _MOST.get(counter)
    if most is None:
        return
    for register, load in list(pending.items()):
        if load.counter is not counter:
            continue
        if load.later + 1 >= most:
            del pending[register]
        else:
            pending[register] = _Pending(counter, load.later + 1)


def _overtakes(register: int, effect: Effects, load: _Pending) -> bool:
    """Whether a register is only set again by a later load of the same counter, whose results arrive in order."""
    return register not in effect.reads and effect.counter is load.counter and load.counter in _MOST


def _after_jump(jump: Instruction, target: int, stack: Stack) -> Stack:
    """The open calls behind a jump: one more after a call, less after a return."""
    if jump.name == "s_swappc_b64":
        return (*stack, jump.end)
    return stack[: stack.index(target)] if target in stack else stack
