"""Races: found in every order of waves where there is one, and nowhere else."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import racing_kernels
import torch
import waiting_kernels
from emulated import EmulatorLauncher

from aotkern.emulator.errors import Race, RaceError

ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
ORDERS = pytest.mark.parametrize("order", ["lockstep", "forward", "reverse", "random"])


def launcher(arch: str, order: str = "lockstep", **how: Any) -> EmulatorLauncher:
    return EmulatorLauncher.of(arch, racing_kernels, waiting_kernels, wave_order=order, detect_races=True, **how)


def found(launch: Any, *args: Any, **constants: Any) -> tuple[Race, ...]:
    try:
        launch(*args, **constants)
    except RaceError as error:
        return error.races
    return ()


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


@ARCHS
@ORDERS
def test_a_read_of_what_another_wave_stored_needs_a_barrier(arch: str, order: str) -> None:
    x, tmp, out = torch.randn(256), torch.zeros(256), torch.zeros(256)
    run = launcher(arch, order)["reverse"][(1,)]
    with pytest.raises(RaceError) as caught:
        run(x, tmp, out, B=256, BARRIER=False, num_warps=4)
    (race,) = caught.value.races
    assert {race.earlier.writes, race.later.writes} == {True, False}
    assert {race.earlier.wave, race.later.wave} in ({0, 3}, {1, 2})
    store, load = sorted((race.earlier, race.later), key=lambda touch: not touch.writes)
    assert "store" in store.instruction
    assert "load" in load.instruction
    assert race.address is not None
    assert tmp.data_ptr() <= race.address < tmp.data_ptr() + 1024
    assert pickle.loads(pickle.dumps(caught.value)).races == caught.value.races
    run(x, tmp, out, B=256, BARRIER=True, num_warps=4)
    assert torch.equal(out, x.flip(0))


@ARCHS
@ORDERS
def test_a_store_over_what_another_wave_reads_needs_a_barrier(arch: str, order: str) -> None:
    run = launcher(arch, order)["overwrite"][(1,)]
    assert found(run, torch.randn(256), torch.zeros(256), B=256, BARRIER=False, num_warps=4)
    assert not found(run, torch.randn(256), torch.zeros(256), B=256, BARRIER=True, num_warps=4)


@ARCHS
@ORDERS
def test_workgroups_that_hand_over_need_atomics(arch: str, order: str) -> None:
    run = launcher(arch, order)["handoff"][(2,)]
    races = found(run, torch.randn(256), torch.zeros(256), torch.zeros(256), B=256, num_warps=4)
    assert {(race.earlier.workgroup, race.later.workgroup) for race in races} <= {(0, 1), (1, 0)}
    assert races


@ARCHS
@ORDERS
def test_what_is_released_and_acquired_is_ordered(arch: str, order: str) -> None:
    x, out = torch.arange(10 * 128, dtype=torch.int32), ints(128)
    for sem, scope, right in (("acq_rel", "gpu", True), ("relaxed", "gpu", False), ("acq_rel", "cta", False)):
        run = launcher(arch, order)["last_reduces"][(10,)]
        given = x, ints(10 * 128), ints(1), out, 10
        races = found(run, *given, B=128, SEM=sem, SCOPE=scope, num_warps=2)
        assert bool(races) != right, (sem, scope, races)
    assert torch.equal(out, 2 * x.view(10, 128).sum(0, dtype=torch.int32))


@ARCHS
@ORDERS
def test_locks_barriers_and_look_back_are_ordered(arch: str, order: str) -> None:
    device = launcher(arch, order)
    values = torch.arange(12 * 64, dtype=torch.int32)
    for warps in (1, 4):
        how = {"num_warps": warps}
        assert not found(device["locked"][(12,)], ints(1), ints(64), values, B=64, **how)
        assert not found(device["meet"][(12,)], ints(1), ints(12, 64), ints(12, 64), 12, B=64, **how)
        assert not found(device["look_back"][(12,)], values, ints(12), ints(12), ints(768), B=64, **how)


@ARCHS
@ORDERS
def test_stores_of_the_same_value_are_harmless(arch: str, order: str) -> None:
    device = launcher(arch, order)
    assert not found(device["same_value"][(5,)], ints(128), B=128, num_warps=2)
    races = found(device["different_values"][(5,)], ints(128), B=128, num_warps=2)
    assert races
    assert all(race.earlier.writes and race.later.writes for race in races)


@ARCHS
@ORDERS
def test_copies_of_an_element_that_is_stored_in_place_are_harmless(arch: str, order: str) -> None:
    x = torch.rand(64) + 1
    wanted = x / x.sum()
    assert not found(launcher(arch, order)["in_place"][(1,)], x, B=64, num_warps=4)
    assert order == "forward" or torch.allclose(x, wanted)


@ARCHS
def test_neighbouring_bytes_are_told_apart(arch: str) -> None:
    x = torch.zeros(3 * 256, dtype=torch.int8)
    run = launcher(arch)["bytes_apart"]
    assert not found(run[(3,)], x, B=256, num_warps=1)
    races = found(run[(4,)], torch.zeros(3 * 256 + 8, dtype=torch.int8), B=256, num_warps=1)
    assert races
    assert {race.size for race in races} == {1}
