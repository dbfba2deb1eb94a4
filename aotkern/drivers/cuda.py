"""The CUDA driver: NVIDIA GPUs through libcuda.

Names, signatures and numbers are those of NVIDIA's public header cuda.h (CUDA 13; the functions used are there since
CUDA 12.0). A test holds the table below against that header. Each device is used through its primary context, which
PyTorch and every other user of the CUDA runtime share.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from ctypes import c_void_p as handle
from functools import partial
from pathlib import Path

from aotkern.drivers.library import Library, candidates, mapped
from aotkern.drivers.protocol import Device, Entry, Function, Launch, Load
from aotkern.errors import DriverError, InputError
from aotkern.grid import programs
from aotkern.settings import Settings
from aotkern.target import Backend, Target

SONAME = "libcuda.so"
VERSIONS = (".1", "")

SIGNATURES = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(handle), c_int),
    "cuCtxGetCurrent": (POINTER(handle),),
    "cuCtxGetDevice": (POINTER(c_int),),
    "cuCtxPushCurrent_v2": (handle,),
    "cuCtxPopCurrent_v2": (POINTER(handle),),
    "cuModuleLoadData": (POINTER(handle), c_void_p),
    "cuModuleUnload": (handle,),
    "cuModuleGetFunction": (POINTER(handle), handle, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, handle),
    "cuFuncSetAttribute": (handle, c_int, c_int),
    "cuLaunchKernel": (handle, *(c_uint,) * 7, handle, POINTER(c_void_p), POINTER(c_void_p)),
    "cuLaunchKernelEx": (c_void_p, handle, POINTER(c_void_p), POINTER(c_void_p)),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), handle, c_int, c_size_t),
    "cuStreamIsCapturing": (handle, POINTER(c_int)),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuMemAllocAsync": (POINTER(c_uint64), c_size_t, handle),
    "cuMemFreeAsync": (c_uint64, handle),
}

# CUdevice_attribute
_MAX_GRID = (5, 6, 7)
_MULTIPROCESSORS = 16
_CAPABILITY = (75, 76)
_SHARED_OPTIN = 97
# CUfunction_attribute
_STATIC_SHARED, _DYNAMIC_SHARED, _WIDE_CLUSTERS = 1, 8, 14
# CUlaunchAttributeID, and the scheduling policy that spreads a cluster over multiprocessors
_COOPERATIVE, _CLUSTER, _POLICY, _OVERLAP = 2, 4, 5, 6
_POLICY_SPREAD = 1
# CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0
_CAPTURE_IMPLICIT = 906
_MODE_RELAXED = 2
_DEFAULT_SHARED = 49_152
"""Shared memory that a workgroup gets without asking, in bytes."""
_PORTABLE_CLUSTER = 8
"""Most workgroups of a cluster that every GPU with clusters takes without asking."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: 72 bytes, of which the value's first three words are used here."""

    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", handle),
        ("attributes", POINTER(_Attribute)),
        ("count", c_uint),
    )


