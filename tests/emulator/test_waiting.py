"""Workgroups that wait for each other: they end in every order, or are told to wait in vain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import waiting_kernels
from emulated import EmulatorLauncher

from aotkern.emulator.errors import LimitError, UndecidedError, WaitingError

ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
ORDERS = pytest.mark.parametrize("order", ["lockstep", "forward", "reverse", "random"])


def launcher(arch: str, order: str = "lockstep", **how: Any) -> EmulatorLauncher:
    return EmulatorLauncher.of(arch, waiting_kernels, wave_order=order, **how)


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


@ARCHS
@ORDERS
def test_forty_programs_take_a_lock_in_turn(arch: str, order: str) -> None:
    values, total, lock = torch.arange(40 * 64, dtype=torch.int32), ints(64), ints(1)
    run = launcher(arch, order)["locked"][(40,)]
    statistics = run(lock, total, values, B=64, num_warps=1)
    assert torch.equal(total, values.view(40, 64).sum(0, dtype=torch.int32))
    assert statistics.wave_instructions < 200_000


@ARCHS
@ORDERS
def test_a_grid_barrier_of_more_waves_than_one_batch_holds(arch: str, order: str) -> None:
    programs = 100
    arrived, values, out = ints(1), ints(programs, 64), ints(programs, 64)
    run = launcher(arch, order)["meet"][(programs,)]
    run(arrived, values, out, programs, B=64, num_warps=1)
    wanted = (torch.arange(programs)[:, None] + 1) % programs + torch.arange(64)
    assert torch.equal(out, wanted.int())


@ARCHS
@ORDERS
def test_a_prefix_sum_that_looks_back(arch: str, order: str) -> None:
    x, totals, flags, out = torch.arange(24 * 128, dtype=torch.int32), ints(24), ints(24), ints(24 * 128)
    launcher(arch, order)["look_back"][(24,)](x, totals, flags, out, B=128, num_warps=2)
    assert torch.equal(out, x.cumsum(0, dtype=torch.int32))


@ARCHS
@ORDERS
@pytest.mark.parametrize("warps", [1, 4])
def test_programs_that_wait_for_each_other_are_named(arch: str, order: str, warps: int) -> None:
    run = launcher(arch, order)["crossed"][(2,)]
    with pytest.raises(WaitingError, match="2 workgroups wait for each other and 0 never started") as caught:
        run(ints(2), ints(2), num_warps=warps)
    error = caught.value
    assert isinstance(error, UndecidedError)
    assert (error.workgroups, error.unstarted) == (2, 0)
    ((pc, text, waves),) = error.spins
    assert "atomic" in text
    assert pc > 0
    assert {wave // warps for wave in waves} == {0, 1}


@ARCHS
@ORDERS
def test_a_load_that_is_waited_for_in_vain(arch: str, order: str) -> None:
    with pytest.raises(WaitingError) as caught:
        launcher(arch, order)["plain_wait"][(3,)](ints(1), ints(1), num_warps=1)
    assert caught.value.workgroups == 3
    assert "load" in caught.value.spins[0][1]


@ARCHS
def test_a_grid_barrier_beyond_the_room_says_how_many_never_started(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotkern.emulator.machine._MOST_WAVES", 128)
    arrived, values, out = ints(1), ints(200, 64), ints(200, 64)
    with pytest.raises(WaitingError) as caught:
        launcher(arch)["meet"][(200,)](arrived, values, out, 200, B=64, num_warps=1)
    assert (caught.value.workgroups, caught.value.unstarted) == (128, 72)


@ARCHS
@ORDERS
def test_polling_in_a_loop_that_works_is_no_waiting(arch: str, order: str) -> None:
    out = ints(1)
    launcher(arch, order)["polls_and_works"][(1,)](ints(1), out, 500, num_warps=1)
    assert int(out) == 500 * 499 // 2


def test_a_limit_of_seconds_and_of_instructions() -> None:
    for how in ({"timeout": 0.05}, {"limit": 5000}):
        out = ints(1)
        with pytest.raises(LimitError) as caught:
            launcher("gfx950", **how)["polls_and_works"][(1,)](ints(1), out, 1 << 30, num_warps=1)
        assert isinstance(caught.value, UndecidedError)
        assert caught.value.pc
        assert caught.value.instruction.startswith(("s_", "v_", "global_", "buffer_"))
        assert f"at {caught.value.pc:#x} ({caught.value.instruction})" in str(caught.value)
