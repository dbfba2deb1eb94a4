"""Steps that tell a `Races` what they do to memory; in code that nobody watches they are not there."""

from __future__ import annotations

from typing import cast

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.races import Races
from aotkern.emulator.valu import Step
from aotkern.emulator.waves import Waves

_MEMORY = ("global_", "flat_", "buffer_", "ds_", "s_load", "s_buffer_load")


def observed(instruction: Instruction, step: Step) -> Step:
    """The step of an instruction, which says beforehand whose accesses follow."""
    name = instruction.name
    if name in ("buffer_wbl2", "buffer_inv"):
        if "sc1" not in instruction.text.split():  # no wider than the workgroup
            return step
        return _publish if name == "buffer_wbl2" else _renew
    if not name.startswith(_MEMORY):
        return step

    def run(w: Waves) -> None:
        _watch(w).at(w, instruction)
        step(w)

    return run


def _publish(w: Waves) -> None:
    _watch(w).publish(w)


def _renew(w: Waves) -> None:
    _watch(w).renew(w)


def _watch(w: Waves) -> Races:
    return cast(Races, w.arena.watch)
