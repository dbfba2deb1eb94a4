"""The HIP driver: AMD GPUs through libamdhip64.

Names, signatures and numbers are those of AMD's public header hip/hip_runtime_api.h (ROCm 7.1; the functions used are
unchanged since ROCm 6.0, the first release with gfx942). A test holds the table below against that header.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from ctypes import c_void_p as handle
from functools import partial
from pathlib import Path

from aotkern.drivers.library import Library, candidates, mapped, package_folder
from aotkern.drivers.protocol import Device, Entry, Function, Launch, Load
from aotkern.errors import DriverError, InputError
from aotkern.grid import programs
from aotkern.settings import Settings
from aotkern.target import Backend, Target

SONAME = "libamdhip64.so"
VERSIONS = (".7", ".6", "")

_LAUNCH = (handle, *(c_uint,) * 7, handle, POINTER(c_void_p))
SIGNATURES = {
    "hipInit": (c_uint,),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipGetDevice": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipGetDevicePropertiesR0600": (c_void_p, c_int),
    "hipDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "hipModuleLoadData": (POINTER(handle), c_void_p),
    "hipModuleUnload": (handle,),
    "hipModuleGetFunction": (POINTER(handle), handle, c_char_p),
    "hipModuleLaunchKernel": (*_LAUNCH, POINTER(c_void_p)),
    "hipModuleLaunchCooperativeKernel": _LAUNCH,
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), handle, c_int, c_size_t),
    "hipStreamIsCapturing": (handle, POINTER(c_int)),
    "hipThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "hipMallocAsync": (POINTER(c_void_p), c_size_t, handle),
    "hipFreeAsync": (c_void_p, handle),
}

# hipDeviceAttribute_t
_MAX_GRID = (29, 30, 31)
_MULTIPROCESSORS = 63
_SHARED_PER_BLOCK = 74
# hipDeviceProp_tR0600: 1472 bytes, the name at 0 and the architecture at 1160, 256 bytes each.
_PROPERTIES_BYTES, _NAME, _ARCH, _TEXT = 1472, 0, 1160, 256
# HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3
_CAPTURE_IMPLICIT = 906
_MODE_RELAXED = 2
_MAX_THREADS = 2**32 - 1
"""hipModuleLaunchKernel's documented limit on workgroups times work-items in one dimension."""


