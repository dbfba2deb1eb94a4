"""Single instructions: assembled by Triton's assembler, bound and run on one wave whose registers a test sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from aotkern.codeobject import elf
from aotkern.emulator.arena import Arena, Region
from aotkern.emulator.control import Code
from aotkern.emulator.disassembler import Instruction, disassemble
from aotkern.emulator.operands import Operands
from aotkern.emulator.program import Program
from aotkern.emulator.table import bind
from aotkern.emulator.waves import POISON, Waves
from aotkern.target import Target

LANES = 64
GLOBAL = 0x7000_0000_0000
EXECUTED: set[str] = set()
"""Names of the instructions that benches of this process were asked to run."""


@cache
def assembled(text: str, arch: str) -> bytes:
    """The machine code of some instructions."""
    from triton.backends.amd.compiler import assemble_amdgcn

    source = f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n.text\n{text}\n'
    parsed = elf.parse(bytes(assemble_amdgcn(source, arch, "")), "assembled")
    return bytes(parsed.section(".text").data)


class Bench:
    """One wave (or several) with registers, LDS, scratch and one global buffer of 4096 bytes.

    Vector registers are `v[n]`, `(waves, 64)` uint32; AGPR n is `v[256 + n]`. Scalars are set with `scalar`.
    """

    def __init__(
        self, arch: str = "gfx950", waves: int = 1, lds: int = 4096, groups: Sequence[int] | None = None
    ) -> None:
        self.arch = arch
        self.memory = np.zeros(4096, np.uint8)
        self.lds = np.full(lds * waves // 4, POISON, np.uint32).view(np.uint8)
        self.scratch = np.full(64 * waves * 64 // 4, POISON, np.uint32).view(np.uint8)
        regions = (Region("the buffer", GLOBAL, self.memory, True),)
        places = Region("LDS", 0, self.lds, True), Region("scratch", 0, self.scratch, True)
        self.arena = Arena(regions, places[0], lds, lds, places[1], 64, 64)
        group = np.zeros(waves, np.int64) if groups is None else np.array(groups)
        self.waves = Waves.fresh(self.arena, np.arange(waves), group, 512)
        self.v = self.waves.vector

    @property
    def exec(self) -> int:
        return int(self.waves.scalar_u64[63, 0])

    @exec.setter
    def exec(self, lanes: int) -> None:
        self.waves.scalar_u64[63] = lanes
        self.waves.exec_changed()

    def set(self, register: int, values: Any) -> None:
        """Set a vector register of every lane, from integers or from arrays of any 32-bit type."""
        array = np.asarray(values)
        self.v[register] = array.view(np.uint32) if array.dtype.itemsize == 4 else array.astype(np.uint32)

    def set_wide(self, register: int, values: Any) -> None:
        """Set a pair of vector registers from 64-bit values."""
        whole = np.asarray(values, np.uint64)
        self.v[register], self.v[register + 1] = whole & np.uint64(0xFFFFFFFF), whole >> np.uint64(32)

    def wide(self, register: int) -> list[int]:
        """A pair of vector registers as 64-bit integers, lane by lane."""
        return [int(a) | int(b) << 32 for a, b in zip(self.v[register, 0], self.v[register + 1, 0], strict=True)]

    def lanes(self, register: int) -> list[int]:
        """A vector register of the first wave, lane by lane."""
        return [int(value) for value in self.v[register, 0]]

    def scalar(self, register: int, value: int | None = None, bits: int = 32) -> int:
        """Read or set a scalar register or pair, of all waves."""
        whole = (
            self.waves.scalar_u64[register // 2] if bits == 64 else self.waves.scalar[register // 2, :, register % 2]
        )
        if value is not None:
            whole[:] = value
        return int(whole[0])

    def instructions(self, text: str) -> tuple[Instruction, ...]:
        """The decoded instructions of an assembly text."""
        found = disassemble(assembled(text, self.arch), Target.parse(self.arch))
        EXECUTED.update(instruction.name for instruction in found)
        return found

    def run(self, text: str) -> Bench:
        """Run instructions that do not branch, one after another."""
        operands = Operands(256, 256, arch=self.arch)
        for instruction in self.instructions(text):
            with np.errstate(all="ignore"):
                bind(instruction, operands)(self.waves)
        return self

    def program(self, text: str) -> Program:
        """Instructions that do branch, as a program that begins at 0."""
        self.instructions(text)
        code = assembled(text, self.arch)
        return Program(code, 0, len(code), Target.parse(self.arch), Operands(256, 256, arch=self.arch), Code(0))


def each_lane(function: Callable[..., int], *columns: Sequence[int]) -> list[int]:
    """A plain-Python statement of an instruction, applied lane by lane."""
    return [function(*lane) for lane in zip(*columns, strict=True)]
