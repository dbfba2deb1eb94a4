"""What is known of a code object, as values: target, sections, resources, arguments, and the identity made of them.

No ELF is read here. The JSON form is the one that manifests keep: fields in a fixed order, arguments as
`[offset, size, kind]`, sections as `{name: [role, size, digest, flags]}` in the order of their names.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.fields import Fields
from aotkern.target import Backend, Target

# In cubins with the second layout of e_flags (ABI version 8), the top byte is the index of a section header. It moves
# when debug sections come or go, and says nothing about the code.
_CUDA_SECTION_INDEX = 0xFF00_0000
_CUDA_SECOND_LAYOUT = 8


class Role(str, Enum):
    """What a section is for, which decides whether it is part of the identity.

    Attributes:
        CODE: Machine code.
        DESCRIPTOR: Whatever else changes what runs: kernel descriptors, constants, launch attributes, relocations. A
            section that aotkern does not know counts as this, so that the doubt makes two objects differ.
        METADATA: A note for the loader, compared as values.
        LINKAGE: How a dynamic loader finds symbols. It repeats the symbol's name and place, which are checked against
            the other sections, and holds string tables whose order means nothing.
        DEBUG: Debug information, compiler comments, static symbol tables. Nothing that runs reads it.
    """

    CODE = "code"
    DESCRIPTOR = "descriptor"
    METADATA = "metadata"
    LINKAGE = "linkage"
    DEBUG = "debug"

    def __str__(self) -> str:
        return self.value

    @property
    def identifies(self) -> bool:
        """Whether sections of this role are part of the identity."""
        return self in (Role.CODE, Role.DESCRIPTOR, Role.METADATA)


@dataclass(frozen=True, slots=True)
class Section:
    """One section.

    Attributes:
        name: Its name; unique within a code object.
        role: What it is for.
        size: Bytes in the file, or bytes reserved for a section that has none there.
        digest: Of the bytes. For `METADATA` of the values instead: JSON of the msgpack with sorted keys and no spaces,
            so that the order of keys and the width of integers do not matter. For NVIDIA's `.nv.info` and
            `.nv.info.<symbol>` of the attributes, with every known symbol index replaced by that symbol's name, since
            debug sections renumber the symbols.
        flags: The section header's flags. Cubins before ABI version 8 keep the number of barriers there.
    """

    name: str
    role: Role
    size: int
    digest: Digest
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Resources:
    """What one wave or workgroup takes. A number that the format does not state is 0.

    Attributes:
        vgprs: Vector registers of a lane. AMD: `.vgpr_count`, accumulation registers included, since gfx942 and gfx950
            have one file for both. NVIDIA: registers of a thread.
        agprs: AMD only: the accumulation registers among them.
        sgprs: AMD only: scalar registers of a wave.
        vgpr_spills: AMD only: vector registers spilled to scratch.
        sgpr_spills: AMD only: scalar registers spilled.
        scratch_bytes: Private memory of a lane (AMD), stack of a thread (NVIDIA), in bytes.
        lds_bytes: LDS or shared memory of a workgroup that the code object itself asks for, in bytes. What Triton adds
            at launch is not in the file.
        wave: Lanes of a wave.
        max_threads: Most work-items of a workgroup; for NVIDIA the required number where the code states one.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    wave: int
    max_threads: int


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument.

    Attributes:
        offset: Bytes from the start of the argument buffer.
        size: Bytes.
        kind: AMD's value kind, such as `global_buffer`, `by_value` or `hidden_block_count_x`; `by_value` for NVIDIA,
            which does not say more.
    """

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class CodeObject:
    """The facts of one code object with one kernel.

    Attributes:
        target: What it was compiled for, from the ELF flags.
        symbol: The kernel's name in the file.
        e_flags: The ELF header's flags, unchanged.
        abi_version: The ELF header's ABI version. AMD: 2, 3, 4 for code object versions 4, 5, 6.
        sections: All named sections, in the order of their names.
        resources: Registers, memory and threads.
        arguments: In the order of their offsets.
        kernarg_bytes: Size of the argument buffer.
    """

    target: Target
    symbol: str
    e_flags: int
    abi_version: int
    sections: tuple[Section, ...]
    resources: Resources
    arguments: tuple[Argument, ...]
    kernarg_bytes: int

    @property
    def code_version(self) -> int | None:
        """AMD's code object version (4, 5 or 6), which a runtime must know to load it; None for NVIDIA."""
        return self.abi_version + 2 if self.target.backend is Backend.HIP else None

    @property
    def code_bytes(self) -> int:
        """Bytes of machine code."""
        return sum(section.size for section in self.sections if section.role is Role.CODE)

    @property
    def hidden_arguments(self) -> tuple[Argument, ...]:
        """The arguments that the runtime fills in, not the caller."""
        return tuple(argument for argument in self.arguments if argument.kind.startswith("hidden_"))

    @property
    def identity(self) -> Digest:
        """The digest of everything that makes this code what it is.

        Two objects with one identity run the same way wherever either runs: they agree in target, ELF flags, ABI
        version, symbol, and in name, flags and content of every section that `identifies`. Debug information, symbol
        and string tables, compiler comments and the places of sections in the file are left out. `.text` alone would
        not do: a wave limit or a denormal mode changes only the descriptor, and the chip may stand only in the flags.
        """
        second_layout = self.target.backend is Backend.CUDA and self.abi_version >= _CUDA_SECOND_LAYOUT
        content = [
            "aotkern code object 1",
            str(self.target),
            self.e_flags & ~_CUDA_SECTION_INDEX if second_layout else self.e_flags,
            self.abi_version,
            self.symbol,
            [
                # The size of a note depends on how its values are spelt; elsewhere it also covers reserved space.
                [item.name, item.role, 0 if item.role is Role.METADATA else item.size, item.flags, str(item.digest)]
                for item in self.sections
                if item.role.identifies
            ],
        ]
        return Digest.of(json.dumps(content, separators=(",", ":")).encode())

    def to_json(self) -> dict[str, Any]:
        """The manifest's form: plain values, in a fixed order of fields."""
        return {
            "target": str(self.target),
            "symbol": self.symbol,
            "e_flags": self.e_flags,
            "abi_version": self.abi_version,
            "kernarg_bytes": self.kernarg_bytes,
            "resources": asdict(self.resources),
            "arguments": [[item.offset, item.size, item.kind] for item in self.arguments],
            "sections": {
                item.name: [item.role.value, item.size, str(item.digest), item.flags] for item in self.sections
            },
        }

    @classmethod
    def from_json(cls, value: object, where: str) -> CodeObject:
        """Read `to_json`'s form back; unknown fields are an error.

        Raises:
            InputError: With every problem found in `value`.
        """
        form = Fields(value, where, tuple(item.name for item in fields(cls)))
        resources = Fields(form.get("resources"), f"{where}.resources", tuple(item.name for item in fields(Resources)))
        numbers = {item.name: resources.count(item.name) for item in fields(Resources)}
        found = cls(
            target=form.parsed("target", Target.parse) or Target(Backend.HIP, ""),
            symbol=form.text("symbol"),
            e_flags=form.count("e_flags", 32),
            abi_version=form.count("abi_version", 8),
            kernarg_bytes=form.count("kernarg_bytes"),
            resources=Resources(**numbers),
            arguments=_arguments(form.rows("arguments", 3)),
            sections=_sections(form.table("sections", 4)),
        )
        problems = (*form.problems, *resources.problems)
        if problems:
            raise InputError(problems)
        return found


def _arguments(rows: tuple[Fields, ...]) -> tuple[Argument, ...]:
    return tuple(Argument(row.count("0"), row.count("1"), row.text("2")) for row in rows)


def _sections(rows: dict[str, Fields]) -> tuple[Section, ...]:
    return tuple(
        Section(
            name,
            row.parsed("0", _role) or Role.DEBUG,
            row.count("1"),
            row.parsed("2", Digest.parse) or Digest(""),
            row.count("3", 32),
        )
        for name, row in sorted(rows.items())
    )


def _role(text: str, where: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InputError.one(where, "one of " + ", ".join(Role), repr(text)[:100]) from None
