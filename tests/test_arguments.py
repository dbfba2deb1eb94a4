"""Binding a call's arguments, and reading tensors of every kind."""

from __future__ import annotations

import enum
from types import SimpleNamespace

import pytest

from aotkern.arguments import Pointer, bind, common_device, read
from aotkern.errors import InputError
from aotkern.spec import Constant, Parameter

PARAMETERS = (Parameter("x"), Parameter("n"), Parameter("B", constexpr=True), Parameter("c", default="7"))
X = Parameter("x")


def test_bind_takes_positions_names_and_defaults():
    assert bind("k", PARAMETERS, ("a", 3), {"B": 64}) == (("a", 3, 64, 7), {})
    assert bind("k", PARAMETERS, ("a",), {"B": 64, "n": 3, "c": 8}) == (("a", 3, 64, 8), {})
    assert bind("k", PARAMETERS, ("a", 3, 64, 8), {"num_warps": 4}) == (("a", 3, 64, 8), {"num_warps": 4})


@pytest.mark.parametrize(
    ("args", "kwargs", "where"),
    [
        ((1, 2, 3, 4, 5), {}, "k"),
        ((1, 2, 3), {"x": 1}, "k: x"),
        ((1,), {"n": 2}, "k: B"),
    ],
)
def test_bind_refuses_what_a_function_call_would(args, kwargs, where):
    with pytest.raises(InputError) as caught:
        bind("k", PARAMETERS, args, kwargs)
    assert [problem.where for problem in caught.value.problems] == [where]


def test_bind_names_every_missing_argument_at_once():
    with pytest.raises(InputError) as caught:
        bind("k", PARAMETERS, (), {})
    assert [problem.where for problem in caught.value.problems] == ["k: x", "k: n", "k: B"]


def test_constants_are_read_as_constants():
    assert read(Parameter("B", constexpr=True), 64, "B") == Constant("64")
    assert read(Parameter("B", constexpr=True), -0.0, "B") == Constant("-0.0")


@pytest.mark.parametrize("value", [1, True, 0.5, None, Pointer(16, "fp32"), (1, (None, 2.0))])
def test_plain_values_are_themselves(value):
    assert read(X, value, "x") == value


class Colour(enum.IntEnum):
    RED = 1


def test_what_only_resembles_a_number_is_refused():
    numpy = pytest.importorskip("numpy")
    for value in (numpy.int32(4), numpy.float64(0.5), Colour.RED, "text", [1, 2], object()):
        with pytest.raises(InputError, match="k: x"):
            read(X, value, "k: x")


@pytest.mark.parametrize(
    ("dtype", "element"),
    [
        ("float16", "fp16"),
        ("bfloat16", "bf16"),
        ("uint8", "u8"),
        ("bool", "u1"),
        ("float8_e4m3fn", "fp8e4nv"),
        ("float8_e4m3fnuz", "fp8e4b8"),
        ("float8_e5m2", "fp8e5"),
        ("float8_e5m2fnuz", "fp8e5b16"),
        ("uint64", "u64"),
    ],
)
def test_torch_tensors_are_read_without_importing_torch_here(dtype, element):
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(64, dtype=getattr(torch, dtype))
    address, size = tensor.data_ptr(), 64 * tensor.itemsize
    assert read(X, tensor, "x") == Pointer(address, element, size, None, host=True, storage=address)


def test_view_has_the_address_of_the_view_and_the_size_of_the_storage():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(64)
    start = tensor.data_ptr()
    assert read(X, tensor[1:3], "x") == Pointer(start + 4, "fp32", 256, None, host=True, storage=start)


@pytest.mark.parametrize("dtype", ["complex64", "float8_e8m0fnu"])
def test_element_types_that_triton_lacks_are_refused_by_name(dtype):
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=dtype):
        read(X, torch.zeros(4, dtype=getattr(torch, dtype)), "x")


def test_device_of_a_tensor_is_kept():
    tensor = SimpleNamespace(data_ptr=lambda: 4096, dtype="torch.float32", device=SimpleNamespace(type="cuda", index=1))
    assert read(X, tensor, "x") == Pointer(4096, "fp32", None, 1)


@pytest.mark.parametrize(
    ("typestr", "element"), [("<f4", "fp32"), ("|u1", "u8"), ("|b1", "u1"), ("<i8", "i64"), ("<f2", "fp16")]
)
def test_array_interface(typestr, element):
    array = SimpleNamespace(__cuda_array_interface__={"typestr": typestr, "data": (4096, False), "shape": (4,)})
    assert read(X, array, "x") == Pointer(4096, element)


@pytest.mark.parametrize("typestr", ["<c8", ">f4", "<V16", "", "<f"])
def test_array_interface_of_another_type_is_refused(typestr):
    array = SimpleNamespace(__cuda_array_interface__={"typestr": typestr, "data": (4096, False), "shape": (4,)})
    with pytest.raises(InputError, match="x"):
        read(X, array, "x")


@pytest.mark.parametrize(("dtype", "element"), [("float32", "fp32"), ("int64", "i64"), ("bool", "u1"), ("uint8", "u8")])
def test_dlpack(dtype, element):
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(16, dtype=dtype)[3:]
    assert read(X, only_dlpack(array), "x") == Pointer(array.ctypes.data, element, None, None, host=True)


def only_dlpack(array):
    """An object that offers nothing but DLPack."""
    return SimpleNamespace(__dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__)


def test_host_arrays_say_how_far_they_reach():
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((4, 8), dtype="float32")
    assert read(X, array, "x") == Pointer(array.ctypes.data, "fp32", 128, None, host=True)
    assert read(X, array[1:, ::2], "x") == Pointer(array.ctypes.data + 32, "fp32", 4 + 2 * 32 + 3 * 8, None, host=True)
    assert read(X, array[:0], "x").storage_bytes == 0
    with pytest.raises(InputError, match="negative strides"):
        read(X, array[::-1], "x")


def test_dlpack_of_another_type_is_refused():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(InputError, match="type code 5, 128 bits"):
        read(X, only_dlpack(numpy.zeros(4, dtype="complex128")), "x")


def test_one_device_for_all_tensors():
    plain, zero, one = Pointer(16, "u8"), Pointer(16, "u8", None, 0), Pointer(16, "u8", None, 1)
    assert common_device((plain,), "k") is None
    assert common_device((plain, one, one), "k") == 1
    with pytest.raises(InputError, match="devices 0, 1"):
        common_device((zero, one), "k")
    with pytest.raises(InputError, match="host memory"):
        common_device((zero, Pointer(16, "u8", host=True)), "k")
