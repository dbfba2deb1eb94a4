"""A driver's shared library: where it is found, how its functions are called, how its errors read.

The search is a pure function of facts. It goes from what the user says, over what this process has loaded already (two
copies of a GPU runtime in one process do not share streams), to what PyTorch and ROCm installations bring.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotkern.errors import DriverError, MissingToolError

# HIP numbers its errors as CUDA does, wherever both have one.
# Sources: driver_types.h and hip_runtime_api.h of ROCm 7.1 (hipError_t), cuda.h of CUDA 13 (CUresult).
ADVICE: Mapping[int, str] = {
    2: "device memory is used up: preload the bundle before other memory is taken",
    3: "the driver is not initialised in this process; a fork after its first use does that",
    9: "the grid or the workgroup is larger than the device allows",
    100: "no GPU is visible: look at the permissions of the device files, and at HIP_VISIBLE_DEVICES, "
    "ROCR_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES",
    200: "the device cannot load this code object: it is for another architecture, or newer than the driver",
    209: "the code object is for another architecture or another setting of its features (sramecc, xnack)",
    218: "the device cannot load this code object: it is for another architecture, or newer than the driver",
    303: "the driver cannot load this code object; it may be newer than the driver",
    400: "the stream or the kernel belongs to another device, or does not exist any more",
    700: "a kernel that ran before this call read or wrote memory that it may not",
    701: "the workgroup needs more registers or shared memory than the device has",
    719: "a kernel that ran before this call failed on the device",
    720: "a cooperative grid must fit on the device all at once: use fewer workgroups",
    900: "this cannot be done while the stream is being captured: preload the bundle before the capture",
    901: "the capture was invalidated by an earlier call",
    906: "the default stream cannot be used while another stream is being captured",
}


class Library:
    """An open driver library.

    Attributes:
        driver: `hip` or `cuda`.
        path: Where it came from.
    """

    def __init__(
        self, driver: str, names: Iterable[str], signatures: Mapping[str, Sequence[Any]], error_name: str, advice: str
    ) -> None:
        """Open the first of `names` that can be opened, and find its functions.

        Raises:
            MissingToolError: None can be opened, or the one that can lacks a function.
        """
        self.driver, self._error_name = driver, error_name
        tried: list[str] = []
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                self.path = name
                break
            except OSError as error:
                # A library that is there and cannot be opened says why; one that is not there is merely named.
                tried.append(name if "No such file" in str(error) else str(error))
        else:
            raise MissingToolError(f"the {driver} driver", "to launch", f"{advice} (tried {', '.join(tried)})")
        try:
            for function, types in signatures.items():
                getattr(self._library, function).argtypes = tuple(types)
                getattr(self._library, function).restype = ctypes.c_int
        except AttributeError as error:
            raise MissingToolError(f"{self.path}", f"to launch, with {error}", advice) from error

    def status(self, operation: str, *arguments: object) -> int:
        """Call a function and return its error code."""
        return int(getattr(self._library, operation)(*arguments))

    def call(self, operation: str, *arguments: object, about: tuple[object, ...] = ("no device",)) -> None:
        """Call a function.

        Args:
            operation: Its name.
            arguments: Its arguments.
            about: What the call concerns: a kernel, a device. Put into words only for an error.

        Raises:
            DriverError: It returned an error.
        """
        if code := self.status(operation, *arguments):
            raise self.error(operation, code, about)

    def error(self, operation: str, code: int, about: tuple[object, ...]) -> DriverError:
        """The error for a code that a function returned."""
        context = " on ".join(map(str, about))
        return DriverError(self.driver, operation, code, self.name_of(code), context, ADVICE.get(code, ""))

    def name_of(self, code: int) -> str:
        """The driver's name for an error code."""
        function = getattr(self._library, self._error_name)
        if self._error_name == "hipGetErrorName":
            function.restype, function.argtypes = ctypes.c_char_p, (ctypes.c_int,)
            text = function(code)
        else:
            out = ctypes.c_char_p()
            function(ctypes.c_int(code), ctypes.byref(out))
            text = out.value
        return (text or b"an unknown error").decode(errors="replace")

    def address(self, function: str) -> int:
        """The address of a function, for the C extension."""
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0


def candidates(
    soname: str, chosen: Path | None, loaded: Iterable[str], folders: Iterable[Path], versions: Sequence[str]
) -> Iterator[str]:
    """Names to open in turn.

    Args:
        soname: `libamdhip64.so`.
        chosen: The user's own choice; nothing else is tried then.
        loaded: Paths of the libraries that this process has mapped.
        folders: Folders that may have it.
        versions: Endings that the dynamic loader may know it by, best first.
    """
    if chosen is not None:
        yield str(chosen)
        return
    yield from dict.fromkeys(path for path in loaded if Path(path).name.startswith(soname))
    for folder in folders:
        found = [folder / f"{soname}{version}" for version in ("", *versions)]
        yield from (str(path) for path in found if path.exists())
    yield from (f"{soname}{version}" for version in versions)


def mapped(maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
    """Paths of the files that this process has mapped; none where the system does not say."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line))


def package_folder(package: str, *parts: str) -> Iterator[Path]:
    """A folder inside an installed package, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place, *parts)
