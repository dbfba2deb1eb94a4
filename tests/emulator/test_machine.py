"""What `run` promises beyond right results: orders of waves, preload, bounds, poison, counts."""

from __future__ import annotations

from typing import Any

import emulated_kernels
import numpy as np
import pytest
import torch
from emulated import EmulatorLauncher, buffers, packed

from aotkern.emulator import Buffer, run
from aotkern.emulator.waves import POISON
from aotkern.errors import EmulatorError, IntegrityError

ARCHS = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])


def attention(arch: str, **how: Any) -> np.ndarray:
    """One small sparse attention, as bits."""
    rng = torch.manual_seed(11)
    q = torch.randn(3, 16, 64, generator=rng).bfloat16()
    kv = torch.randn(50, 64, generator=rng).mul(10).to(torch.float8_e4m3fn)
    codes = torch.randint(120, 125, (50,), generator=rng, dtype=torch.uint8)
    indices = torch.randint(-1, 50, (3, 70), generator=rng, dtype=torch.int32)
    out = torch.zeros(3, 16, 64, dtype=torch.bfloat16)
    device = EmulatorLauncher.of(arch, emulated_kernels, **how)
    device["attend"][(3,)](q, kv, codes, indices, out, 70, H=16, D=64, T=32, FP8=True, num_warps=4)
    return out.view(torch.int16).numpy()


@ARCHS
def test_orders_of_waves_and_preload_change_no_bit(arch: str) -> None:
    first = attention(arch)
    for how in ({"wave_order": "forward"}, {"wave_order": "reverse"}, {"wave_order": "random", "seed": 1},
                {"wave_order": "random", "seed": 2}, {"preload": False}):  # fmt: skip
        assert np.array_equal(first, attention(arch, **how)), how


@ARCHS
def test_preloaded_arguments_are_not_read_from_memory(arch: str) -> None:
    x, y = torch.randn(64), torch.randn(64)
    counts = []
    for preload in (True, False):
        out = torch.zeros(64)
        device = EmulatorLauncher.of(arch, emulated_kernels, preload=preload)
        counts.append(device["add"][(1,)](x, y, out, 64, BLOCK=64, num_warps=1).mnemonics)
        assert torch.equal(out, x + y)
    assert not any(name.startswith("s_load") for name in counts[0])
    assert any(name.startswith("s_load") for name in counts[1])


@ARCHS
def test_an_index_outside_its_buffer_is_caught(arch: str) -> None:
    x, out = torch.arange(64, dtype=torch.float32), torch.zeros(64)
    indices = torch.arange(64)
    device = EmulatorLauncher.of(arch, emulated_kernels)
    device["gather_unchecked"][(1,)](x, indices, out, BLOCK=64, num_warps=1)
    assert torch.equal(out, x)
    indices[37] = 64
    with pytest.raises(EmulatorError, match="outside the given buffers") as caught:
        device["gather_unchecked"][(1,)](x, indices, out, BLOCK=64, num_warps=1)
    error = caught.value
    assert (error.lane, error.address) == (37, x.data_ptr() + 256)
    assert error.mnemonic.startswith(("global_load", "buffer_load"))
    assert error.pc is not None


def compiled_add(arch: str = "gfx950") -> tuple[bytes, dict[str, Any], list[Any]]:
    device = EmulatorLauncher.of(arch, emulated_kernels)
    x, y, out = torch.ones(64), torch.ones(64), torch.zeros(64)
    kernel, passed = device.compiled(emulated_kernels.add, (x, y, out, 64), {"BLOCK": 64, "num_warps": 1})
    how = {"grid": (1, 1, 1), "threads": 64, "kernarg": packed(passed), "dynamic_lds": 0}
    return kernel.asm["hsaco"], how, passed


def test_a_store_needs_writable_memory() -> None:
    code, how, passed = compiled_add()
    given = buffers(passed)
    frozen = [Buffer(given[2].address, memoryview(bytes(given[2].data)))]
    with pytest.raises(EmulatorError, match="read-only"):
        run(code, **how, buffers=given[:2] + frozen)


def test_a_buffer_that_was_not_given_is_out_of_reach() -> None:
    code, how, passed = compiled_add()
    with pytest.raises(EmulatorError, match="outside the given buffers") as caught:
        run(code, **how, buffers=buffers(passed)[1:])
    assert caught.value.address == passed[0][1].data_ptr()


def test_wrong_launches_are_refused() -> None:
    code, how, passed = compiled_add()
    given = buffers(passed)
    for change, message in (({"threads": 32}, "work-items"), ({"threads": 2048}, "work-items"),
                            ({"dynamic_lds": 200_000}, "LDS"), ({"limit": 10}, "limit")):  # fmt: skip
        with pytest.raises(EmulatorError, match=message):
            run(code, **(how | change), buffers=given)
    with pytest.raises(IntegrityError):
        run(b"\x7fELF" + bytes(100), **how, buffers=given)


def test_an_empty_grid_runs_nothing() -> None:
    code, how, passed = compiled_add()
    for grid in ((0, 1, 1), (4, 0, 1)):
        assert run(code, **(how | {"grid": grid}), buffers=buffers(passed)).waves == 0
    assert float(passed[2][1].sum()) == 0


def test_statistics_count_what_ran() -> None:
    code, how, passed = compiled_add()
    given = buffers(passed)
    statistics = run(code, **how, buffers=given)
    assert (statistics.workgroups, statistics.waves) == (1, 1)
    assert statistics.wave_instructions == sum(statistics.mnemonics.values()) >= len(statistics.addresses)
    assert statistics.mnemonics["s_endpgm"] == 1
    many = run(code, **(how | {"grid": (200, 1, 1)}), buffers=given)
    assert many.addresses == statistics.addresses
    assert many.mnemonics["s_endpgm"] == 200


def test_poison_is_a_nan_in_every_format_and_no_address() -> None:
    word = np.array([POISON], np.uint32)
    assert np.isnan(word.view(np.float32)).all()
    assert np.isnan(word.view(np.float16)).all()
    upper = torch.tensor([POISON >> 24], dtype=torch.uint8)
    assert torch.isnan(upper.view(torch.float8_e4m3fn).float()).all()
    assert torch.isnan(upper.view(torch.float8_e5m2).float()).all()
    assert POISON << 32 | POISON > 1 << 48


def test_what_was_never_written_holds_poison() -> None:
    from bench import Bench
    from test_control import finished

    (wave,) = finished(Bench(), "v_mov_b32_e32 v0, 0\nds_read_b32 v2, v0\nscratch_load_dword v3, off, off\ns_endpgm")
    for register in (2, 3, 77):
        assert set(wave.vector[register].ravel().tolist()) == {POISON}
    assert int(wave.scalar[20, 0, 0]) == POISON
