"""The decoder against two other programs, over every distinct instruction of compiled kernels of both targets.

tinygrad decodes with tables generated from the machine-readable ISA description that AMD publishes for CDNA 4; no LLVM is
behind it. It states format, mnemonic and length of an instruction and the registers of most operands. Triton's assembler
states that the text which the decoder printed, operands and modifiers included, stands for exactly these bytes.

What the instructions do is not looked at here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import emulated_kernels
import pytest
import torch
from bench import assembled
from emulated import EmulatorLauncher

from aotkern.build.compiler import compile_variant
from aotkern.build.registry import Source, load
from aotkern.emulator.disassembler import Instruction, disassemble
from aotkern.emulator.kernel import Kernel
from aotkern.spec import expand
from aotkern.target import Target
from kernels.launchers import KERNEL_MODULES

ARCHS = ("gfx942", "gfx950")
EACH_ARCH = pytest.mark.parametrize("arch", ARCHS)
LEAST = {"gfx942": 12_000, "gfx950": 8_000}
"""Fewer distinct instructions than these are a sample that lost its kernels."""

_REGISTER = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")
_SHORT = re.compile(r"VOP[12C](_LIT)?")
_LONG = re.compile(r"VOP3(_SDST|SD)?")

UNMARKED_SHORT = {
    "v_fmaak_f32": "has a literal in every form, which the long encoding of these targets cannot hold",
    "v_fmamk_f32": "has a literal in every form, which the long encoding of these targets cannot hold",
    "v_readfirstlane_b32": "LLVM offers only the short of the two encodings",
}
"""Instructions in a short encoding whose mnemonic LLVM gives no `_e32`."""

UNREADABLE = {
    r"v_\w+_sdwa .*\bs[\d\[]": "SDWA has bits that make a source or the result scalar; the tables leave them to the reader",
    r"v_read(first)?lane_b32 ": "the scalar destination stands in the field of a vector register",
    r"s_load_dword": "the unused field of the offset register is read as s0",
    r"v_mfma_\w+_xf32 ": "CDNA 4 dropped them: tinygrad adds the opcodes, but no description of operands",
    r"v_mfma_scale_": "the two scales are not among the described operands",
    r"global_\w+ .*\boff\b": "`off` is 127 here; the tables know 124, and take the address for one register",
    r"buffer_load_\w+ .* lds$": "a load into LDS has no vector register, its field is read all the same",
}
"""Where tinygrad's tables say too little to compare registers: a pattern of the text, and the reason."""


def calls() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Kernels of `emulated_kernels` that bring atomics, division, sorting, conversions and every matrix instruction."""
    f32, bf16, f16 = (torch.zeros(1024).to(kind) for kind in (torch.float32, torch.bfloat16, torch.float16))
    i8, u8, i32, i64 = (f32.to(kind) for kind in (torch.int8, torch.uint8, torch.int32, torch.int64))
    e4m3, fnuz, e5m2 = (f32.to(k) for k in (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2))
    block = {"BLOCK": 256}
    for side in ({"matrix_instr_nonkdim": 16}, {"matrix_instr_nonkdim": 32}):
        for x in (f32, bf16, f16, i8, e4m3, fnuz):
            total, zero = (i32, 0) if x is i8 else (f32, 0.0)
            yield "matmul", (x, x, total, 70, 64, 96), {"BM": 64, "BN": 32, "BK": 32, "ZERO": zero} | side
        yield "scaled_matmul", (u8, u8, u8, u8, f32), {"K": 256, "A": "e2m1", "B": "e2m1"} | side
    for x in (i32, f32):
        yield "histogram", (x, x, x, 700), block
    for x in (e4m3, fnuz, e5m2, bf16, f16, i32):
        yield "convert", (f32, x, 300), block
    for x in (f16, i64):
        yield "add", (x, x, x, 700), block
    yield "softmax", (bf16, f32, 1000, 1000), {"BLOCK": 1024}
    yield "sort", (i32, i32), block
    yield "running_sum", (i32, i32), block
    yield "wide_arithmetic", (i64, i64, i64, 300), block
    yield "functions", (f32, f32, f32, 300), block


def code_objects(arch: str) -> Iterator[bytes]:
    """The calls above, and the first declared variant of every kernel of the family."""
    device = EmulatorLauncher.of(arch, emulated_kernels)
    for name, arguments, constants in calls():
        compiled, _ = device.compiled(getattr(emulated_kernels, name), arguments, constants)
        yield compiled.asm["hsaco"]
    for loaded in load([Source(f"kernels.{module}") for module in KERNEL_MODULES]):
        for key in expand(loaded.declaration, loaded.parameters, Target.parse(arch))[:1]:
            yield compile_variant(loaded, key).data


@cache
def distinct(arch: str) -> tuple[Instruction, ...]:
    """Every instruction of these code objects, each encoding once."""
    found: dict[bytes, Instruction] = {}
    for code in code_objects(arch):
        kernel = Kernel.read(code)
        start, end = kernel.text
        found |= {one.code: one for one in disassemble(kernel.image[start:end], Target.parse(arch))}
    return tuple(found.values())


def other(code: bytes) -> Any:
    """tinygrad's reading of an instruction; zeros behind it, so that a length that is too great shows."""
    amd = pytest.importorskip("tinygrad.renderer.amd", reason="tinygrad 0.14 (Python 3.11 or later) is not installed")
    return amd.decode_inst(code + bytes(16), "cdna")


