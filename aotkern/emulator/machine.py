"""Running a code object: workgroups in batches, waves in lockstep where they can be.

A batch is some workgroups whose waves all exist at once. With `wave_order="lockstep"` the waves of a batch that stand
at the same program counter execute together; where they part at a branch the ones that are behind go first, and they
join again where they meet. The other orders run one workgroup at a time and each wave by itself up to a barrier: first
to last, last to first, or shuffled anew at every barrier. Code without races gives the same result in every order.

What is not modelled: time, hazards (missing waits and nops), caches, the rounding inside MFMA, the last place of
transcendental functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from aotkern.emulator import hidden
from aotkern.emulator.arena import Arena, Region
from aotkern.emulator.control import Code
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.launch import Launch, check_modes, dispatch_packet
from aotkern.emulator.operands import Operands
from aotkern.emulator.program import Program
from aotkern.emulator.scheduler import Scheduler
from aotkern.emulator.waves import LANES, POISON
from aotkern.errors import EmulatorError

WaveOrder = Literal["lockstep", "forward", "reverse", "random"]
_TOGETHER = 64  # waves of a batch: enough to spread numpy's overhead, few enough to stay in the cache


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a launch may touch.

    Attributes:
        address: Where it lies, as pointers in the kernel arguments have it.
        data: Its bytes; stores need them to be writable.
    """

    address: int
    data: memoryview | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a launch did.

    Attributes:
        workgroups: Workgroups that ran.
        waves: Waves that ran.
        wave_instructions: Instructions executed, counted once for each wave.
        mnemonics: The same, by mnemonic with its encoding suffix.
        addresses: Image offsets of the instructions that were executed at least once, ascending.
    """

    workgroups: int
    waves: int
    wave_instructions: int
    mnemonics: Mapping[str, int]
    addresses: tuple[int, ...]


def run(
    code: bytes,
    *,
    grid: tuple[int, int, int],
    threads: int,
    kernarg: bytes,
    dynamic_lds: int,
    buffers: Sequence[Buffer],
    wave_order: WaveOrder = "lockstep",
    seed: int = 0,
    preload: bool = True,
    limit: int = 1 << 32,
) -> Statistics:
    """Run the kernel of an HSACO to its end.

    Args:
        code: The HSACO's bytes.
        grid: Workgroups in x, y and z; an empty grid runs nothing.
        threads: Work-items of a workgroup, a multiple of 64.
        kernarg: The visible kernel arguments as the code object lays them out; pointers are addresses in `buffers`.
            Hidden arguments are filled in.
        dynamic_lds: LDS in bytes beyond what the code object declares.
        buffers: All global memory that the kernel may touch; it is changed in place.
        wave_order: How waves take turns; see the module's docstring.
        seed: For the shuffled order.
        preload: Whether kernel arguments are preloaded into registers, where the kernel supports it.
        limit: Most wave instructions before the launch is given up.

    Raises:
        EmulatorError: The code did what it must not, or something that the emulator does not know.
        MissingToolError: The decoder is not installed.
    """
    loaded = _loaded(code)
    kernel, descriptor = loaded.kernel, loaded.kernel.descriptor
    lds = descriptor.group_bytes + dynamic_lds
    _check_size(kernel, threads, lds)
    whole = hidden.segment(kernel.arguments, descriptor.kernarg_bytes, kernarg, grid, threads, dynamic_lds)
    arguments = _region("the kernel arguments", np.frombuffer(whole or bytes(4), np.uint8), writable=False)
    packed = dispatch_packet(grid, threads, descriptor.private_bytes, lds, arguments.address)
    packet = _region("the dispatch packet", np.frombuffer(packed, np.uint8), writable=False)
    regions = (*(_given(buffer) for buffer in buffers), arguments, loaded.image, packet)
    launch = Launch(kernel, grid, threads, arguments, packet, preload)
    scheduler = Scheduler(loaded.program, wave_order, seed, limit)
    groups = _order(grid, wave_order, seed)
    together = max(1, _TOGETHER // launch.waves) if wave_order == "lockstep" else 1
    with np.errstate(all="ignore"), _named_accesses():
        for first in range(0, len(groups), together):
            batch = groups[first : first + together]
            arena = _arena(regions, launch, len(batch), lds)
            scheduler.run(launch.start(arena, batch, whole), len(batch))
    return _statistics(loaded.program, scheduler.executed, len(groups), launch.waves)


@contextmanager
def _named_accesses() -> Iterator[None]:
    """Tell an access through a hidden argument that is not modelled by the argument's name."""
    try:
        yield
    except EmulatorError as error:
        reason = None if error.address is None else hidden.accessed(error.address)
        if reason is None:
            raise
        raise EmulatorError(reason, error.pc, error.instruction, error.lane) from error


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A code object that was taken in: decoded blocks serve every further launch."""

    kernel: Kernel
    image: Region
    program: Program


@lru_cache(maxsize=64)
def _loaded(code: bytes) -> _Loaded:
    kernel = Kernel.read(code)
    check_modes(kernel)
    image = _region("the code object", np.frombuffer(kernel.image, np.uint8), writable=False)
    operands = Operands(kernel.vgprs, kernel.agprs, arch=kernel.target.arch)
    program = Program(kernel.image, *kernel.text, kernel.target, operands, Code(image.address))
    return _Loaded(kernel, image, program)


def _check_size(kernel: Kernel, threads: int, lds: int) -> None:
    limits = kernel.target.limits
    if threads <= 0 or threads % LANES or threads // LANES > limits.max_warps:
        raise EmulatorError(f"{threads} work-items: expected a multiple of {LANES}, at most {limits.max_warps * LANES}")
    if lds > limits.lds_bytes:
        raise EmulatorError(f"{lds} bytes of LDS: {kernel.target.arch} has {limits.lds_bytes}")


def _region(name: str, data: npt.NDArray[np.uint8], *, writable: bool) -> Region:
    """Memory of the emulator's own, at its real address so that it cannot collide with a buffer."""
    kept = np.empty(len(data) + 8, np.uint8)
    start = -kept.ctypes.data % 8
    kept[start : start + len(data)] = data
    part = kept[start : start + len(data)]
    return Region(name, part.ctypes.data, part, writable)


