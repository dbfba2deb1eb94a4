"""What a call hands over: its arguments in the order of the kernel's parameters, as values that dispatch can judge.

Tensors come in as anything that says where its memory is: `data_ptr()`, `__cuda_array_interface__`, DLPack, or a plain
`Pointer`. They are recognised by what they offer, so that neither torch nor another array library is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from aotkern.errors import InputError, Problem
from aotkern.spec import Constant, Parameter

# Names of dtypes, as torch and the array interface write them, in Triton's words. float8_e8m0fnu and the complex types
# have no counterpart in Triton: a tensor of such a type is refused by name.
ELEMENT_BY_NAME: Mapping[str, str] = {
    "bool": "u1",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2": "fp8e5",
    "float8_e5m2fnuz": "fp8e5b16",
}
# (type code, bits) of DLPack 1.x, dlpack.h: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6, fp8 from 9 to 12.
ELEMENT_BY_DLPACK: Mapping[tuple[int, int], str] = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"u{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"fp{bits}" for bits in (16, 32, 64)},
    (4, 16): "bf16",
    (6, 8): "u1",
    (9, 8): "fp8e4b15",
    (10, 8): "fp8e4nv",
    (11, 8): "fp8e4b8",
    (12, 8): "fp8e5",
    (13, 8): "fp8e5b16",
}
_TYPESTR = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "pinned", 10: "cuda", 11: "pinned", 13: "managed"}
"""Names of DLPack's device types; ROCm's (10) is called `cuda`, as torch calls it."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A tensor argument: an address and what is known of the memory behind it.

    Attributes:
        address: The first element's address; 0 for an empty tensor.
        element: Triton's name of the element type: `fp32`, `bf16`, `fp8e4nv`, `u8`, ...
        storage_bytes: Size of the whole storage that the address points into, or None when it is not known. What is
            not known is not taken for small.
        device: Number of the device that holds it; None for an address that says nothing of it.
        host: Whether this is ordinary host memory, which no GPU reads.
        storage: Where that storage begins; None where it begins at the address, or nothing is known of it.
    """

    address: int
    element: str
    storage_bytes: int | None = None
    device: int | None = None
    host: bool = False
    storage: int | None = None

    @property
    def memory(self) -> tuple[int, int]:
        """Start and size in bytes of the memory that may be touched through this pointer; (0, 0) if not known."""
        if not self.address or self.storage_bytes is None:
            return 0, 0
        return (self.address if self.storage is None else self.storage), self.storage_bytes


Value = Union[Pointer, Constant, bool, int, float, None, tuple["Value", ...]]
"""One argument: a tensor, a constant for a constexpr parameter, a scalar, None or a tuple of these."""


def bind(
    kernel: str, parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put a call's arguments in the order of the kernel's parameters, and fill in defaults.

    Returns:
        One object for each parameter, and the keywords that name no parameter (compile options).

    Raises:
        InputError: Too many arguments, one given twice, or one missing.
    """
    names = [parameter.name for parameter in parameters]
    problems: list[Problem] = []
    if len(args) > len(names):
        problems.append(Problem(kernel, f"at most {len(names)} arguments", f"{len(args)}"))
    given = dict(zip(names, args))  # noqa: B905 - the lengths were compared above
    problems += [Problem(f"{kernel}: {name}", "one value", "two") for name in given if name in kwargs]
    given.update((name, kwargs[name]) for name in names if name in kwargs)
    for parameter in parameters:
        if parameter.name not in given and parameter.default is not None:
            given[parameter.name] = Constant(parameter.default).value
        elif parameter.name not in given:
            problems.append(Problem(f"{kernel}: {parameter.name}", "a value", "none given, and no default"))
    if problems:
        raise InputError(problems)
    known = set(names)
    return tuple(given[name] for name in names), {name: kwargs[name] for name in kwargs if name not in known}


def read(parameter: Parameter, value: object, where: str) -> Value:
    """One argument as a value.

    Raises:
        InputError: Not something that a kernel can take.
    """
    if parameter.constexpr:
        return value if isinstance(value, Constant) else Constant.of(value, where)
    return _read(value, where)


def _read(value: object, where: str) -> Value:
    # Exact types, as Triton has it: a numpy scalar or an IntEnum is not silently taken for the int it resembles.
    if value is None or type(value) in (bool, int, float) or isinstance(value, (Pointer, Constant)):
        return value  # type: ignore[return-value]
    if isinstance(value, tuple):
        if hasattr(type(value), "_fields"):  # Triton compiles its class and its field names in
            expected = "a plain tuple, where its items are run-time arguments"
            raise InputError.one(where, expected, f"{type(value).__module__}.{type(value).__qualname__}")
        return tuple(_read(item, f"{where}[{index}]") for index, item in enumerate(value))
    if hasattr(value, "data_ptr"):
        return _from_data_ptr(value, where)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_array_interface(value.__cuda_array_interface__, where)
    if hasattr(value, "__array_interface__") and hasattr(value, "__dlpack__"):  # numpy's scalars have the first alone
        return _from_host_array(value.__array_interface__, where)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, where)
    if type(value).__module__.partition(".")[0] == "triton":
        return Constant.of(value, where)
    expected = "a tensor, a Pointer, int, float, bool, None or a tuple of these"
    raise InputError.one(where, expected, f"{type(value).__module__}.{type(value).__qualname__}")


