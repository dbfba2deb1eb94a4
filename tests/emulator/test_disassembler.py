"""Taking the decoder's text apart, and what happens to bytes that are no instruction."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import assembled

from aotkern.emulator import decoder
from aotkern.emulator.disassembler import Instruction, Listing, disassemble
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
    monkeypatch.setattr(decoder, "find_spec", lambda _: None)
    decoder._worker.cache_clear()
    try:
        with pytest.raises(MissingToolError, match=r"aotkern\[emulator\]") as caught:
            disassemble(b"\0\0\0\x01", GFX950)
    finally:
        decoder._worker.cache_clear()
    assert caught.value.tool == "rocm-llvm-python"
    assert importlib.util.find_spec("rocm.llvm") is not None


LITERAL = bytes.fromhex("0600cbd1ff020628")  # v_fma_f32 with a literal constant as a source, which gfx9 has not
GOOD = assembled("v_add_f32_e32 v0, v1, v2", "gfx942")


@pytest.mark.parametrize("text", [LITERAL, LITERAL + b"\0\0\2\0", bytes.fromhex("f9aeaa05657760c2")])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_words_that_crash_the_decoder_are_no_instruction(text: bytes, arch: str) -> None:
    with pytest.raises(EmulatorError, match="no instruction"):
        disassemble(text, Target.parse(arch))


@pytest.fixture
def unguarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The process without its guard: literals reach LLVM, which dies of them."""
    source = Path(decoder.process.__file__).read_text()
    guard = "def forbidden(first: int, second: int) -> bool:\n"
    assert guard in source
    program = tmp_path / "unguarded.py"
    program.write_text(source.replace(guard, guard + "    return False\n"))
    worker = decoder._Worker(decoder.library(), program)
    monkeypatch.setattr(decoder, "_worker", lambda: worker)
    yield worker
    worker.stop()


def test_a_decoder_that_dies_is_started_again_and_names_the_place(unguarded: Any) -> None:
    assert decoder.spelt(GOOD, "gfx942")[0][1][0] == 4
    first = unguarded._running
    found = decoder.spelt(GOOD + LITERAL + bytes(8) + GOOD, "gfx942")
    assert first.poll() is not None
    assert first.returncode < 0
    assert found[0] == (0, (4, "\tv_add_f32_e32 v0, v1, v2"))
    assert found[1] == (4, (0, ""))
    assert found[-1] == (20, (4, "\tv_add_f32_e32 v0, v1, v2"))


def test_a_decoder_that_dies_again_and_again_gives_the_text_up(unguarded: Any) -> None:
    with pytest.raises(EmulatorError, match="died 33 times"):
        decoder.spelt((LITERAL + bytes(8)) * 40, "gfx942")


def test_a_process_that_was_killed_from_outside_is_started_again() -> None:
    assert decoder.spelt(GOOD, "gfx942")
    decoder._worker()._running.kill()
    assert decoder.spelt(GOOD, "gfx942")[0][1][0] == 4


def test_a_place_inside_of_an_instruction_can_be_asked_for() -> None:
    text = assembled("s_mov_b32 s0, 0xbf800001\ns_endpgm", "gfx950")  # the literal is s_nop 1
    whole = Listing(text, GFX950)
    assert (whole.at(0).name, whole.at(4).text, whole.at(8).name) == ("s_mov_b32", "s_nop 1", "s_endpgm")
    with pytest.raises(EmulatorError, match="runs out of its text"):
        whole.at(12)


def test_an_instruction_that_the_end_of_the_text_cuts_is_none() -> None:
    text = assembled("s_mov_b32 s0, 0xbf800001", "gfx950")[:4]
    with pytest.raises(EmulatorError, match="no instruction"):
        disassemble(text, GFX950)
