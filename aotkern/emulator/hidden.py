"""Hidden arguments: what AMD's runtime puts behind the arguments of a call.

The code object's note lists them by kind and place. What HIP's runtime fills in at a launch is filled in here with the
same values; an argument that belongs to something which is not modelled (host calls, device heap, queues) holds an
address of its own in no memory, so that an access through it can be told by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotkern.codeobject.facts import Argument
from aotkern.emulator.operands import PRIVATE_BASE, SHARED_BASE
from aotkern.emulator.waves import POISON

_MEANINGS = {
    "hidden_hostcall_buffer": "host calls (device_print, device_assert) are not modelled",
    "hidden_printf_buffer": "printing through a buffer is not modelled",
    "hidden_heap_v1": "the device heap (malloc) is not modelled",
    "hidden_default_queue": "queues are not modelled",
    "hidden_completion_action": "enqueueing kernels is not modelled",
    "hidden_multigrid_sync_arg": "cooperation of several grids is not modelled",
    "hidden_queue_ptr": "queues are not modelled",
    "hidden_none": "an argument that the runtime leaves alone",
}
_KINDS = tuple(_MEANINGS)
_WINDOW = 1 << 16  # bytes behind a poisoned pointer that count as accesses through it
_DIMENSIONS = 3  # HIP launches every kernel with three


def segment(
    arguments: Sequence[Argument],
    size: int,
    given: bytes,
    grid: tuple[int, int, int],
    threads: int,
    dynamic_lds: int,
) -> bytes:
    """The whole argument segment of a launch.

    Args:
        arguments: All arguments as the code object's note states them.
        size: Bytes of the segment as the kernel descriptor states them.
        given: The visible arguments; what is longer is cut off where hidden ones begin.
        grid: Workgroups in x, y and z.
        threads: Work-items of a workgroup, in x.
        dynamic_lds: LDS in bytes that the launch adds.
    """
    hidden = [argument for argument in arguments if argument.kind.startswith("hidden_")]
    visible = min((argument.offset for argument in hidden), default=max(size, len(given)))
    poison = POISON.to_bytes(4, "little")
    whole = bytearray(poison * -(-max(size, len(given)) // 4))
    whole[: min(visible, len(given))] = given[:visible]
    known = _filled_in(grid, threads, dynamic_lds)
    for argument in hidden:
        value = known.get(argument.kind)
        if value is None:
            value = _poisoned(argument.kind)
        bits = value & (1 << 8 * argument.size) - 1
        whole[argument.offset : argument.offset + argument.size] = bits.to_bytes(argument.size, "little")
    return bytes(whole)


def _filled_in(grid: tuple[int, int, int], threads: int, dynamic_lds: int) -> dict[str, int]:
    """The values that HIP's runtime fills in. Its grids are whole workgroups, so that nothing remains."""
    sizes = (threads, 1, 1)
    return {
        **{f"hidden_block_count_{axis}": count for axis, count in zip("xyz", grid, strict=True)},
        **{f"hidden_group_size_{axis}": size for axis, size in zip("xyz", sizes, strict=True)},
        **{f"hidden_remainder_{axis}": 0 for axis in "xyz"},
        **{f"hidden_global_offset_{axis}": 0 for axis in "xyz"},
        "hidden_grid_dims": _DIMENSIONS,
        "hidden_dynamic_lds_size": dynamic_lds,
        "hidden_private_base": PRIVATE_BASE >> 32,
        "hidden_shared_base": SHARED_BASE >> 32,
    }


def _poisoned(kind: str) -> int:
    """A value that is no memory's address and tells which argument it came from."""
    number = _KINDS.index(kind) if kind in _KINDS else len(_KINDS)
    return POISON << 32 | number * _WINDOW


def accessed(address: int) -> str | None:
    """Which hidden argument an address came from, and why there is nothing behind it; None for every other address."""
    number = (address & 0xFFFF_FFFF) // _WINDOW
    if address >> 32 != POISON or number > len(_KINDS):
        return None
    if number == len(_KINDS):
        return "access through a hidden argument of a kind that is not modelled"
    kind = _KINDS[number]
    return f"{_MEANINGS[kind]}: {kind}"
