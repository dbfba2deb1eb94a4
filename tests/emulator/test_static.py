"""The static check: silent on what Triton makes, and finds faults that are planted in it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import emulated_kernels
import pytest
import static_kernels
import torch
from bench import assembled
from emulated import EmulatorLauncher

from aotkern import codeobject
from aotkern.codeobject import elf
from aotkern.emulator.constants import Constants
from aotkern.emulator.disassembler import Instruction, disassemble
from aotkern.emulator.effects import effects
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.operands import Operands
from aotkern.emulator.static import Fault, Flaw, check
from aotkern.target import Target

NOP = assembled("s_nop 0", "gfx950")
ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])


@cache
def compiled(arch: str, name: str = "attend") -> bytes:
    device = EmulatorLauncher.of(arch, emulated_kernels)
    bf16, i32 = torch.zeros(1024, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.int32)
    calls = {
        "attend": ((bf16, bf16, i32.to(torch.uint8), i32, bf16, 70), {"H": 16, "D": 64, "T": 32, "FP8": False}),
        "softmax": ((bf16, bf16, 1000, 1000), {"BLOCK": 1024}),
        "add": ((bf16, bf16, bf16, 64), {"BLOCK": 64, "num_warps": 1}),
    }
    kernel, _ = device.compiled(getattr(emulated_kernels, name), *calls[name])
    code: bytes = kernel.asm["hsaco"]
    return code


def text_of(code: bytes) -> tuple[int, tuple[Instruction, ...]]:
    """Where the text's bytes stand in the file, less their address; and its instructions by address."""
    section = elf.parse(code, "sample").section(".text")
    target = codeobject.read(code, "sample").target
    return section.offset - section.address, disassemble(bytes(section.data), target, section.address)


def patched(code: bytes, pc: int, raw: bytes) -> bytes:
    shift, _ = text_of(code)
    return code[: pc + shift] + raw + code[pc + shift + len(raw) :]


def first(code: bytes, wanted: Callable[[Instruction], bool]) -> Instruction:
    return next(instruction for instruction in text_of(code)[1] if wanted(instruction))


def new(code: bytes, changed: bytes) -> list[Flaw]:
    return [flaw for flaw in check(changed) if flaw not in check(code)]


@ARCHS
@pytest.mark.parametrize("name", ["attend", "softmax", "add"])
def test_compiled_kernels_have_no_fault(arch: str, name: str) -> None:
    assert check(compiled(arch, name)) == ()


@ARCHS
def test_every_wait_that_is_taken_away_before_a_result_is_read_is_found(arch: str) -> None:
    code = compiled(arch)
    instructions = text_of(code)[1]
    operands = Operands(256, 256, arch=arch)
    outcomes: Counter[str] = Counter()
    for place, instruction in enumerate(instructions):
        if instruction.name != "s_waitcnt" or ("lgkmcnt" in instruction.text and "vmcnt" in instruction.text):
            continue
        found = [flaw for flaw in check(patched(code, instruction.pc, NOP)) if flaw.fault is Fault.MISSING_WAIT]
        follower = instructions[place + 1]
        used = effects(follower, operands).reads if follower.name not in ("s_barrier", "s_waitcnt") else frozenset()
        outcomes["found" if found else "needed by memory only"] += 1
        if "vmcnt(0)" in instruction.text and used and follower.name.startswith("v_"):
            assert found, instruction
    assert outcomes["found"] > 5


@ARCHS
def test_the_first_reader_and_its_register_are_named(arch: str) -> None:
    code = compiled(arch, "add")
    _, instructions = text_of(code)
    waits = [i for i in instructions if i.text == "s_waitcnt vmcnt(0)"]
    (flaw,) = new(code, patched(code, waits[0].pc, NOP))
    assert flaw.fault is Fault.MISSING_WAIT
    assert flaw.pc == waits[0].end
    assert flaw.detail.endswith("vmcnt")


