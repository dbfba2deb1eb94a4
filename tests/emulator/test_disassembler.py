"""Taking the decoder's text apart, and what happens to bytes that are no instruction."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from bench import assembled

from aotkern.emulator import disassembler
from aotkern.emulator.disassembler import Instruction, disassemble
from aotkern.errors import EmulatorError, MissingToolError
from aotkern.target import Target

GFX950 = Target.parse("gfx950")


@pytest.mark.parametrize(
    ("text", "name", "encoding", "operands", "modifiers"),
    [
        ("s_endpgm", "s_endpgm", "", (), ()),
        ("v_add_u32_e32 v0, s4, v1", "v_add_u32", "e32", ("v0", "s4", "v1"), ()),
        ("buffer_load_dword v3, s[8:11], 0 offen offset:8 lds", "buffer_load_dword", "", ("v3", "s[8:11]", "0"),
         (("offen", ""), ("offset", "8"), ("lds", ""))),
        ("v_mov_b32_dpp v5, v4 quad_perm:[2,3,0,1] row_mask:0xf", "v_mov_b32", "dpp", ("v5", "v4"),
         (("quad_perm", "[2,3,0,1]"), ("row_mask", "0xf"))),
        ("v_add_u32_sdwa v2, sext(v1), v3 src0_sel:BYTE_0", "v_add_u32", "sdwa", ("v2", "sext(v1)", "v3"),
         (("src0_sel", "BYTE_0"),)),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "s_setreg_imm32_b32", "", ("hwreg(HW_REG_MODE, 23, 1)", "1"),
         ()),
        ("v_fma_f32 v1, -|v5|, v17, 1.0", "v_fma_f32", "", ("v1", "-|v5|", "v17", "1.0"), ()),
    ],
)  # fmt: skip
def test_an_instruction_is_taken_apart(text: str, name: str, encoding: str, operands: Any, modifiers: Any) -> None:
    found = Instruction.parse(16, b"\0" * 8, f"\t{text.replace(' ', '  ')}\n")
    assert (found.text, found.name, found.encoding) == (text, name, encoding)
    assert (found.operands, found.modifiers, found.end) == (operands, modifiers, 24)


def test_modifiers_have_values() -> None:
    found = Instruction.parse(0, b"", "v_x v0, v1 offset:0x10 op_sel:[0,1] clamp")
    assert (found.number("offset"), found.number("absent")) == (16, 0)
    assert (found.bits("op_sel", ()), found.bits("absent", (1, 1))) == ((0, 1), (1, 1))
    assert (found.modifier("clamp"), found.modifier("absent")) == ("", None)


def test_instructions_cover_the_text_without_gaps() -> None:
    text = "s_mov_b32 s0, 0x12345678\nv_add_f32_e32 v0, v1, v2\nv_fma_f32 v0, v1, v2, v3\ns_endpgm"
    code = assembled(text, "gfx950")
    found = disassemble(code, GFX950, base=0x100)
    assert [i.text for i in found] == text.splitlines()
    assert [i.pc for i in found] == [0x100, 0x108, 0x10C, 0x114]
    assert b"".join(i.code for i in found) == code
    assert disassemble(b"", GFX950) == ()


def test_bytes_that_are_no_instruction_are_named() -> None:
    good = assembled("s_nop 0", "gfx950")
    with pytest.raises(EmulatorError, match="no instruction of gfx950") as caught:
        disassemble(good + b"\xff\xff\xff\xff", GFX950, base=8)
    assert (caught.value.pc, caught.value.mnemonic) == (12, ".long")


def test_gfx942_lacks_what_gfx950_brought() -> None:
    code = assembled("v_cvt_pk_bf16_f32 v0, v1, v2", "gfx950")
    assert disassemble(code, GFX950)[0].name == "v_cvt_pk_bf16_f32"
    with pytest.raises(EmulatorError):
        disassemble(code, Target.parse("gfx942"))


def test_a_missing_decoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembler, "find_spec", lambda _: None)
    disassembler._library.cache_clear()
    try:
        with pytest.raises(MissingToolError, match=r"aotkern\[emulator\]") as caught:
            disassemble(b"\0\0\0\0", GFX950)
    finally:
        disassembler._library.cache_clear()
    assert caught.value.tool == "rocm-llvm-python"
    assert importlib.util.find_spec("rocm.llvm") is not None