class CudaDriver:
    """NVIDIA GPUs."""

    name = "cuda"
    backend: Backend | None = Backend.CUDA
    reads_host = False

    def __init__(self, library: Library) -> None:
        self._cuda = library
        self.library = library.path
        library.call("cuInit", 0)
        self._devices: tuple[Device, ...] | None = None
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that CUDA lists, whose properties are read once."""
        if self._devices is None:
            count = c_int()
            self._cuda.call("cuDeviceGetCount", ctypes.byref(count))
            self._devices = tuple(self._device(index) for index in range(count.value))
        return self._devices

    def _device(self, index: int) -> Device:
        number = self._number(index)
        text = ctypes.create_string_buffer(256)
        self._cuda.call("cuDeviceGetName", text, len(text), number, about=(f"device {index}",))
        arch = "".join(str(self._attribute(item, number)) for item in _CAPABILITY)
        grid = tuple(self._attribute(item, number) for item in _MAX_GRID)
        return Device(
            index=index,
            name=text.value.decode(errors="replace"),
            arch=arch,
            target=_target(arch),
            units=self._attribute(_MULTIPROCESSORS, number),
            shared_bytes=self._attribute(_SHARED_OPTIN, number),
            max_grid=(grid[0], grid[1], grid[2]),
            max_threads_x=grid[0] * 1024,
        )

    def _number(self, index: int) -> int:
        number = c_int()
        self._cuda.call("cuDeviceGet", ctypes.byref(number), index, about=(f"device {index}",))
        return number.value

    def _attribute(self, item: int, number: int) -> int:
        value = c_int()
        self._cuda.call(
            "cuDeviceGetAttribute", ctypes.byref(value), item, number, about=(f"attribute {item}", f"device {number}")
        )
        return value.value

    def current_device(self) -> int:
        """The device of the calling thread's context; the first for a thread that has none, as the runtime has it."""
        if not self._current():
            return 0
        value = c_int()
        self._cuda.call("cuCtxGetDevice", ctypes.byref(value))
        return value.value

    def _current(self) -> int:
        context = handle()
        self._cuda.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value or 0

    def _context(self, device: int) -> int:
        """The primary context, retained for the life of the process: what is loaded into it stays loaded."""
        with self._lock:
            if device not in self._contexts:
                context = handle()
                number = self._number(device)
                self._cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number, about=(f"device {device}",))
                self._contexts[device] = context.value or 0
            return self._contexts[device]

    @contextmanager
    def _on(self, device: int) -> Iterator[None]:
        wanted = self._context(device)
        if wanted == self._current():
            yield
            return
        self._cuda.call("cuCtxPushCurrent_v2", wanted, about=(f"device {device}",))
        try:
            yield
        finally:
            self._cuda.call("cuCtxPopCurrent_v2", ctypes.byref(handle()), about=(f"device {device}",))

    def capturing(self, device: int, stream: int) -> bool:
        """Whether a graph is being captured from this stream, or would be disturbed by it."""
        status = c_int()
        with self._on(device):
            code = self._cuda.status("cuStreamIsCapturing", stream, ctypes.byref(status))
        if code not in (0, _CAPTURE_IMPLICIT):
            raise self._cuda.error("cuStreamIsCapturing", code, (f"stream {stream:#x}", f"device {device}"))
        return bool(code or status.value)

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        """Load a cubin, find its kernel, and ask for its shared memory."""
        with self.loading(device) as load:
            return load(image, symbol, shared)

    @contextmanager
    def loading(self, device: int) -> Iterator[Load]:
        """Make the device current, and let other streams be captured, once for all loads."""
        with self._on(device), self._relaxed():
            yield partial(self._load, device)

    def _load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        about = (symbol, self.devices()[device])
        module, function = handle(), handle()
        self._cuda.call("cuModuleLoadData", ctypes.byref(module), image, about=about)
        try:
            name = symbol.encode()
            self._cuda.call("cuModuleGetFunction", ctypes.byref(function), module, name, about=about)
            if shared:
                self._ask_for_shared(device, symbol, function.value or 0, shared)
        except BaseException:
            self._cuda.status("cuModuleUnload", module)
            raise
        return Function(device, symbol, module.value or 0, function.value or 0)

    def _ask_for_shared(self, device: int, symbol: str, function: int, shared: int) -> None:
        static = c_int()
        self._cuda.call("cuFuncGetAttribute", ctypes.byref(static), _STATIC_SHARED, function, about=(symbol,))
        limit = self.devices()[device].shared_bytes - static.value
        if shared > limit:
            raise InputError.one(f"{symbol}: shared memory", f"at most {limit} bytes on device {device}", str(shared))
        if shared + static.value >= _DEFAULT_SHARED:
            self._cuda.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared, about=(symbol,))

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Loading is safe while another stream is captured; without this, CUDA would spoil that capture."""
        mode = c_int(_MODE_RELAXED)
        self._cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def unload(self, function: Function) -> None:
        """Unload a function's module."""
        with self._on(function.device):
            self._cuda.call("cuModuleUnload", function.module, about=(function.symbol,))

    def launch(self, launch: Launch) -> None:
        """Launch with the argument buffer as CUDA's `extra`."""
        function = launch.function
        about = (function.symbol, self.devices()[function.device], f"grid {launch.grid}")
        data = (ctypes.c_char * len(launch.arguments)).from_buffer(launch.arguments)
        size = c_size_t(len(launch.arguments))
        extra = (c_void_p * 5)(_BUFFER_POINTER, ctypes.addressof(data), _BUFFER_SIZE, ctypes.addressof(size), _END)
        with self._on(function.device):
            if launch.is_plain:
                shape = (*launch.grid, launch.threads, 1, 1, launch.shared, launch.stream)
                self._cuda.call("cuLaunchKernel", function.handle, *shape, None, extra, about=about)
                return
            self._prepare(launch)
            config = _config(launch)
            arguments = (ctypes.byref(config), function.handle, None, extra)
            self._cuda.call("cuLaunchKernelEx", *arguments, about=about)

    def _prepare(self, launch: Launch) -> None:
        function = launch.function
        if launch.cluster > _PORTABLE_CLUSTER:
            self._cuda.call("cuFuncSetAttribute", function.handle, _WIDE_CLUSTERS, 1, about=(function.symbol,))
        if launch.cooperative:
            each = c_int()
            arguments = (ctypes.byref(each), function.handle, launch.threads, launch.shared)
            self._cuda.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", *arguments, about=(function.symbol,))
            most = each.value * self.devices()[function.device].units
            asked = programs(launch.grid) * launch.cluster
            if asked > most:
                raise InputError.one(f"{function.symbol}: cooperative grid", f"at most {most} workgroups", str(asked))

    def allocate(self, device: int, size: int, stream: int) -> int:
        """Memory in stream order; CUDA aligns it to 256 bytes or more."""
        address = c_uint64()
        with self._on(device):
            about = (f"{size} bytes", f"device {device}")
            self._cuda.call("cuMemAllocAsync", ctypes.byref(address), size, stream, about=about)
        return address.value

    def release(self, device: int, address: int, stream: int) -> None:
        """Give memory back in stream order."""
        with self._on(device):
            self._cuda.call("cuMemFreeAsync", address, stream, about=(f"device {device}",))

    def entry(self, device: int) -> Entry | None:
        """CUDA's launch call, and the context that must be current for it."""
        return Entry(
            launch=self._cuda.address("cuLaunchKernel"),
            current=self._cuda.address("cuCtxGetCurrent"),
            expected=self._context(device),
            end=_END,
        )

    def launch_error(self, code: int, function: Function) -> DriverError:
        """The error that `cuLaunchKernel` came back with."""
        about = (function.symbol, self.devices()[function.device])
        return self._cuda.error("cuLaunchKernel", code, about)


