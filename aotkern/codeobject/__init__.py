"""Code objects: what an HSACO (AMD) or a cubin (NVIDIA) says about itself, read without running or changing it.

`read` gives the facts of one file as a `CodeObject`; `section_bytes` gives the bytes of one section. Files are judged
by what stands in them, never by their name, and anything that is cut, contradicts itself or is hostile raises one
`IntegrityError`. Nothing here writes a file, loads a driver, or imports Triton.

The readers are imported on the first call, so that a command which only needs the values pays for no ELF library.
"""

from __future__ import annotations

from aotkern.codeobject.facts import Argument, CodeObject, Resources, Role, Section
from aotkern.errors import IntegrityError

__all__ = ["Argument", "CodeObject", "Resources", "Role", "Section", "read", "section_bytes"]


def read(data: bytes, where: str) -> CodeObject:
    """The facts of one code object.

    Args:
        data: The whole file.
        where: What to call the file in an error.

    Raises:
        IntegrityError: Not a code object that aotkern knows, or one that is damaged or contradicts itself.
    """
    from aotkern.codeobject import elf  # noqa: PLC0415 - see the module's docstring

    image = elf.parse(data, where)
    if image.machine == elf.AMDGPU:
        from aotkern.codeobject import amdgpu  # noqa: PLC0415 - msgpack is for AMD's notes only

        return amdgpu.read(image)
    if image.machine == elf.CUDA:
        from aotkern.codeobject import nvidia  # noqa: PLC0415 - likewise

        return nvidia.read(image)
    raise IntegrityError.one(f"{where}: e_machine", "EM_AMDGPU or EM_CUDA", str(image.machine))


def section_bytes(data: bytes, name: str, where: str) -> bytes:
    """The bytes of the section `name`, for instance `.text` of an HSACO; empty for a section that takes no file space.

    Raises:
        IntegrityError: Not a readable ELF file, or it has no such section.
    """
    from aotkern.codeobject import elf  # noqa: PLC0415 - see the module's docstring

    return bytes(elf.parse(data, where).section(name).data)