@ARCHS
def test_a_register_that_nothing_writes(arch: str) -> None:
    code = compiled(arch, "add")
    add = first(code, lambda i: i.name == "v_mov_b32" or i.name.startswith("v_lshl"))
    raw = assembled(f"v_mov_b32_e32 {add.operands[0]}, v3", arch)[:4]
    flaws = new(code, patched(code, add.pc, raw.ljust(len(add.code), NOP[:1]) if len(add.code) == 4 else raw + NOP))
    assert (add.pc, Fault.NEVER_WRITTEN, "v3") in [(flaw.pc, flaw.fault, flaw.detail) for flaw in flaws]


@ARCHS
def test_a_branch_out_of_the_text(arch: str) -> None:
    code = compiled(arch)
    branch = first(code, lambda i: i.name.startswith("s_cbranch"))
    flaws = new(code, patched(code, branch.pc, (0x7FF0).to_bytes(2, "little")))
    assert (branch.pc, Fault.LEAVES_TEXT) in [(flaw.pc, flaw.fault) for flaw in flaws]


def test_an_instruction_of_the_other_target() -> None:
    code = compiled("gfx942", "add")
    place = first(code, lambda i: len(i.code) == 8 and i.name.startswith("v_"))
    foreign = assembled("v_cvt_pk_bf16_f32 v0, v1, v2", "gfx950")
    (flaw,) = [flaw for flaw in check(patched(code, place.pc, foreign)) if flaw.pc == place.pc]
    assert (flaw.fault, flaw.detail) == (Fault.NO_INSTRUCTION, "gfx942")


@ARCHS
def test_a_register_beyond_the_declared_ones(arch: str) -> None:
    code = compiled(arch, "add")
    place = first(code, lambda i: len(i.code) == 4 and i.name.startswith("v_"))
    flaws = check(patched(code, place.pc, assembled("v_mov_b32_e32 v200, v0", arch)))
    assert (place.pc, Fault.UNDECLARED) in [(flaw.pc, flaw.fault) for flaw in flaws]


CASES: dict[str, tuple[str, str]] = {
    "v_add_f32_e32 v0, v1, v2": ("v0", "v1 v2"),
    "v_fmac_f32_e32 v0, v1, v2": ("v0", "v0 v1 v2"),
    "v_mad_u64_u32 v[0:1], s[2:3], v4, s5, v[6:7]": ("v0 v1 s2 s3", "v4 s5 v6 v7"),
    "v_cmp_lt_f32_e64 s[2:3], |v1|, -v2": ("s2 s3", "v1 v2"),
    "v_div_fmas_f32 v0, v1, v2, v3": ("v0", "v1 v2 v3 vcc_lo vcc_hi"),
    "v_permlane16_swap_b32_e32 v1, v2": ("v1 v2", "v1 v2"),
    "global_store_dwordx2 v[0:1], v[2:3], off": ("", "v0 v1 v2 v3"),
    "global_load_dwordx2 v[2:3], v0, s[4:5]": ("v2 v3", "v0 s4 s5"),
    "global_atomic_add v0, v[2:3], v4, off sc0": ("v0", "v2 v3 v4"),
    "global_atomic_add v[2:3], v4, off": ("", "v2 v3 v4"),
    "buffer_atomic_add v4, v1, s[8:11], 0 offen sc0": ("v4", "v4 v1 s8 s9 s10 s11"),
    "buffer_load_dword v1, s[8:11], 0 offen lds": ("", "v1 s8 s9 s10 s11 m0"),
    "ds_write2_b32 v0, v1, v2 offset1:4": ("", "v0 v1 v2"),
    "ds_bpermute_b32 v0, v1, v2": ("v0", "v1 v2"),
    "ds_add_rtn_u32 v0, v1, v2": ("v0", "v1 v2"),
    "s_and_saveexec_b64 s[2:3], vcc": ("s2 s3 exec_lo exec_hi", "vcc_lo vcc_hi"),
    "s_addk_i32 s3, 5": ("s3", "s3"),
    "s_cmp_eq_u32 s1, s2": ("", "s1 s2"),
    "s_cbranch_vccz 4": ("", "vcc_lo vcc_hi"),
    "s_load_dwordx4 s[4:7], s[0:1], 0x8": ("s4 s5 s6 s7", "s0 s1"),
    "v_mfma_f32_16x16x16_f16 a[0:3], v[4:5], v[6:7], 0": ("a0 a1 a2 a3", "v4 v5 v6 v7"),
    "s_waitcnt vmcnt(0)": ("", ""),
}


