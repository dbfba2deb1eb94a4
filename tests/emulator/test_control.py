"""Branches, program counters, modes, barriers, and how waves part and meet, on small assembled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import Bench

from aotkern.emulator.arena import AccessError
from aotkern.emulator.scheduler import Plan, Scheduler
from aotkern.errors import EmulatorError

ORDERS = ["lockstep", "forward", "reverse", "random"]


def finished(bench: Bench, text: str, groups: int = 1, order: Any = "lockstep", limit: int = 100_000) -> list[Any]:
    """Run a program to its end; the waves as they were when they ended."""
    ended = []

    class Watching(Scheduler):
        def _stop(self, current: Any, why: int, after: int) -> None:
            if why == -1:
                ended.append(current)
            super()._stop(current, why, after)

    with np.errstate(all="ignore"):
        plan = Plan(order, 3, limit, None, groups, bench.waves.count, groups)
        Watching(bench.program(text), plan, iter([bench.waves])).run()
    return ended


BRANCHES = {
    "s_cbranch_scc0": lambda bench, on: bench.waves.scc.__setitem__(slice(None), not on),
    "s_cbranch_scc1": lambda bench, on: bench.waves.scc.__setitem__(slice(None), on),
    "s_cbranch_vccz": lambda bench, on: bench.scalar(106, 0 if on else 1 << 40, bits=64),
    "s_cbranch_vccnz": lambda bench, on: bench.scalar(106, 1 << 40 if on else 0, bits=64),
    "s_cbranch_execz": lambda bench, on: setattr(bench, "exec", 0 if on else 1 << 40),
    "s_cbranch_execnz": lambda bench, on: setattr(bench, "exec", 1 << 40 if on else 0),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("taken", [False, True])
def test_conditional_branches(name: str, taken: bool) -> None:
    bench = Bench()
    BRANCHES[name](bench, taken)
    (wave,) = finished(bench, f"s_movk_i32 s0, 1\n{name} over\ns_movk_i32 s0, 2\nover:\ns_endpgm")
    assert int(wave.scalar[0, 0, 0]) == (1 if taken else 2)


def test_jumps_backward_and_through_registers() -> None:
    text = """
    s_movk_i32 s0, 0
    s_branch forward
    back:
    s_addk_i32 s0, 4
    s_endpgm
    forward:
    s_addk_i32 s0, 1
    s_getpc_b64 s[2:3]
    here:
    s_add_u32 s2, s2, target-here
    s_addc_u32 s3, s3, 0
    s_swappc_b64 s[4:5], s[2:3]
    s_branch back
    target:
    s_addk_i32 s0, 2
    s_setpc_b64 s[4:5]
    """
    (wave,) = finished(Bench(), text)
    assert int(wave.scalar[0, 0, 0]) == 7


@pytest.mark.parametrize("order", ORDERS)
def test_waves_with_loops_of_different_length_part_and_meet(order: str) -> None:
    bench = Bench(waves=6)
    bench.waves.scalar[1, :, 0] = [3, 1, 7, 1, 20, 2]  # s2: how often
    text = """
    s_movk_i32 s0, 0
    loop:
    s_addk_i32 s0, 10
    s_sub_u32 s2, s2, 1
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 loop
    s_addk_i32 s0, 1
    s_endpgm
    """
    ended = finished(bench, text, order=order)
    found = {int(n): int(v) for wave in ended for n, v in zip(wave.number, wave.scalar[0, :, 0], strict=True)}
    assert found == {0: 31, 1: 11, 2: 71, 3: 11, 4: 201, 5: 21}
    assert len(ended) == (1 if order == "lockstep" else 6)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_holds_waves_of_its_workgroup_only(order: str) -> None:
    bench = Bench(waves=4, lds=64, groups=(0, 0, 1, 1))
    bench.waves.scalar[1, :, 0] = [0, 1, 0, 1]
    bench.waves.scalar[1, :, 1] = [5, 6, 7, 8]
    text = """
    s_lshl_b32 s0, s2, 2
    v_mov_b32_e32 v0, s0
    v_mov_b32_e32 v1, s3
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 second
    ds_write_b32 v0, v1
    s_barrier
    s_branch rest
    second:
    ds_write_b32 v0, v1
    s_barrier
    rest:
    v_xor_b32_e32 v0, 4, v0
    ds_read_b32 v2, v0
    s_endpgm
    """
    ended = finished(bench, text, groups=2, order=order)
    found = {int(n): int(v) for wave in ended for n, v in zip(wave.number, wave.vector[2, :, 9], strict=True)}
    assert found == {0: 6, 1: 5, 2: 8, 3: 7}


@pytest.mark.parametrize("order", ORDERS)
def test_a_wave_may_wait_for_what_another_writes(order: str) -> None:
    bench = Bench(waves=2)
    bench.lds.view("u4")[0] = 0
    bench.waves.scalar[1, :, 0] = [0, 1]
    text = """
    v_mov_b32_e32 v0, 0
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 writer
    again:
    ds_read_b32 v1, v0
    v_readfirstlane_b32 s4, v1
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc1 again
    s_endpgm
    writer:
    v_mov_b32_e32 v1, 42
    ds_write_b32 v0, v1
    s_endpgm
    """
    ended = finished(bench, text, order=order, limit=1_000_000)
    assert {int(wave.scalar[2, 0, 0]) for wave in ended if 0 in wave.number} == {42}


def test_an_endless_loop_is_given_up() -> None:
    with pytest.raises(EmulatorError, match="limit"):
        finished(Bench(), "again:\ns_nop 0\ns_branch again", limit=1000)


@pytest.mark.parametrize("order", ORDERS)
def test_a_wave_that_has_ended_no_longer_counts_at_a_barrier(order: str) -> None:
    bench = Bench(waves=2)
    bench.waves.scalar[1, :, 0] = [0, 1]
    text = "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 gone\ns_barrier\ns_movk_i32 s0, 9\ngone:\ns_endpgm"
    assert sum(wave.count for wave in finished(bench, text, order=order)) == 2


@pytest.mark.parametrize(("text", "pc"), [("s_nop 0", 4), ("s_branch -64", None)])
def test_code_that_leaves_its_text_is_refused(text: str, pc: int | None) -> None:
    with pytest.raises(EmulatorError, match="out of its text") as caught:
        finished(Bench(), text)
    assert pc is None or caught.value.pc == pc


def test_the_conversion_mode_can_be_set_and_no_other() -> None:
    bench = Bench()
    bench.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1")
    assert bench.waves.overflow
    bench.scalar(0, 0)
    bench.run("s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s0\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3")
    assert not bench.waves.overflow
    with pytest.raises(AccessError, match="MODE"):
        bench.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0")


WITHOUT_EFFECT = ["s_nop 3", "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_sleep 1", "s_setprio 1", "buffer_inv sc1", "v_nop",
                  "buffer_wbl2 sc1", "s_dcache_wb", "s_icache_inv", "s_dcache_inv", "s_ttracedata"]  # fmt: skip


@pytest.mark.parametrize("text", WITHOUT_EFFECT)
def test_instructions_without_effect(text: str) -> None:
    bench = Bench()
    vector, scalar = bench.v.copy(), bench.waves.scalar.copy()
    bench.run(text)
    assert np.array_equal(vector, bench.v)
    assert np.array_equal(scalar, bench.waves.scalar)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s_memtime s[0:1]", "does not know this instruction"),
        ("v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", "does not know this instruction"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1", "modifier 'cbsz'"),
        ("v_add_u32_e32 v0, v1, v2\nv_cvt_pknorm_i16_f32 v0, v1, v2", "does not know this instruction"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 0, 4), 1", "write to hwreg"),
    ],
)
def test_what_is_unknown_stops_with_its_name_and_place(text: str, message: str) -> None:
    with pytest.raises(EmulatorError, match=message) as caught:
        finished(Bench("gfx942"), f"{text}\ns_endpgm")
    last = text.splitlines()[-1]
    assert caught.value.mnemonic == last.split()[0]
    assert caught.value.pc == (4 if "\n" in text else 0)


def test_registers_beyond_the_declared_ones_do_not_exist() -> None:
    from aotkern.emulator.operands import Operands
    from aotkern.emulator.table import bind

    bench = Bench()
    for text in (
        "v_mov_b32_e32 v12, v0",
        "v_mov_b32_e32 v0, v12",
        "v_accvgpr_read_b32 v0, a4",
        "v_mov_b64_e32 v[0:1], v[11:12]",
    ):
        (instruction,) = bench.instructions(text.replace("[11:12]", "[12:13]"))
        with pytest.raises(Exception, match="beyond the"):
            bind(instruction, Operands(12, 4))
        bind(instruction, Operands(14, 5))
