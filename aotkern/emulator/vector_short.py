"""Vector instructions on 16-bit, 24-bit and 8-bit integers, and conversions that saturate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotkern.emulator.operands import Kind
from aotkern.emulator.valu import Alu, Bind, pure
from aotkern.emulator.vector_integer import then
from aotkern.emulator.waves import Array

F32, F64, U32, I32, I64 = np.float32, np.float64, np.uint32, np.int32, np.int64


def _three(kind: Kind, function: Callable[..., Any]) -> Alu:
    return Alu(kind, (kind,) * 3, function, keeps_high=True)


def _middle(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)))


def _multiply_add(a: Array, b: Array, c: Array) -> Any:
    return a * b + c


def _bytes(bits: Array) -> list[Array]:
    return [((bits >> U32(at)) & U32(0xFF)).astype(I64) for at in (0, 8, 16, 24)]


def _sum_of_differences(a: Array, b: Array, c: Array, *, shift: int = 0, masked: bool = False) -> Array:
    """`v_sad_u8` and its like; masked ones leave out where the second source's byte is 0."""
    total: Any = I64(0)
    for left, right in zip(_bytes(a), _bytes(b), strict=True):
        difference = np.abs(left - right)
        total = total + (np.where(right == 0, 0, difference) if masked else difference)
    return np.asarray(((total << shift) + c.astype(I64)).astype(U32))


def _sum_of_short_differences(a: Array, b: Array, c: Array) -> Array:
    halves = [
        np.abs(((a >> U32(at)) & U32(0xFFFF)).astype(I64) - ((b >> U32(at)) & U32(0xFFFF)).astype(I64))
        for at in (0, 16)
    ]
    return np.asarray((halves[0] + halves[1] + c.astype(I64)).astype(U32))


def _average(a: Array, b: Array, c: Array) -> Array:
    """`v_lerp_u8`: the mean of each byte, rounded up where the third source says."""
    result: Any = U32(0)
    parts = zip(_bytes(a), _bytes(b), _bytes(c), strict=True)
    for place, (left, right, up) in enumerate(parts):
        result = result | (((left + right + (up & 1)) >> 1) & 0xFF).astype(U32) << U32(8 * place)
    return np.asarray(result)


def _saturated(low: int, high: int, bits: int) -> Callable[[Array], Array]:
    def run(value: Array) -> Array:
        return np.asarray(np.clip(value.astype(I64), low, high).astype(U32) & U32((1 << bits) - 1))

    return run


def _pair(narrow: Callable[[Array], Array], bits: int) -> Callable[[Array, Array], Array]:
    return lambda low, high: narrow(low) | (narrow(high) << U32(bits))


def _shifted_pair(narrow: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """`v_ashr_pk`: two shifted values, saturated to a byte each."""
    return lambda low, high, by: narrow(low >> by.astype(I32)) | (narrow(high >> by.astype(I32)) << U32(8))


def _high24(a: Array, b: Array) -> Array:
    return np.asarray(((a.astype(I64) * b.astype(I64)) >> I64(32)).astype(U32))


def _inserted_byte(value: Array, place: Array, old: Array) -> Array:
    """`v_cvt_pk_u8_f32`: a float, rounded and saturated, as one byte of the third source."""
    whole = np.nan_to_num(value.astype(F64), nan=0.0, posinf=255.0, neginf=0.0)
    code = np.clip(np.rint(whole), 0, 255).astype(U32)
    shift = (place & U32(3)) * U32(8)
    return np.asarray((old & ~(U32(0xFF) << shift)) | (code << shift))


def _rounded_up(value: Array) -> Array:
    """`v_cvt_rpi_i32_f32`: to the nearest integer, halves up."""
    near = np.floor(value.astype(F64) + 0.5)
    finite = np.nan_to_num(near, nan=0.0, posinf=2.0**31, neginf=-(2.0**31))
    return np.asarray(np.clip(finite, -(2**31), 2**31 - 1).astype(I32))


def _sixteenths(bits: Array) -> Array:
    """`v_cvt_off_f32_i4`: a signed 4-bit number of sixteenths."""
    return np.asarray((((bits & U32(15)).astype(I32) ^ 8) - 8).astype(F32) / F32(16))


def _without_special_zero(a: Array, b: Array) -> Array:
    """`v_mul_legacy_f32`: zero times anything is zero."""
    return np.where((a == 0) | (b == 0), F32(0), a * b)


def _next_random(bits: Array) -> Array:
    """`v_prng_b32`: one step of a shift register."""
    return np.asarray((bits << U32(1)) ^ np.where(bits >> U32(31), U32(197), U32(0)))


_UUU: tuple[Kind, ...] = ("u32", "u32", "u32")
_SIGNED_BYTE, _BYTE = _saturated(-128, 127, 8), _saturated(0, 255, 8)

SHORT: dict[str, Bind] = {
    **{f"v_min3_{kind}": _three(kind, then(np.minimum, np.minimum)) for kind in ("i16", "u16")},
    **{f"v_max3_{kind}": _three(kind, then(np.maximum, np.maximum)) for kind in ("i16", "u16")},
    **{f"v_med3_{kind}": _three(kind, pure(_middle)) for kind in ("i16", "u16")},
    "v_mad_i16": _three("i16", pure(_multiply_add)),
    "v_mad_legacy_i16": Alu("i16", ("i16",) * 3, pure(_multiply_add)),
    "v_mad_u32_u16": Alu("u32", ("u16", "u16", "u32"), pure(_multiply_add)),
    "v_mad_i32_i16": Alu("i32", ("i16", "i16", "i32"), pure(_multiply_add)),
    "v_mul_hi_u32_u24": Alu("u32", ("u24", "u24"), pure(_high24)),
    "v_mul_hi_i32_i24": Alu("u32", ("i24", "i24"), pure(_high24)),
    "v_sad_u8": Alu("u32", _UUU, pure(_sum_of_differences)),
    "v_sad_hi_u8": Alu("u32", _UUU, pure(lambda a, b, c: _sum_of_differences(a, b, c, shift=16))),
    "v_msad_u8": Alu("u32", _UUU, pure(lambda a, b, c: _sum_of_differences(a, b, c, masked=True))),
    "v_sad_u16": Alu("u32", _UUU, pure(_sum_of_short_differences)),
    "v_lerp_u8": Alu("u32", _UUU, pure(_average)),
    "v_cvt_pk_u16_u32": Alu("u32", ("u32", "u32"), pure(_pair(_saturated(0, 0xFFFF, 16), 16))),
    "v_cvt_pk_i16_i32": Alu("u32", ("i32", "i32"), pure(_pair(_saturated(-(1 << 15), 0x7FFF, 16), 16))),
    "v_ashr_pk_i8_i32": Alu("u16", ("i32", "i32", "u5"), pure(_shifted_pair(_SIGNED_BYTE)), keeps_high=True),
    "v_ashr_pk_u8_i32": Alu("u16", ("i32", "i32", "u5"), pure(_shifted_pair(_BYTE)), keeps_high=True),
    "v_cvt_pk_u8_f32": Alu("u32", ("f32", "u32", "u32"), pure(_inserted_byte)),
    "v_cvt_rpi_i32_f32": Alu("i32", ("f32",), pure(_rounded_up)),
    "v_cvt_off_f32_i4": Alu("f32", ("u32",), pure(_sixteenths)),
    "v_mul_legacy_f32": Alu("f32", ("f32", "f32"), pure(_without_special_zero)),
    "v_prng_b32": Alu("u32", ("u32",), pure(_next_random)),
}
"""Mnemonic without its encoding suffix, to how it is bound."""