@pytest.mark.parametrize("text", CASES)
def test_what_instructions_read_and_write(text: str) -> None:
    from aotkern.emulator.effects import register_name
    from aotkern.target import Target

    (instruction,) = disassemble(assembled(text, "gfx950"), Target.parse("gfx950"))
    operands = Operands(256, 256)
    found = effects(instruction, operands)
    writes, reads = CASES[text]
    assert {register_name(number, operands) for number in found.writes} == set(writes.split())
    assert {register_name(number, operands) for number in found.reads} == set(reads.split())


def flawless(text: str, arch: str = "gfx942") -> list[tuple[Fault, str]]:
    """What the check finds in hand-written code that takes the place of a kernel's beginning."""
    code = compiled(arch, "softmax")
    kernel = Kernel.read(code)
    # Its two entries are 256 bytes apart: both run this.
    changed = patched(code, kernel.entry, assembled("s_branch 63", arch))
    changed = patched(changed, kernel.entry + 256, assembled(text, arch))
    return [(flaw.fault, flaw.detail) for flaw in check(changed) if flaw.fault is not Fault.NEVER_WRITTEN]


@ARCHS
def test_calls_are_followed_into_functions_and_back(arch: str) -> None:
    device = EmulatorLauncher.of(arch, static_kernels)
    i32 = torch.zeros(4, dtype=torch.int32)
    kernel, _ = device.compiled(static_kernels.calls, (i32, i32, 7), {"num_warps": 1})
    code = kernel.asm["hsaco"]
    assert [flaw for flaw in check(code) if flaw.fault is not Fault.NEVER_WRITTEN] == []
    places = [i for i in text_of(code)[1] if i.name == "global_store_dword"]
    assert places, "the store stands behind the calls"
    last = places[-1]
    raw = assembled("v_mov_b32_e32 v200, v0", arch) + NOP
    assert (last.pc, Fault.UNDECLARED) in [(flaw.pc, flaw.fault) for flaw in check(patched(code, last.pc, raw))]


def test_a_load_may_overtake_an_earlier_one_of_its_counter() -> None:
    loads = "global_load_dword v1, v0, s[0:1]\n" * 2
    assert flawless(loads + "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v2, v1\ns_endpgm") == []
    assert flawless(loads + "s_waitcnt vmcnt(1)\nv_mov_b32_e32 v2, v1\ns_endpgm") == [(Fault.MISSING_WAIT, "v1: vmcnt")]
    mixed = "global_load_dword v1, v0, s[0:1]\nds_read_b32 v1, v0\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_endpgm"
    assert flawless(mixed) == [(Fault.MISSING_WAIT, "v1: vmcnt")]


@pytest.mark.parametrize(("count", "found"), [(62, 1), (63, 0)])
def test_a_full_counter_holds_back(count: int, found: int) -> None:
    text = "global_load_dword v1, v0, s[0:1]\ns_mov_b32 s2, 0\ns_mov_b32 s3, 0\n"
    code = text + "global_load_dword v2, v0, s[0:1]\n" * count + "v_mov_b32_e32 v3, v1\ns_endpgm"
    kernel = Kernel.read(compiled("gfx942", "softmax"))  # its two entries are 256 bytes apart: both run this
    changed = patched(compiled("gfx942", "softmax"), kernel.entry, assembled("s_branch 63", "gfx942"))
    changed = patched(changed, kernel.entry + 256, assembled(code, "gfx942"))
    assert len([flaw for flaw in check(changed) if flaw.fault is Fault.MISSING_WAIT]) == found


