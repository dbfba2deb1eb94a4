"""Machine code of gfx942 and gfx950 as instructions, decoded by AMD's own LLVM.

Only the decoder's text is taken apart here: mnemonic, operands, modifiers. What an instruction means is the business
of the tables in this package. The decoder is the shared library of the PyPI package `rocm-llvm-python`, reached through
LLVM's C interface; without that package `disassemble` raises `MissingToolError`.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from aotkern.errors import EmulatorError, MissingToolError
from aotkern.target import Target

_LONGEST = 24  # bytes that are shown to the decoder for one instruction; the longest encoding has 16
_SPLIT = re.compile(r",\s*(?![^\[(]*[\])])")
_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp|e64_dpp)$")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction.

    Attributes:
        pc: Address of its first byte: the `base` given to `disassemble` plus the offset in the text.
        code: Its bytes.
        text: The whole instruction as LLVM spells it, with single spaces.
        mnemonic: Its first word, with the encoding suffix (`v_add_u32_e32`).
        operands: The operands in order, as spelt (`v[0:1]`, `-|v3|`, `0x7f800000`).
        modifiers: What follows the operands, as pairs (`("offset", "16")`); a flag has an empty value.
    """

    pc: int
    code: bytes
    text: str
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: tuple[tuple[str, str], ...]

    @property
    def end(self) -> int:
        """Address of the first byte after it."""
        return self.pc + len(self.code)

    @property
    def name(self) -> str:
        """The mnemonic without the suffix that names the encoding."""
        return _SUFFIX.sub("", self.mnemonic)

    @property
    def encoding(self) -> str:
        """`e32`, `e64`, `sdwa`, `dpp`, or an empty string where the family has only one."""
        found = _SUFFIX.search(self.mnemonic)
        return found[1] if found else ""

    def modifier(self, name: str) -> str | None:
        """The value of a modifier, an empty string for a flag, None when it is absent."""
        return dict(self.modifiers).get(name)

    def number(self, name: str) -> int:
        """The value of a modifier as an integer, 0 when it is absent."""
        return int(self.modifier(name) or "0", 0)

    def bits(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """The value of a modifier such as `op_sel:[0,1]`, or `default` when it is absent."""
        value = self.modifier(name)
        return default if value is None else tuple(int(bit) for bit in value.strip("[]").split(","))

    @classmethod
    def parse(cls, pc: int, code: bytes, text: str) -> Instruction:
        """Take LLVM's spelling of one instruction apart."""
        words = " ".join(text.split())
        mnemonic, _, rest = words.partition(" ")
        operands: list[str] = []
        modifiers: list[tuple[str, str]] = []
        for piece in _SPLIT.split(rest) if rest else ():
            first, *others = re.findall(r"(?:[^\s(\[]|\([^)]*\)|\[[^\]]*\])+", piece)
            operands.append(first)
            modifiers.extend((name, value) for name, _, value in (word.partition(":") for word in others))
        return cls(pc, code, words, mnemonic, tuple(operands), tuple(modifiers))


def disassemble(text: bytes, target: Target, base: int = 0) -> tuple[Instruction, ...]:
    """Decode a whole text section.

    Args:
        text: Machine code; it must begin at an instruction.
        target: `hip:gfx942` or `hip:gfx950`; its features play no part.
        base: Address of the first byte.

    Returns:
        The instructions in order; together they cover `text` exactly.

    Raises:
        EmulatorError: Some bytes are no instruction of this target.
        MissingToolError: `rocm-llvm-python` is not installed.
    """
    found: list[Instruction] = []
    at = 0
    while at < len(text):
        found.append(decode(text, target, at, base))
        at += len(found[-1].code)
    return tuple(found)


def decode(text: bytes, target: Target, at: int, base: int = 0) -> Instruction:
    """Decode the one instruction at offset `at` of a text section; arguments and errors as for `disassemble`."""
    window = bytes(text[at : at + _LONGEST])
    spelling = ctypes.create_string_buffer(512)
    size = _library().LLVMDisasmInstruction(_decoder(target.arch), window, len(window), base + at, spelling, 512)
    if size == 0:
        raise EmulatorError(f"no instruction of {target.arch}", base + at, f".long 0x{window[3::-1].hex()}")
    return Instruction.parse(base + at, window[:size], spelling.value.decode())


@cache
def _library() -> ctypes.CDLL:
    found = find_spec("rocm.llvm") if find_spec("rocm") else None
    places = found.submodule_search_locations if found and found.submodule_search_locations else ()
    for place in places:
        path = Path(place) / "librocmllvm.so"
        if path.is_file():
            return _prepared(ctypes.CDLL(str(path)))
    raise MissingToolError("rocm-llvm-python", "to decode AMD machine code", "pip install 'aotkern[emulator]'")


def _prepared(library: ctypes.CDLL) -> ctypes.CDLL:
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    text, number, pointer = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p
    library.LLVMCreateDisasmCPU.restype = pointer
    library.LLVMCreateDisasmCPU.argtypes = [text, text, pointer, ctypes.c_int, pointer, pointer]
    library.LLVMDisasmInstruction.restype = ctypes.c_size_t
    library.LLVMDisasmInstruction.argtypes = [pointer, text, number, number, text, ctypes.c_size_t]
    return library


@cache
def _decoder(arch: str) -> ctypes.c_void_p:
    made = _library().LLVMCreateDisasmCPU(b"amdgcn-amd-amdhsa", arch.encode(), None, 0, None, None)
    if made is None:
        raise EmulatorError(f"the decoder does not know {arch}")
    return ctypes.c_void_p(made)
