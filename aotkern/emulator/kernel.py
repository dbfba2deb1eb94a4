"""What the emulator takes from a code object: its image as loaded, the kernel descriptor, the text."""

from __future__ import annotations

from dataclasses import dataclass

from aotkern.codeobject import amdgpu, elf
from aotkern.codeobject.descriptor import KernelDescriptor
from aotkern.codeobject.facts import Argument
from aotkern.target import Target


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as the emulator needs it.

    Attributes:
        target: What it was compiled for.
        image: The loadable part of the code object; addresses in the file are offsets here.
        text: Where the text begins and ends in the image.
        entry: Where the kernel begins.
        descriptor: Its descriptor.
        vgprs: Architectural VGPRs that it declares.
        agprs: AGPRs that it declares.
        arguments: Its arguments as the note states them, hidden ones included.
    """

    target: Target
    image: bytes
    text: tuple[int, int]
    entry: int
    descriptor: KernelDescriptor
    vgprs: int
    agprs: int
    arguments: tuple[Argument, ...] = ()

    @classmethod
    def read(cls, code: bytes, where: str = "code object") -> Kernel:
        """From the bytes of an HSACO.

        Raises:
            IntegrityError: Not an HSACO of a known architecture with exactly one kernel.
        """
        parsed = elf.parse(code, where)
        facts = amdgpu.read(parsed)
        descriptor = amdgpu.descriptor(parsed, facts.symbol)
        place = next(item for item in parsed.symbols(".dynsym") if item.name == f"{facts.symbol}.kd")
        text = parsed.section(".text")
        agprs = facts.resources.agprs
        return cls(
            target=facts.target,
            image=_mapped(code, parsed.loads),
            text=(text.address, text.address + text.size),
            entry=place.value + descriptor.entry_offset,
            descriptor=descriptor,
            # With AGPRs the count in the note is that of both files, so the first AGPR's place is the limit.
            vgprs=descriptor.accum_offset if agprs else facts.resources.vgprs,
            agprs=agprs,
            arguments=facts.arguments,
        )


def _mapped(code: bytes, loads: tuple[elf.Load, ...]) -> bytes:
    """The segments at their addresses, zeros between them."""
    image = bytearray(max(load.end for load in loads))
    for load in loads:
        image[load.address : load.address + load.size] = code[load.offset : load.offset + load.size]
    return bytes(image)