def encoding_of(read: Any) -> str:
    """The encoding that tinygrad's format stands for, as LLVM's suffixes name it."""
    form = type(read).__name__
    if _SHORT.fullmatch(form):
        return "e32"
    if _LONG.fullmatch(form):
        return "e64"
    return "sdwa" if "_SDWA" in form else "dpp" if form.endswith("_DPP16") else ""


def has_short_form(name: str) -> bool:
    """Whether the tables know an instruction of this name in a short encoding."""
    from tinygrad.runtime.autogen.amd.cdna import enum

    spelt = f"{name.upper()}_E32"
    return any(spelt in family.__members__ for family in (enum.VOP1Op, enum.VOP2Op, enum.VOPCOp))


def disagreements(one: Instruction) -> list[str]:
    """In what the two decoders differ: name, length, encoding."""
    read = other(one.code)
    name, encoding = re.sub(r"_e(32|64)$", "", read.op_name.lower()), encoding_of(read)
    unmarked = one.name in UNMARKED_SHORT if encoding == "e32" else encoding == "e64" and not has_short_form(one.name)
    expected = "" if unmarked else encoding
    return [
        f"{one.text!r} {one.code.hex()}: {what} {ours}, tinygrad {theirs}"
        for what, ours, theirs in (
            ("name", one.name, name),
            ("length", len(one.code), read.size()),
            ("encoding", one.encoding, expected),
        )
        if ours != theirs
    ]


def registers(one: Instruction) -> set[tuple[str, int, int]]:
    """The registers in the decoder's text: kind, first, count. An accumulation register is a vector register."""
    found = set()
    for kind, single, first, last in _REGISTER.findall(" ".join(one.operands)):
        found.add((kind.replace("a", "v"), int(single or first), int(last or single) - int(first or single) + 1))
    return found


def other_registers(one: Instruction) -> set[tuple[str, int, int]]:
    """The same, as tinygrad reads them from the operand fields of the format."""
    read, found = other(one.code), set()
    from tinygrad.renderer.amd.dsl import Reg

    for field, _ in read._fields:
        value = getattr(read, field)
        described = read.operands.keys() & {field, field.removeprefix("v")}
        if described and isinstance(value, Reg) and (value.offset >= 256 or value.offset < 102):
            vector = value.offset >= 256
            found.add(("v", value.offset - 256, value.sz) if vector else ("s", value.offset, value.sz))
    return found


@EACH_ARCH
def test_mnemonics_lengths_and_encodings_agree(arch: str, record_testsuite_property: Any) -> None:
    found = distinct(arch)
    assert len(found) >= LEAST[arch]
    assert [line for one in found for line in disagreements(one)] == []
    record_testsuite_property(f"{arch}: distinct instructions", len(found))
    record_testsuite_property(f"{arch}: distinct names", len({one.name for one in found}))


@EACH_ARCH
def test_what_is_wrong_is_a_disagreement(arch: str) -> None:
    one = next(one for one in distinct(arch) if one.mnemonic == "v_add_u32_e32" and len(one.code) == 4)
    assert (disagreements(one), registers(one)) == ([], other_registers(one))
    assert registers(replace(one, operands=("v254", "v[252:253]", "v255"))) != other_registers(one)
    assert "name v_sub_u32" in disagreements(replace(one, mnemonic="v_sub_u32_e32"))[0]
    assert "encoding e64" in disagreements(replace(one, mnemonic="v_add_u32_e64"))[0]
    assert "length 8, tinygrad 4" in disagreements(replace(one, code=one.code + bytes(4)))[0]


def test_each_exception_of_the_encoding_is_met() -> None:
    met = {one.name for arch in ARCHS for one in distinct(arch) if encoding_of(other(one.code)) == "e32"}
    assert met >= UNMARKED_SHORT.keys()


def test_registers_agree(record_testsuite_property: Any) -> None:
    excused: Counter[str] = Counter()
    for arch in ARCHS:
        for one in distinct(arch):
            if registers(one) != other_registers(one):
                reasons = [pattern for pattern in UNREADABLE if re.match(pattern, one.text)]
                assert len(reasons) == 1, (one.text, one.code.hex(), other_registers(one))
                excused.update(reasons)
    assert excused.keys() == UNREADABLE.keys()
    record_testsuite_property("instructions whose registers could not be compared", sum(excused.values()))


@EACH_ARCH
def test_the_text_assembles_to_the_same_bytes(arch: str) -> None:
    found = distinct(arch)
    if assembled("\n".join(one.text for one in found), arch) != b"".join(one.code for one in found):
        wrong = [(one.text, one.code.hex()) for one in found if assembled(one.text, arch) != one.code]
        pytest.fail(f"{len(wrong)} of {len(found)} texts stand for other bytes: {wrong[:10]}")
