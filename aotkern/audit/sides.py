"""What audits look at: an opened bundle or a manifest by itself, told apart by its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotkern.bundle import MAGIC, Bundle
from aotkern.codeobject import section_bytes
from aotkern.codeobject.facts import CodeObject, Role
from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.manifest import Manifest
from aotkern.target import Backend

if TYPE_CHECKING:
    from aotkern.emulator.disassembler import Instruction


@dataclass(frozen=True, slots=True)
class Side:
    """A manifest with a name, and its code objects where they are at hand: one side of a comparison.

    Attributes:
        label: What it is, for people: a file, a git revision, "today's sources".
        manifest: Its content, checked.
        read: Gives the bytes of a code object, or None for a manifest alone.
        aside: Keys of variants that its sources declare and that were not built, because nobody asked for them.
        doubt: Why this is not what the label says, or nothing.
    """

    label: str
    manifest: Manifest
    read: Callable[[Digest], bytes] | None = None
    doubt: str = ""
    aside: tuple[str, ...] = ()

    @classmethod
    def bundle(cls, path: Path, known: dict[Digest, CodeObject] | None = None) -> Side:
        """A bundle of which everything is verified.

        Args:
            path: The file.
            known: What was read from code objects before, by digest; the sides of one comparison share it.

        Raises:
            InputError: The file cannot be read.
            IntegrityError: It does not verify.
        """
        bundle = Bundle.open(path)
        bundle.verify(known)
        return cls(str(path), bundle.manifest, bundle.object)

    @classmethod
    def either(cls, path: Path, known: dict[Digest, CodeObject] | None = None) -> Side:
        """A bundle or a manifest; arguments and errors as for `bundle`."""
        try:
            with path.open("rb") as file:
                head = file.read(len(MAGIC))
                data = head + (b"" if head == MAGIC else file.read())
        except OSError as error:
            raise InputError.one(str(path), "a bundle or a manifest", error.strerror or str(error)) from error
        if head == MAGIC:
            return cls.bundle(path, known)
        manifest = Manifest.parse(data, str(path))
        manifest.check(str(path), data)
        return cls(str(path), manifest)


def instructions(side: Side, digest: Digest) -> tuple[Instruction, ...]:
    """The instructions of one code object, their places counted from the start of its code.

    Raises:
        InputError: Only a manifest is at hand, or the target is not an AMD one.
        MissingToolError: The disassembler is not installed.
        EmulatorError: Some bytes are no instructions.
    """
    from aotkern.emulator.disassembler import disassemble  # noqa: PLC0415 - an optional extra

    target = side.manifest.target
    if side.read is None or target.backend is not Backend.HIP:
        raise InputError.one(side.label, "an AMD bundle, to look at instructions", str(target))
    names = [s.name for s in side.manifest.object(digest).code.sections if s.role is Role.CODE]
    data = side.read(digest)
    return disassemble(b"".join(section_bytes(data, name, side.label) for name in names), target)


def mnemonics(side: Side) -> Mapping[str, frozenset[str]]:
    """The instructions that occur in each variant's code, by key text, without the suffix of their encoding.

    Errors as for `instructions`.
    """
    by_object = {
        entry.digest: frozenset(item.name for item in instructions(side, entry.digest))
        for entry in side.manifest.objects
    }
    return {variant.text: by_object[variant.object] for variant in side.manifest.variants}
