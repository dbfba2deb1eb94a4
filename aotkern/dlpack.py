"""The fields of a DLPack tensor, read without taking its memory over.

The structures are those of dlpack.h, version 1: https://dmlc.github.io/dlpack/latest/c_api.html. A capsule that is not
renamed stays its producer's: its own destructor frees it.
"""

from __future__ import annotations

import ctypes
from typing import Any

CPU = 1
"""DLPack's device type of ordinary host memory."""


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


def read(tensor: Any) -> Tensor:
    """A copy of the fields behind an object with `__dlpack__` and `__dlpack_device__`; shape and strides are gone."""
    kind, _ = tensor.__dlpack_device__()
    # -1: the consumer takes care of stream order itself, as any launch does. A host tensor takes no stream at all.
    capsule = tensor.__dlpack__() if int(kind) == CPU else tensor.__dlpack__(stream=-1)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    view = Tensor.from_buffer_copy(Tensor.from_address(get(capsule, b"dltensor")))
    view.shape = view.strides = None
    return view