def _config(launch: Launch) -> _Config:
    """The launch as CUlaunchConfig, whose grid counts the workgroups of all clusters."""
    wanted: list[tuple[int, tuple[int, ...]]] = []
    if launch.cooperative:
        wanted.append((_COOPERATIVE, (1,)))
    if launch.overlap:
        wanted.append((_OVERLAP, (1,)))
    if launch.cluster > 1:
        wanted += [(_CLUSTER, (launch.cluster, 1, 1)), (_POLICY, (_POLICY_SPREAD,))]
    attributes = (_Attribute * len(wanted))()
    for attribute, (number, words) in zip(attributes, wanted, strict=True):
        attribute.id = number
        attribute.value[: len(words)] = words
    x, y, z = launch.grid
    return _Config(
        (x * launch.cluster, y, z),
        (launch.threads, 1, 1),
        launch.shared,
        launch.stream,
        ctypes.cast(attributes, POINTER(_Attribute)),
        len(wanted),
    )


def _target(arch: str) -> Target | None:
    try:
        return Target.parse(f"cuda:{arch}")
    except InputError:
        return None


def open_driver(settings: Settings | None = None) -> CudaDriver:
    """The CUDA driver of this machine.

    Raises:
        MissingToolError: There is no libcuda.
        DriverError: There is one, and it does not start.
    """
    found = Settings.read() if settings is None else settings
    folders = (Path("/usr/local/nvidia/lib64"), Path("/usr/lib/wsl/lib"))
    names = candidates(SONAME, found.cuda_library, mapped(), folders, VERSIONS)
    advice = "install NVIDIA's driver, or set AOTKERN_CUDA_LIBRARY"
    return CudaDriver(Library("cuda", names, SIGNATURES, "cuGetErrorName", advice))
