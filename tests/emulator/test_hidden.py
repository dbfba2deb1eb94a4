"""Hidden arguments: filled in as HIP's runtime does, with and without preloading; poison where nothing is modelled."""

from __future__ import annotations

import struct
from typing import Any

import hidden_kernels
import pytest
import torch
from emulated import EmulatorLauncher

from aotkern.codeobject.facts import Argument
from aotkern.emulator import hidden
from aotkern.emulator.waves import POISON
from aotkern.errors import EmulatorError

EACH = pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
PRELOAD = pytest.mark.parametrize("preload", [True, False])


@EACH
@PRELOAD
def test_the_sizes_of_the_grid(arch: str, preload: bool) -> None:
    out = torch.full((3,), -1, dtype=torch.int32)
    device = EmulatorLauncher.of(arch, hidden_kernels, preload=preload)
    device["sizes"][(5, 3, 2)](out, num_warps=1)
    assert out.tolist() == [5, 3, 2]


@EACH
@PRELOAD
@pytest.mark.parametrize("order", ["lockstep", "forward", "reverse"])
@pytest.mark.parametrize("programs", [1, 3, 40])
def test_a_persistent_loop_ends_and_is_right(arch: str, preload: bool, order: Any, programs: int) -> None:
    x, out = torch.randn(1000), torch.zeros(1000)
    device = EmulatorLauncher.of(arch, hidden_kernels, preload=preload, wave_order=order)
    device["strided"][(programs,)](x, out, 1000, B=64, num_warps=1)
    assert torch.equal(out, x + 1)


def _arguments(*kinds: tuple[str, int, int]) -> tuple[Argument, ...]:
    return tuple(Argument(offset, size, kind) for kind, offset, size in kinds)


def test_every_kind_that_the_runtime_fills_in() -> None:
    arguments = _arguments(
        ("global_buffer", 0, 8),
        *((f"hidden_block_count_{axis}", 8 + 4 * at, 4) for at, axis in enumerate("xyz")),
        *((f"hidden_group_size_{axis}", 20 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_remainder_{axis}", 26 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_global_offset_{axis}", 32 + 8 * at, 8) for at, axis in enumerate("xyz")),
        ("hidden_grid_dims", 56, 2),
        ("hidden_dynamic_lds_size", 60, 4),
        ("hidden_private_base", 64, 4),
        ("hidden_shared_base", 68, 4),
    )
    whole = hidden.segment(arguments, 72, bytes(range(8)), (5, 3, 2), 256, 4096)
    assert whole[:8] == bytes(range(8))
    assert struct.unpack_from("<3I6H3QH", whole, 8) == (5, 3, 2, 256, 1, 1, 0, 0, 0, 0, 0, 0, 3)
    assert struct.unpack_from("<I", whole, 60) == (4096,)
    assert all(struct.unpack_from("<2I", whole, 64))


@pytest.mark.parametrize(
    "kind", ["hidden_hostcall_buffer", "hidden_heap_v1", "hidden_queue_ptr", "hidden_something_of_tomorrow"]
)
def test_what_is_not_modelled_is_poison_and_tells_its_name(kind: str) -> None:
    arguments = _arguments(("global_buffer", 0, 8), (kind, 8, 8))
    whole = hidden.segment(arguments, 24, bytes(8), (1, 1, 1), 64, 0)
    (address,) = struct.unpack_from("<Q", whole, 8)
    assert address >> 32 == POISON
    assert struct.unpack_from("<2I", whole, 16) == (POISON, POISON)
    reason = hidden.accessed(address + 0x18)
    assert reason is not None
    assert kind in reason or "kind that is not modelled" in reason
    assert hidden.accessed(POISON << 32 | POISON) is None
    assert hidden.accessed(0x7F00_0000_0018) is None


def test_bytes_given_for_hidden_arguments_do_not_count() -> None:
    arguments = _arguments(("by_value", 0, 4), ("hidden_block_count_x", 4, 4))
    assert hidden.segment(arguments, 8, b"\1\0\0\0\xff\xff\xff\xff", (7, 1, 1), 64, 0) == b"\1\0\0\0\7\0\0\0"


@EACH
def test_host_calls_are_refused_by_name(arch: str) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    device = EmulatorLauncher.of(arch, hidden_kernels)
    with pytest.raises(EmulatorError, match=r"host calls .* are not modelled: hidden_hostcall_buffer"):
        device["prints"][(1,)](out, num_warps=1)
