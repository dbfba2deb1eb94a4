"""What the emulator takes from a code object: its image as loaded, the kernel descriptor, the text."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from aotkern.errors import EmulatorError
from aotkern.target import Target

_ARCH = {0x4C: "gfx942", 0x4F: "gfx950"}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The 64 bytes that a loader reads before a launch (LLVM: "code object V3 kernel descriptor").

    Attributes:
        lds: Static LDS in bytes.
        scratch: Scratch of one lane in bytes.
        entry: Offset of the code from the descriptor.
        rsrc1: COMPUTE_PGM_RSRC1, likewise rsrc2, rsrc3.
        properties: Which user SGPRs there are.
        preload: Dwords of kernel arguments that are preloaded (bits 0 to 6), and the first one (bits 7 to 15).
    """

    lds: int
    scratch: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: int

    @classmethod
    def parse(cls, raw: bytes) -> Descriptor:
        """From its 64 bytes."""
        lds, scratch = struct.unpack_from("<II", raw, 0)
        (entry,) = struct.unpack_from("<q", raw, 16)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
        return cls(lds, scratch, entry, rsrc1, rsrc2, rsrc3, properties, preload)

    @property
    def vgprs(self) -> int:
        """Architectural VGPRs of a lane."""
        return min(((self.rsrc3 & 0x3F) + 1) * 4, self.registers)

    @property
    def registers(self) -> int:
        """All vector registers of a lane, AGPRs included."""
        return ((self.rsrc1 & 0x3F) + 1) * 8


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as the emulator needs it.

    Attributes:
        target: What it was compiled for.
        image: The loadable part of the code object; addresses in the file are offsets here.
        text: Where the text begins and ends.
        entry: Where the kernel begins.
        descriptor: Its descriptor.
    """

    target: Target
    image: bytes
    text: tuple[int, int]
    entry: int
    descriptor: Descriptor

    @classmethod
    def read(cls, code: bytes) -> Kernel:
        """From the bytes of an HSACO with one kernel.

        Raises:
            EmulatorError: Not a code object that the emulator can run.
        """
        elf = ELFFile(io.BytesIO(code))
        arch = _ARCH.get(elf["e_flags"] & 0xFF)
        if arch is None:
            raise EmulatorError(f"code object for an unknown architecture, e_flags {elf['e_flags']:#x}")
        loaded = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        image = bytearray(max(segment["p_vaddr"] + segment["p_memsz"] for segment in loaded))
        for segment in loaded:
            image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
        text, symbols = elf.get_section_by_name(".text"), elf.get_section_by_name(".symtab")
        symbols = symbols or elf.get_section_by_name(".dynsym")
        at = [symbol["st_value"] for symbol in symbols.iter_symbols() if symbol.name.endswith(".kd")]
        if len(at) != 1:
            raise EmulatorError(f"expected one kernel in the code object, found {len(at)}")
        descriptor = Descriptor.parse(bytes(image[at[0] : at[0] + 64]))
        span = (text["sh_addr"], text["sh_addr"] + text["sh_size"])
        return cls(Target.parse(arch), bytes(image), span, at[0] + descriptor.entry, descriptor)
