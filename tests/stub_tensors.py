"""Tensors that exist on paper only, with the DLPack C exchange API of torch's tensors, so that C can read them."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

from aotkern.arguments import ELEMENT_BY_DLPACK, ELEMENT_BY_NAME
from aotkern.dlpack import Tensor

CODES = {element: pair for pair, element in ELEMENT_BY_DLPACK.items()}
CUDA, ROCM, CPU, PINNED = 2, 10, 1, 11
_DEVICES = {CUDA: "cuda", ROCM: "cuda", CPU: "cpu", PINNED: "cpu"}


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("functions", ctypes.c_void_p * 6),
    )


class StubTensor:
    """What torch.Tensor is to a loader: an address, a dtype, a storage, a device, and the exchange API on the type."""

    current_stream = 0
    reads = 0

    def __init__(self, address, dtype="float32", storage=4096, device=0, kind=ROCM) -> None:
        self.address, self.dtype, self.storage, self.index, self.kind = address, dtype, storage, device, kind
        self.device = SimpleNamespace(type=_DEVICES[kind], index=device if kind in (CUDA, ROCM) else None)

    def __repr__(self) -> str:
        return f"StubTensor({self.address:#x}, {self.dtype}, {self.storage}, {self.index}, {self.kind})"

    def data_ptr(self) -> int:
        return self.address

    def is_pinned(self) -> bool:
        return self.kind == PINNED

    def untyped_storage(self):
        return SimpleNamespace(nbytes=lambda: self.storage, data_ptr=lambda: self.address)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
def _read(tensor, out) -> int:
    StubTensor.reads += 1
    out[0].data, out[0].byte_offset = tensor.address - tensor.address % 64, tensor.address % 64
    out[0].device_type, out[0].device_id = tensor.kind, tensor.index
    out[0].code, out[0].bits = CODES[ELEMENT_BY_NAME[tensor.dtype]]
    out[0].lanes = 1
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def _current_stream(kind, index, out) -> int:
    out[0] = StubTensor.current_stream or None
    return 0


_table = Exchange(1, 3, (None, None, None, None, *(ctypes.cast(f, ctypes.c_void_p) for f in (_read, _current_stream))))
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_NAME = b"dlpack_exchange_api"  # a capsule keeps the pointer to its name, not the name
StubTensor.__dlpack_c_exchange_api__ = _new(ctypes.addressof(_table), _NAME, None)