def _given(buffer: Buffer) -> Region:
    data: npt.NDArray[Any] = np.frombuffer(buffer.data, np.uint8)
    return Region("a buffer", buffer.address, data, bool(data.flags.writeable))


def _order(grid: tuple[int, int, int], order: WaveOrder, seed: int) -> npt.NDArray[np.int64]:
    """The ids of all workgroups, `(n, 3)`, x fastest, in the order in which they run."""
    ids: npt.NDArray[np.int64] = np.indices(grid[::-1]).reshape(3, -1)[::-1].T
    if order == "reverse":
        return ids[::-1]
    return np.random.default_rng(seed).permutation(ids) if order == "random" else ids


def _arena(regions: tuple[Region, ...], launch: Launch, groups: int, lds: int) -> Arena:
    """Fresh LDS and scratch, poisoned."""
    lds_stride = -(-max(lds, 1) // 16) * 16
    scratch = launch.kernel.descriptor.private_bytes
    scratch_stride = -(-scratch // 16) * 16
    sizes = {"LDS": groups * lds_stride, "scratch": groups * launch.threads * scratch_stride}
    made = {
        name: Region(name, 0, np.full(-(-size // 4), POISON, np.uint32).view(np.uint8), writable=True)
        for name, size in sizes.items()
    }
    return Arena(regions, made["LDS"], lds_stride, lds, made["scratch"], scratch_stride, scratch)


def _statistics(program: Program, executed: Mapping[int, int], groups: int, waves: int) -> Statistics:
    mnemonics: Counter[str] = Counter()
    addresses: set[int] = set()
    for pc, count in executed.items():
        for instruction in program.block(pc).instructions:
            mnemonics[instruction.mnemonic] += count
            addresses.add(instruction.pc)
    return Statistics(groups, groups * waves, mnemonics.total(), dict(mnemonics), tuple(sorted(addresses)))


__all__ = ["Buffer", "Statistics", "WaveOrder", "run"]
