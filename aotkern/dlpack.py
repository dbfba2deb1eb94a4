"""Reading the address, element type and device out of a DLPack capsule, without taking its memory over.

The structures are those of dlpack.h, version 1: https://dmlc.github.io/dlpack/latest/c_api.html. A capsule that is not
renamed stays its producer's: its own destructor frees it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from aotkern.arguments import DLPACK_DEVICES, ELEMENT_BY_DLPACK, Pointer
from aotkern.errors import InputError


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def read(tensor: Any, where: str) -> Pointer:
    """The pointer behind an object with `__dlpack__`.

    Raises:
        InputError: Its element type, or the place of its memory, is not one that a kernel can take.
    """
    kind, index = tensor.__dlpack_device__()
    place = DLPACK_DEVICES.get(int(kind))
    # -1: the consumer takes care of stream order itself, as any launch does. A host tensor takes no stream at all.
    capsule = tensor.__dlpack__() if place == "cpu" else tensor.__dlpack__(stream=-1)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    view = Tensor.from_address(get(capsule, b"dltensor"))
    element = ELEMENT_BY_DLPACK.get((view.code, view.bits))
    if element is None or view.lanes != 1:
        found = f"DLPack type code {view.code}, {view.bits} bits, {view.lanes} lanes"
        raise InputError.one(where, "a tensor of an element type that Triton has", found)
    if place is None:
        raise InputError.one(where, "memory of a GPU, or of the host", f"DLPack device type {int(kind)}")
    device = int(index) if place in ("cuda", "managed") else None
    return Pointer((view.data or 0) + view.byte_offset, element, None, device, place == "cpu")
