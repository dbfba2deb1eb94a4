"""The argument buffer: offsets from the code object, widths from the key, bits as Triton's launchers write them."""

from __future__ import annotations

import math
import struct

import pytest

from aotkern import codeobject
from aotkern.abi import Layout, encode, size_of
from aotkern.arguments import Pointer
from aotkern.codeobject import Argument
from aotkern.errors import IntegrityError
from aotkern.spec import Constant, VariantKey


def code(*arguments: tuple[int, int, str]) -> tuple[Argument, ...]:
    return tuple(Argument(*row) for row in arguments)


MIXED = VariantKey.parse("k[hip:gfx942](x:*fp32:D,s:fp32,f:u1,n:i64,m:i32,B=64,one=1,none=None)")
MIXED_CODE = code(
    (0, 8, "global_buffer"), (8, 4, "by_value"), (12, 1, "by_value"), (16, 8, "by_value"), (24, 4, "by_value"),
    (32, 8, "global_buffer"), (40, 8, "global_buffer"), (48, 4, "hidden_block_count_x"),
)  # fmt: skip


def test_layout_takes_offsets_and_sizes_from_the_code_object():
    layout = Layout.of(MIXED, MIXED_CODE)
    assert [(slot.path, slot.type, slot.offset, slot.size) for slot in layout.slots] == [
        ((0,), "*fp32", 0, 8), ((1,), "fp32", 8, 4), ((2,), "u1", 12, 1), ((3,), "i64", 16, 8), ((4,), "i32", 24, 4)
    ]  # fmt: skip
    assert (layout.scratch, layout.size) == ((32, 40), 48)


def test_pack_writes_every_width_and_leaves_constants_out():
    values = (Pointer(0x7000_1234_5678, "fp32"), 0.125, True, -(2**40), -7, Constant.of(64), 1, None)
    buffer = Layout.of(MIXED, MIXED_CODE).pack(values, (0xAAAA, 0xBBBB))
    assert struct.unpack("<Qf?xxxqixxxxQQ", buffer) == (0x7000_1234_5678, 0.125, True, -(2**40), -7, 0xAAAA, 0xBBBB)


def test_scratch_pointers_are_null_unless_given():
    values = (Pointer(16, "fp32"), 0.0, False, 0, 0, Constant.of(64), 1, None)
    assert Layout.of(MIXED, MIXED_CODE).pack(values)[32:] == bytes(16)


def test_tuples_are_packed_item_by_item():
    key = VariantKey.parse("k[hip:gfx942](t(=1,:i32:D,(:fp32,=7)),n:i32)")
    layout = Layout.of(
        key, code((0, 4, "by_value"), (4, 4, "by_value"), (8, 4, "by_value"), (16, 8, "b"), (24, 8, "b"))
    )
    assert struct.unpack("<ifi", layout.pack(((1, 16, (0.5, 7)), 9))[:12]) == (16, 0.5, 9)


@pytest.mark.parametrize(
    ("change", "expected", "found"),
    [
        (MIXED_CODE[:-2], "5 parameters and 2 scratch pointers", "6 arguments"),
        ((*MIXED_CODE[:1], Argument(8, 8, "by_value"), *MIXED_CODE[2:]), "4 bytes for fp32", "8"),
        ((*MIXED_CODE[:6], Argument(40, 4, "by_value")), "8 bytes for scratch pointer", "4"),
    ],
)
def test_code_object_that_disagrees_with_the_key_is_refused(change, expected, found):
    with pytest.raises(IntegrityError) as caught:
        Layout.of(MIXED, code(*((a.offset, a.size, a.kind) for a in change)))
    assert (caught.value.problems[0].expected, caught.value.problems[0].found) == (expected, found)


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [
        ("fp32", 0.1, "cdcccc3d"),
        ("fp32", 1e300, "0000807f"),
        ("fp64", 0.1, "9a9999999999b93f"),
        ("fp16", 0.1, "662e"),
        ("fp16", 65520.0, "007c"),
        ("fp16", -1e9, "00fc"),
        ("bf16", 1.0, "803f"),
        ("bf16", 0.1, "cc3d"),
        ("bf16", math.inf, "807f"),
        ("fp32", 3, "00004040"),
        ("i8", -1, "ff"),
        ("u16", 65535, "ffff"),
        ("u64", 2**64 - 1, "ff" * 8),
        ("u1", True, "01"),
        ("i32", True, "01000000"),
    ],
)
def test_scalars_have_the_bits_that_triton_gives_them(kind, value, bits):
    assert encode(kind, value).hex() == bits
    assert size_of(kind) == len(bits) // 2


def test_nan_stays_nan_in_bf16():
    (half,) = struct.unpack("<H", encode("bf16", math.nan))
    assert half & 0x7F80 == 0x7F80
    assert half & 0x7F


@pytest.mark.parametrize("target", ["hip:gfx942", "hip:gfx950", "cuda:90"])
def test_layout_of_a_compiled_kernel(compile_mixed, target):
    found = codeobject.read(compile_mixed(target).data, "mixed")
    layout = Layout.of(VariantKey.parse(f"mixed[{target}](x:*fp32,s:fp32,f:u1,n:i64,m:i32)"), found.arguments)
    assert [(slot.offset, slot.size) for slot in layout.slots] == [(0, 8), (8, 4), (12, 1), (16, 8), (24, 4)]
    assert layout.scratch == (32, 40)