class HipDriver:
    """AMD GPUs."""

    name = "hip"
    backend: Backend | None = Backend.HIP
    reads_host = False

    def __init__(self, library: Library) -> None:
        self._hip = library
        self.library = library.path
        library.call("hipInit", 0)
        self._devices: tuple[Device, ...] | None = None

    def devices(self) -> tuple[Device, ...]:
        """The GPUs that HIP lists, whose properties are read once."""
        if self._devices is None:
            count = c_int()
            self._hip.call("hipGetDeviceCount", ctypes.byref(count))
            self._devices = tuple(self._device(index) for index in range(count.value))
        return self._devices

    def _device(self, index: int) -> Device:
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self._hip.call("hipGetDevicePropertiesR0600", properties, index, about=(f"device {index}",))
        name, arch = (properties.raw[at : at + _TEXT].partition(b"\0")[0].decode() for at in (_NAME, _ARCH))
        grid = tuple(self._attribute(number, index) for number in _MAX_GRID)
        return Device(
            index=index,
            name=name,
            arch=arch,
            target=_target(arch),
            units=self._attribute(_MULTIPROCESSORS, index),
            shared_bytes=self._attribute(_SHARED_PER_BLOCK, index),
            max_grid=(grid[0], grid[1], grid[2]),
            max_threads_x=_MAX_THREADS,
        )

    def _attribute(self, number: int, index: int) -> int:
        value = c_int()
        self._hip.call(
            "hipDeviceGetAttribute",
            ctypes.byref(value),
            number,
            index,
            about=(f"attribute {number}", f"device {index}"),
        )
        return value.value

    def current_device(self) -> int:
        """The calling thread's device."""
        value = c_int()
        self._hip.call("hipGetDevice", ctypes.byref(value))
        return value.value

    @contextmanager
    def _on(self, device: int) -> Iterator[None]:
        before = self.current_device()
        if before == device:
            yield
            return
        self._hip.call("hipSetDevice", device, about=(f"device {device}",))
        try:
            yield
        finally:
            self._hip.call("hipSetDevice", before, about=(f"device {before}",))

    def capturing(self, device: int, stream: int) -> bool:
        """Whether a graph is being captured from this stream, or would be disturbed by it."""
        status = c_int()
        with self._on(device):
            code = self._hip.status("hipStreamIsCapturing", stream, ctypes.byref(status))
        if code not in (0, _CAPTURE_IMPLICIT):
            raise self._hip.error("hipStreamIsCapturing", code, (f"stream {stream:#x}", f"device {device}"))
        return bool(code or status.value)

    def load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        """Load an HSACO and find its kernel."""
        with self.loading(device) as load:
            return load(image, symbol, shared)

    @contextmanager
    def loading(self, device: int) -> Iterator[Load]:
        """Make the device current, and let other streams be captured, once for all loads."""
        with self._on(device), self._relaxed():
            yield partial(self._load, device)

    def _load(self, device: int, image: bytes, symbol: str, shared: int) -> Function:
        limit = self.devices()[device].shared_bytes
        if shared > limit:
            raise InputError.one(f"{symbol}: LDS", f"at most {limit} bytes on device {device}", str(shared))
        about = (symbol, self.devices()[device])
        module, function = handle(), handle()
        self._hip.call("hipModuleLoadData", ctypes.byref(module), image, about=about)
        code = self._hip.status("hipModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        if code:
            self._hip.status("hipModuleUnload", module)
            raise self._hip.error("hipModuleGetFunction", code, about)
        return Function(device, symbol, module.value or 0, function.value or 0)

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Loading is safe while another stream is captured; without this, HIP would spoil that capture."""
        mode = c_int(_MODE_RELAXED)
        self._hip.call("hipThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._hip.call("hipThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def unload(self, function: Function) -> None:
        """Unload a function's module."""
        with self._on(function.device):
            self._hip.call("hipModuleUnload", function.module, about=(function.symbol,))

    def launch(self, launch: Launch) -> None:
        """Launch with the argument buffer as HIP's `extra`, or as pointers into it for a cooperative launch."""
        function = launch.function
        about = (function.symbol, self.devices()[function.device], f"grid {launch.grid}")
        if launch.cluster != 1 or launch.overlap:
            raise InputError.one(f"{function.symbol}: launch", "neither clusters nor overlap (AMD has none)", "one")
        data = (ctypes.c_char * len(launch.arguments)).from_buffer(launch.arguments)
        shape = (function.handle, *launch.grid, launch.threads, 1, 1, launch.shared, launch.stream)
        with self._on(function.device):
            if launch.cooperative:
                self._check_resident(launch)
                start = ctypes.addressof(data)
                pointers = (c_void_p * len(launch.offsets))(*(start + offset for offset in launch.offsets))
                self._hip.call("hipModuleLaunchCooperativeKernel", *shape, pointers, about=about)
                return
            size = c_size_t(len(launch.arguments))
            extra = (c_void_p * 5)(_BUFFER_POINTER, ctypes.addressof(data), _BUFFER_SIZE, ctypes.addressof(size), _END)
            self._hip.call("hipModuleLaunchKernel", *shape, None, extra, about=about)

    def _check_resident(self, launch: Launch) -> None:
        each = c_int()
        operation = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        function = launch.function
        arguments = (ctypes.byref(each), function.handle, launch.threads, launch.shared)
        self._hip.call(operation, *arguments, about=(function.symbol,))
        most = each.value * self.devices()[function.device].units
        if programs(launch.grid) > most:
            found = str(programs(launch.grid))
            raise InputError.one(f"{function.symbol}: cooperative grid", f"at most {most} workgroups", found)

    def allocate(self, device: int, size: int, stream: int) -> int:
        """Memory in stream order; HIP aligns it to 256 bytes or more."""
        address = c_void_p()
        with self._on(device):
            about = (f"{size} bytes", f"device {device}")
            self._hip.call("hipMallocAsync", ctypes.byref(address), size, stream, about=about)
        return address.value or 0

    def release(self, device: int, address: int, stream: int) -> None:
        """Give memory back in stream order."""
        with self._on(device):
            self._hip.call("hipFreeAsync", address, stream, about=(f"device {device}",))

    def entry(self, device: int) -> Entry | None:
        """HIP's launch call, and the number by which it knows the current device."""
        return Entry(
            launch=self._hip.address("hipModuleLaunchKernel"),
            current=self._hip.address("hipGetDevice"),
            expected=device,
            end=_END,
        )

    def launch_error(self, code: int, function: Function) -> DriverError:
        """The error that `hipModuleLaunchKernel` came back with."""
        about = (function.symbol, self.devices()[function.device])
        return self._hip.error("hipModuleLaunchKernel", code, about)


def _target(arch: str) -> Target | None:
    try:
        return Target.parse(f"hip:{arch}")
    except InputError:
        return None


def open_driver(settings: Settings | None = None) -> HipDriver:
    """The HIP driver of this machine.

    Raises:
        MissingToolError: There is no libamdhip64.
        DriverError: There is one, and it does not start.
    """
    found = Settings.read() if settings is None else settings
    folders = (
        *package_folder("torch", "lib"),
        *package_folder("_rocm_sdk_core", "lib"),
        *(root / "lib" for root in found.rocm),
        Path("/opt/rocm/lib"),
    )
    names = candidates(SONAME, found.hip_library, mapped(), folders, VERSIONS)
    advice = "install ROCm 6 or newer, or PyTorch for ROCm, or set AOTKERN_HIP_LIBRARY"
    return HipDriver(Library("hip", names, SIGNATURES, "hipGetErrorName", advice))
