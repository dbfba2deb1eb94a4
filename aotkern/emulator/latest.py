"""Memory instructions that take effect as late as their waits allow.

A wave's memory instructions are outstanding until a wait guarantees that they are done: `s_waitcnt` for the loads from
memory and LDS of its counters, in the order in which they were issued where hardware keeps it, and the end of the wave
for all. A counter that is full holds up further instructions, so the oldest is done by then. A barrier waits for
nothing. Until an instruction is done,

- a register that it loads must not be touched: `MissingWaitError`;
- what it does to LDS has not happened: LDS reads, writes and atomics, and loads from memory into LDS;
- what a wave publishes (`buffer_wbl2`) is not published.

Loads from memory into registers read at once, and stores to memory happen at once: compilers leave them outstanding at
barriers within a workgroup, where they stay in order on the way to memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotkern.emulator.control import Next
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.effects import Counter, Effects, effects, register_name
from aotkern.emulator.errors import MissingWaitError
from aotkern.emulator.observing import Observed, is_wide_cache_control, watch_of
from aotkern.emulator.operands import Operands
from aotkern.emulator.outstanding import IN_ORDER, Inputs, Outstanding, bits_of
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import SCALARS, Array, Waves

_NO_WAIT = 1 << 30
_WAIT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_MOVES_LANES = re.compile(r"ds_(b?permute|swizzle)")


@dataclass(frozen=True, slots=True)
class Late:
    """Puts what is late around each step of a program.

    Attributes:
        operands: What the kernel declares.
        watched: Whether a `Races` is told of every access.
    """

    operands: Operands
    watched: bool

    def step(self, instruction: Instruction, step: Step) -> Step:
        """Around the step of an instruction."""
        observed = Observed().step(instruction, step) if self.watched else step
        if instruction.name == "s_waitcnt":
            limits = {name: int(value) for name, value in _WAIT.findall(instruction.text)}
            vector, lds = limits.get("vmcnt", _NO_WAIT), limits.get("lgkmcnt", _NO_WAIT)
            return lambda w: w.queue.wait(w, vector, lds)
        effect = effects(instruction, self.operands)
        check = self._check(instruction, effect)
        if instruction.name == "buffer_wbl2" and is_wide_cache_control(instruction):
            effect = Effects(counter=Counter.VECTOR)
            return lambda w: w.queue.add(w, Outstanding(instruction, effect, observed))
        if effect.counter is None:
            return _checked(check, effect, observed)
        if _is_late(instruction):
            return _checked(check, effect, self._issue(instruction, effect, step))
        left = frozenset(("vmcnt", "lgkmcnt") if effect.counter is Counter.FLAT else ())

        def at_once(w: Waves) -> None:
            observed(w)
            w.queue.add(w, Outstanding(instruction, effect, left=left))

        return _checked(check, effect, at_once)

    def end(self, instruction: Instruction, after: Next) -> Next:
        """Around the end of a block, which may need registers too."""
        effect = effects(instruction, self.operands)
        check, touched = self._check(instruction, effect), bits_of(effect.reads | effect.writes)

        def checked(w: Waves) -> int | Array:
            if w.queue.loading & touched:
                check(w)
            return after(w)

        return checked

    def _issue(self, instruction: Instruction, effect: Effects, step: Step) -> Step:
        vector = sorted(number - SCALARS for number in effect.reads if number >= SCALARS)
        scalar = sorted(number for number in effect.reads if number < SCALARS)

        def issue(w: Waves) -> None:
            issued = None if w.arena.watch is None else watch_of(w).segments(w)
            inputs = Inputs.taken(w, vector, scalar)
            w.queue.add(w, Outstanding(instruction, effect, step, inputs, issued))

        return issue

    def _check(self, instruction: Instruction, effect: Effects) -> Step:
        """Raises `MissingWaitError` when the instruction touches a register that is still to be loaded."""

        def check(w: Waves) -> None:
            for entry in w.queue.entries:
                touched = entry.effect.writes & effect.reads
                in_order = effect.counter in IN_ORDER and entry.effect.counter is effect.counter
                if not in_order:  # else the later one's result comes later, too
                    touched |= entry.effect.writes & effect.writes
                if touched:
                    load, counter = entry.instruction, entry.effect.counter
                    name = register_name(min(touched), self.operands)
                    waits = "" if counter is None else counter.value
                    raise MissingWaitError(name, load.pc, load.text, waits, instruction.pc, instruction.text)

        return check


def _checked(check: Step, effect: Effects, step: Step) -> Step:
    touched = bits_of(effect.reads | effect.writes)

    def run(w: Waves) -> None:
        if w.queue.loading & touched:
            check(w)
        step(w)

    return run


def _is_late(instruction: Instruction) -> bool:
    """Whether an instruction does something to LDS."""
    name = instruction.name
    if name.startswith("ds_"):
        return not _MOVES_LANES.match(name)
    return name.startswith("global_load_lds") or instruction.modifier("lds") is not None