LDS = "v_mov_b32_e32 v1, 0\ns_mov_b32 m0, 0\n"
FILL = "global_load_lds_dword v1, s[0:1]\n"


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("ds_write_b32 v1, v1\ns_barrier", ["LDS that ds_write sets: lgkmcnt"]),
        ("ds_write_b32 v1, v1\ns_waitcnt lgkmcnt(0)\ns_barrier", []),
        ("ds_add_u32 v1, v1\ns_barrier", ["LDS that ds_write sets: lgkmcnt"]),
        (
            "ds_write_b32 v1, v1\nds_write_b32 v1, v1\ns_waitcnt lgkmcnt(1)\ns_barrier",
            ["LDS that ds_write sets: lgkmcnt"],
        ),
        (FILL + "ds_read_b32 v2, v1", ["LDS that a load fills: vmcnt"]),
        (FILL + "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1", []),
        (FILL + FILL + "s_waitcnt vmcnt(1)\ns_barrier\ns_waitcnt vmcnt(0)\nds_read_b32 v2, v1", []),
        (FILL + "s_barrier\ns_barrier", ["LDS that a load fills, without a wait over 2 barriers: vmcnt"]),
        (FILL + "s_barrier\ns_waitcnt vmcnt(0)\ns_barrier", []),
    ],
)
def test_lds_at_barriers(text: str, details: list[str]) -> None:
    found = flawless(LDS + text + "\ns_endpgm", "gfx950")
    assert found == [(Fault.MISSING_WAIT, detail) for detail in details]


def _writes_before(wait: Instruction, instructions: tuple[Instruction, ...]) -> bool:
    """Whether the last LDS instruction before a wait, back to a branch or another wait, is a write."""
    for one in reversed(instructions[: instructions.index(wait)]):
        if one.name.startswith("ds_write"):
            return True
        if one.name.startswith(("s_waitcnt", "s_cbranch", "s_branch", "s_barrier")):
            return False
    return False


@ARCHS
def test_a_wait_that_guards_lds_at_a_barrier_is_missed(arch: str) -> None:
    code = compiled(arch, "attend")
    instructions = text_of(code)[1]
    waits = [
        one
        for one, after in itertools.pairwise(instructions)
        if one.name == "s_waitcnt" and "lgkmcnt(0)" in one.text and after.name == "s_barrier"
    ]
    assert waits
    found = [wait for wait in waits if any(f.fault is Fault.MISSING_WAIT for f in check(patched(code, wait.pc, NOP)))]
    guards = [wait for wait in waits if _writes_before(wait, instructions)]
    assert guards
    assert [wait.pc for wait in guards if wait not in found] == []


def test_a_return_address_that_lanes_keep_is_known() -> None:
    operands = Operands(64, 0)
    constants, values = Constants(operands), dict[Any, int]()
    text = (
        "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0xfffffff0\ns_addc_u32 s5, s5, -1\nv_writelane_b32 v40, s4, 0\n"
        "v_writelane_b32 v40, s5, 1\ns_mov_b64 s[4:5], 0\nv_readlane_b32 s8, v40, 0\nv_readlane_b32 s9, v40, 1"
    )
    for instruction in disassemble(assembled(text, "gfx942"), Target.parse("gfx942"), 0x1000):
        constants.follow(instruction, effects(instruction, operands).writes, values)
    assert constants.address("s[8:9]", values) == 0x1004 - 16
    (overwritten,) = disassemble(assembled("v_mov_b32_e32 v40, 0", "gfx942"), Target.parse("gfx942"))
    constants.follow(overwritten, effects(overwritten, operands).writes, values)
    (read,) = disassemble(assembled("v_readlane_b32 s8, v40, 0", "gfx942"), Target.parse("gfx942"))
    constants.follow(read, effects(read, operands).writes, values)
    assert constants.address("s[8:9]", values) is None
