"""The process in which LLVM decodes: a crash of its decoder ends this process and not the one that asks.

A program of its own, started by `decoder` by its path, with nothing but the standard library. It reads requests from
its standard input and answers each on its standard output, until the input ends. All numbers are little endian.

    request    16 bytes of architecture, u64 address of the first byte, u32 most instructions (0: all), u8 careful,
               u32 length of the text, the text
    answer     for each place in turn: u8 size (0: no instruction there, go on 4 bytes further), u16 length, spelling;
               then u8 255

A careful answer is flushed after every place, so that a crash tells the place where it happened.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import BinaryIO

REQUEST = struct.Struct("<16sQIBI")
RECORD = struct.Struct("<BH")
END = b"\xff"
_LONGEST = 24  # bytes that are shown to the decoder for one instruction; the longest encoding has 16
_SPELLING = 512


def forbidden(first: int, second: int) -> bool:
    """Whether two words are an instruction in a long encoding (VOP3, VOP3P) with a literal constant as a source.

    No gfx9 has literals there, and LLVM's decoder reads beyond its buffer, or an operand that is not there.
    """
    return first >> 26 == 0b110100 and 0xFF in (second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF)


def opened(path: str) -> ctypes.CDLL:
    """LLVM's library, its AMD part initialised.

    Raises:
        OSError: It cannot be loaded.
    """
    library = ctypes.CDLL(path)
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    text, number, pointer = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p
    library.LLVMCreateDisasmCPU.restype = pointer
    library.LLVMCreateDisasmCPU.argtypes = [text, text, pointer, ctypes.c_int, pointer, pointer]
    library.LLVMDisasmInstruction.restype = ctypes.c_size_t
    library.LLVMDisasmInstruction.argtypes = [pointer, pointer, number, number, text, ctypes.c_size_t]
    return library


class _Decoders:
    """One decoder for each architecture, made when it is first asked for."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._made: dict[bytes, int] = {}

    def of(self, arch: bytes) -> int:
        """The decoder; 0 for an architecture that LLVM does not know."""
        if arch not in self._made:
            made = self._library.LLVMCreateDisasmCPU(b"amdgcn-amd-amdhsa", arch, None, 0, None, None)
            self._made[arch] = made or 0
        return self._made[arch]


def answer(library: ctypes.CDLL, decoder: int, request: tuple[int, int, int], text: bytes, out: BinaryIO) -> None:
    """Decode a text from its first byte, place by place.

    Args:
        library: LLVM's.
        decoder: For the architecture; 0 when there is none, and then no place holds an instruction.
        request: Address of the first byte, most instructions (0: all), whether to flush after each.
        text: The machine code.
        out: Where records go.
    """
    base, most, careful = request
    padded = text + bytes(_LONGEST)
    view = ctypes.create_string_buffer(padded, len(padded))
    start = ctypes.addressof(view)
    spelling = ctypes.create_string_buffer(_SPELLING)
    decode, pack = library.LLVMDisasmInstruction, RECORD.pack
    words = memoryview(padded[: len(padded) // 4 * 4]).cast("I")
    at, count, length = 0, 0, len(text)
    while at + 4 <= length and not (most and count == most):
        index = at // 4
        size = 0
        if decoder and not forbidden(words[index], words[index + 1]):
            size = decode(decoder, start + at, _LONGEST, base + at, spelling, _SPELLING)
        if size % 4 or size > length - at:
            size = 0
        found = spelling.value if size else b""
        out.write(pack(size, len(found)) + found)
        if careful:
            out.flush()
        at += size or 4
        count += 1
    out.write(END)
    out.flush()


def serve(path: str, asked: BinaryIO, out: BinaryIO) -> None:
    """Answer requests until there are no more."""
    library = opened(path)
    decoders = _Decoders(library)
    while len(head := asked.read(REQUEST.size)) == REQUEST.size:
        arch, base, most, careful, length = REQUEST.unpack(head)
        text = asked.read(length)
        answer(library, decoders.of(arch.rstrip(b"\0")), (base, most, careful), text, out)


def _without_core_dump() -> None:
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _without_core_dump()
    with open(0, "rb") as asked, open(1, "wb") as out:
        serve(sys.argv[1], asked, out)
