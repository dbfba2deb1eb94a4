"""Steps that tell a `Races` what they do to memory; in code that nobody watches they are not there."""

from __future__ import annotations

from typing import cast

from aotkern.emulator.control import Next
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.races import Races
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import Waves

_MEMORY = ("global_", "flat_", "buffer_", "ds_", "s_load", "s_buffer_load")

_CACHE_CONTROL = ("buffer_wbl2", "buffer_inv")


def is_wide_cache_control(instruction: Instruction) -> bool:
    """Whether an instruction publishes or renews memory beyond the workgroup."""
    return instruction.name in _CACHE_CONTROL and "sc1" in instruction.text.split()


class Observed:
    """Tells a `Races` beforehand whose accesses follow."""

    def step(self, instruction: Instruction, step: Step) -> Step:
        """Around the step of an instruction."""
        name = instruction.name
        if is_wide_cache_control(instruction):
            return _publish if name == "buffer_wbl2" else _renew
        if not name.startswith(_MEMORY) or name in _CACHE_CONTROL:
            return step

        def run(w: Waves) -> None:
            watch_of(w).at(w, instruction)
            step(w)

        return run

    def end(self, _: Instruction, after: Next) -> Next:
        """Around the end of a block: nothing."""
        return after


def _publish(w: Waves) -> None:
    watch_of(w).publish(w)


def _renew(w: Waves) -> None:
    watch_of(w).renew(w)


def watch_of(w: Waves) -> Races:
    """Who watches these waves."""
    return cast(Races, w.arena.watch)