def _from_data_ptr(tensor: Any, where: str) -> Pointer:
    """Torch tensors, Triton's stub tensors and whatever else has `data_ptr()` and a `dtype`."""
    element = _element(str(getattr(tensor, "dtype", "")).rpartition(".")[2], where)
    place = getattr(tensor, "device", None)
    kind = getattr(place, "type", None)
    host = kind == "cpu" and not (hasattr(tensor, "is_pinned") and tensor.is_pinned())
    index = getattr(place, "index", None) if kind not in (None, "cpu") else None
    start = int(tensor.untyped_storage().data_ptr()) if hasattr(tensor, "untyped_storage") else None
    return Pointer(tensor.data_ptr(), element, storage_size(tensor), index, host, start)


def storage_size(tensor: Any) -> int | None:
    """Bytes of the whole storage behind a tensor, where the tensor can say."""
    if hasattr(tensor, "untyped_storage"):
        return int(tensor.untyped_storage().nbytes())
    if hasattr(tensor, "ptr_range"):
        return int(tensor.ptr_range())
    return None


def _from_array_interface(interface: Mapping[str, Any], where: str) -> Pointer:
    """CuPy, Numba and others: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html."""
    typestr = str(interface.get("typestr", ""))
    name = f"{_TYPESTR.get(typestr[1:2], '?')}{8 * int(typestr[2:] or 0)}" if typestr[2:].isdigit() else typestr
    element = _element("bool" if name == "bool8" else name, where)
    if typestr[0] == ">":
        raise InputError.one(where, "elements in little endian order", repr(typestr))
    return Pointer(int(interface["data"][0]), element)


def _from_host_array(interface: Mapping[str, Any], where: str) -> Pointer:
    """NumPy and others: https://numpy.org/doc/stable/reference/arrays.interface.html.

    What is known of the memory is what the array itself reaches, not the larger one that it may be a view of.
    """
    address, typestr = int(interface["data"][0]), str(interface["typestr"])
    item, shape = int(typestr[2:]), interface["shape"]
    strides = interface.get("strides")
    if strides is None:
        size = item
        for count in shape:
            size *= count
    else:
        size = item + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    if any(stride < 0 for stride in strides or ()):
        raise InputError.one(where, "an array without negative strides", f"strides {strides}")
    found = _from_array_interface(interface, where)
    return Pointer(address, found.element, size if all(shape) else 0, None, host=True)


def _from_dlpack(tensor: Any, where: str) -> Pointer:
    """Anything with the DLPack protocol."""
    from aotkern import dlpack  # noqa: PLC0415 - ctypes structures that torch and plain pointers do not need

    view = dlpack.read(tensor)
    element, place = ELEMENT_BY_DLPACK.get((view.code, view.bits)), DLPACK_DEVICES.get(view.device_type)
    if element is None or view.lanes != 1:
        found = f"DLPack type code {view.code}, {view.bits} bits, {view.lanes} lanes"
        raise InputError.one(where, "a tensor of an element type that Triton has", found)
    if place is None:
        raise InputError.one(where, "memory of a GPU, or of the host", f"DLPack device type {view.device_type}")
    device = view.device_id if place in ("cuda", "managed") else None
    return Pointer((view.data or 0) + view.byte_offset, element, None, device, place == "cpu")


def _element(name: str, where: str) -> str:
    if name not in ELEMENT_BY_NAME:
        raise InputError.one(where, "a tensor of an element type that Triton has", repr(name))
    return ELEMENT_BY_NAME[name]


def exchange_capsule(kind: type) -> object | None:
    """The DLPack C exchange API of a tensor type, for types whose objects surely have memory of their own.

    Those are the types that name the API themselves, and torch's Parameter. A subclass that merely inherits it (a fake
    or functional tensor) may have no data to point at.
    """
    name = "__dlpack_c_exchange_api__"
    own = name in vars(kind) or (kind.__module__ == "torch.nn.parameter" and kind.__name__ == "Parameter")
    return getattr(kind, name, None) if own else None


def common_device(pointers: Iterable[Pointer], where: str) -> int | None:
    """The one device on which these tensors are, or None when none of them says.

    Raises:
        InputError: They are on several devices, or in ordinary host memory.
    """
    found: set[int] = set()
    for pointer in pointers:
        if pointer.host:
            raise InputError.one(where, "tensors in device memory", f"one in host memory at {pointer.address:#x}")
        if pointer.device is not None:
            found.add(pointer.device)
    if len(found) > 1:
        raise InputError.one(where, "all tensors on one device", f"devices {', '.join(map(str, sorted(found)))}")
    return found.pop() if found else None
