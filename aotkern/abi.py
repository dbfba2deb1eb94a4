"""The argument buffer of a launch, laid out by the code object's own metadata.

HIP and CUDA alike take all arguments of a kernel as one buffer (the drivers' "extra" parameter). Offsets and sizes come
from the code object, types from the variant key, and the two must agree before anything is launched. Triton appends two
pointers to every kernel: global scratch and profile scratch. They are null when a kernel needs none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aotkern.arguments import Pointer, Value
from aotkern.codeobject.facts import Argument
from aotkern.errors import IntegrityError
from aotkern.spec import VariantKey

SCRATCH_POINTERS = 2
"""Pointers that Triton appends to the parameters of every kernel."""
MAX_BYTES = 1 << 16
"""Most bytes of an argument buffer: twice what CUDA takes. A manifest may state any offset."""

_STRUCT: Mapping[str, struct.Struct] = {
    **{f"i{8 * size}": struct.Struct(f"<{code}") for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{f"u{8 * size}": struct.Struct(f"<{code}") for size, code in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))},
    "u1": struct.Struct("<?"),
    "fp16": struct.Struct("<e"),
    "fp32": struct.Struct("<f"),
    "fp64": struct.Struct("<d"),
}
_ADDRESS = struct.Struct("<Q")
_WORD = struct.Struct("<I")
_HALF = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter in the buffer.

    Attributes:
        path: Which argument it is: position in the call, then positions inside tuples.
        type: Its type as in the key; `*fp32` and the like are addresses.
        offset: Bytes from the start of the buffer.
        size: Bytes.
    """

    path: tuple[int, ...]
    type: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The argument buffer of one variant.

    Attributes:
        slots: The run-time parameters.
        scratch: Offsets of the global and the profile scratch pointer.
        size: Bytes of the whole buffer. The arguments that AMD's runtime fills in itself come after it.
    """

    slots: tuple[Slot, ...]
    scratch: tuple[int, int]
    size: int

    @classmethod
    def of(cls, key: VariantKey, arguments: Sequence[Argument]) -> Layout:
        """Hold the parameters of a key against the arguments that the code object states.

        Raises:
            IntegrityError: They differ in number or in size, lie on one another, or end after `MAX_BYTES`.
        """
        visible = [argument for argument in arguments if not argument.kind.startswith("hidden_")]
        where = f"{key}: arguments of the code object"
        if len(visible) != len(key.parameters) + SCRATCH_POINTERS:
            expected = f"{len(key.parameters)} parameters and {SCRATCH_POINTERS} scratch pointers"
            raise IntegrityError.one(where, expected, f"{len(visible)} arguments")
        slots = tuple(
            Slot(path, leaf.type, argument.offset, argument.size)
            for (path, leaf), argument in zip(key.parameters, visible[:-SCRATCH_POINTERS], strict=True)
        )
        scratch = visible[-SCRATCH_POINTERS:]
        for name, size, want in (
            *((slot.type, slot.size, size_of(slot.type)) for slot in slots),
            *(("scratch pointer", argument.size, _ADDRESS.size) for argument in scratch),
        ):
            if size != want:
                raise IntegrityError.one(where, f"{want} bytes for {name}", f"{size}")
        end = 0
        for argument in visible:
            if not end <= argument.offset <= MAX_BYTES - argument.size:
                found = f"{argument.size} bytes at {argument.offset}"
                raise IntegrityError.one(where, f"one after the other, from {end} to {MAX_BYTES} bytes", found)
            end = argument.offset + argument.size
        return cls(slots, (scratch[0].offset, scratch[1].offset), end)

    def pack(self, values: Sequence[Value], scratch: tuple[int, int] = (0, 0)) -> bytearray:
        """The buffer for one launch.

        Args:
            values: One value for each parameter of the kernel, constants included.
            scratch: Addresses of global and profile scratch.
        """
        buffer = bytearray(self.size)
        for slot in self.slots:
            value: Value = values[slot.path[0]]
            for index in slot.path[1:]:
                assert isinstance(value, tuple)
                value = value[index]
            buffer[slot.offset : slot.offset + slot.size] = encode(slot.type, value)
        for offset, address in zip(self.scratch, scratch, strict=True):
            _ADDRESS.pack_into(buffer, offset, address)
        return buffer


def size_of(kind: str) -> int:
    """Bytes that a parameter of this type takes; an address takes eight."""
    if kind.startswith("*"):
        return _ADDRESS.size
    return _HALF.size if kind == "bf16" else _STRUCT[kind].size


def encode(kind: str, value: Value) -> bytes:
    """One parameter as the kernel reads it, little endian.

    Floats are rounded as Triton's own launchers round them, so that both give the kernel the same bits: to nearest for
    fp16 and fp32, and for bf16 the upper half of the fp32. What overflows the type becomes infinite.
    """
    if isinstance(value, Pointer):
        return _ADDRESS.pack(value.address)
    if isinstance(value, (bool, int, float)):
        return _FLOATS[kind](float(value)) if kind in _FLOATS else _STRUCT[kind].pack(value)
    raise TypeError(f"{type(value).__name__} for a parameter of type {kind}")


def _nearest(kind: str) -> Callable[[float], bytes]:
    packer = _STRUCT[kind]

    def pack(value: float) -> bytes:
        try:
            return packer.pack(value)
        except OverflowError:
            return packer.pack(float("inf") if value > 0 else float("-inf"))

    return pack


def _bf16(value: float) -> bytes:
    return _HALF.pack(_WORD.unpack(_FLOATS["fp32"](value))[0] >> 16)


_FLOATS: Mapping[str, Callable[[float], bytes]] = {
    "fp16": _nearest("fp16"),
    "fp32": _nearest("fp32"),
    "fp64": _nearest("fp64"),
    "bf16": _bf16,
}
