"""Machine code of gfx942 and gfx950 as instructions, decoded by AMD's own LLVM.

Only the decoder's text is taken apart here: mnemonic, operands, modifiers. What an instruction means is the business
of the tables in this package. The decoder is the shared library of the PyPI package `rocm-llvm-python`, which `decoder`
holds in a process of its own; without that package `disassemble` raises `MissingToolError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from aotkern.emulator.decoder import spelt
from aotkern.errors import EmulatorError
from aotkern.target import Target

_SPLIT = re.compile(r",\s*(?![^\[(]*[\])])")
_WORDS = re.compile(r"(?:[^\s(\[]|\([^)]*\)|\[[^\]]*\])+")
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
        return cls(pc, code, *_taken_apart(text))


@lru_cache(maxsize=1 << 16)
def _taken_apart(text: str) -> tuple[str, str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The text with single spaces, the mnemonic, the operands and the modifiers: the same for every equal spelling."""
    words = " ".join(text.split())
    mnemonic, _, rest = words.partition(" ")
    operands: list[str] = []
    modifiers: list[tuple[str, str]] = []
    for piece in _SPLIT.split(rest) if rest else ():
        first, *others = _WORDS.findall(piece)
        operands.append(first)
        modifiers.extend((name, value) for name, _, value in (word.partition(":") for word in others))
    return words, mnemonic, tuple(operands), tuple(modifiers)


class Listing:
    """The instructions of one text, decoded all at once from its first byte.

    A place inside of one of them, where only a jump can lead, is decoded when it is asked for.

    Args:
        text: Machine code.
        target: `hip:gfx942` or `hip:gfx950`; its features play no part.
        base: Address of the first byte.

    Raises:
        EmulatorError: The decoder died again and again over this text.
        MissingToolError: `rocm-llvm-python` is not installed.
    """

    def __init__(self, text: bytes, target: Target, base: int = 0) -> None:
        self._text, self._arch, self._base = text, target.arch, base
        self._spelt = dict(spelt(text, self._arch, base))
        self._made: dict[int, Instruction] = {}

    def at(self, address: int) -> Instruction:
        """The instruction at an address.

        Raises:
            EmulatorError: The bytes there are no instruction of this target, or lie outside of the text.
        """
        known = self._made.get(address)
        if known is None:
            known = self._made[address] = self._parsed(address)
        return known

    def _parsed(self, address: int) -> Instruction:
        offset = address - self._base
        if not 0 <= offset < len(self._text):
            raise EmulatorError("the code runs out of its text", address)
        if offset not in self._spelt:
            for further, found in spelt(self._text[offset:], self._arch, address, most=16):
                self._spelt.setdefault(offset + further, found)
        size, text = self._spelt.get(offset, (0, ""))
        if size == 0:
            word = self._text[offset : offset + 4][::-1].hex()
            raise EmulatorError(f"no instruction of {self._arch}", address, f".long 0x{word}")
        return Instruction.parse(address, self._text[offset : offset + size], text)


@lru_cache(maxsize=64)
def listing(text: bytes, target: Target, base: int = 0) -> Listing:
    """The listing of a text; the latest ones are kept. Arguments and errors as for `Listing`."""
    return Listing(text, target, base)


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
    whole = listing(bytes(text), target, base)
    found: list[Instruction] = []
    at = base
    while at < base + len(text):
        found.append(whole.at(at))
        at = found[-1].end
    return tuple(found)
