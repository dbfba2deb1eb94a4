"""Running a code object: workgroups in batches, waves in lockstep where they can be.

A batch is some workgroups whose waves all exist at once. With `wave_order="lockstep"` the waves of a batch that stand
at the same program counter execute together; where they part at a branch the ones that are behind go first, and they
join again where they meet. In the other orders the waves of a workgroup run one after another, each up to a barrier or
up to a loop that polls: first to last, last to first, or shuffled anew at every barrier. Waves at the same place of
their workgroups, of all those in the batch, run together as long as they do not part. Code without races gives the
same result in every order. Further batches start while the first ones only wait for others, until as many waves are
alive as the device has room for.

What is not modelled: time, hazards (missing waits and nops), caches, the rounding inside MFMA, the last place of
transcendental functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from aotkern.emulator import hidden
from aotkern.emulator.arena import Arena, Region, Watch
from aotkern.emulator.control import Code
from aotkern.emulator.errors import RaceError, UnsupportedError
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.latest import Late
from aotkern.emulator.launch import Launch, check_modes, dispatch_packet
from aotkern.emulator.observing import Observed
from aotkern.emulator.operands import Operands
from aotkern.emulator.outstanding import Queue
from aotkern.emulator.program import Program
from aotkern.emulator.races import Races
from aotkern.emulator.scheduler import Plan, Scheduler, WaveOrder
from aotkern.emulator.waves import LANES, POISON, Array, Waves
from aotkern.errors import EmulatorError

_TOGETHER = 64  # waves of a batch: enough to spread numpy's overhead, few enough to stay in the cache
_UNITS = {"gfx942": 304, "gfx950": 256}  # compute units of the devices
_REGISTERS, _UNIT_WAVES = 512, 32  # vector registers of a lane's share; waves of a compute unit
_MOST_WAVES = 4096  # alive at once, however many the device has room for: a wave's registers take up to 128 KiB


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
        stores: The buffers in which something was stored.
    """

    workgroups: int
    waves: int
    wave_instructions: int
    mnemonics: Mapping[str, int]
    addresses: tuple[int, ...]
    stores: tuple[Stores, ...] = ()


@dataclass(frozen=True, slots=True)
class Stores:
    """A buffer in which something was stored.

    Attributes:
        address: Where it begins.
        size: Bytes of it.
        pages: Of a large one, the numbers of its pages (of `arena.PAGE` bytes) in which something was stored.
    """

    address: int
    size: int
    pages: frozenset[int]


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
    timeout: float | None = None,
    detect_races: bool = False,
    latest: bool = False,
) -> Statistics:
    """Run the kernel of an HSACO to its end.

    Args:
        code: The HSACO's bytes.
        grid: Workgroups in x, y and z; an empty grid runs nothing.
        threads: Work-items of a workgroup, a multiple of 64.
        kernarg: The visible kernel arguments as the code object lays them out, where pointers are addresses in
            `buffers`; hidden arguments are filled in.
        dynamic_lds: LDS in bytes beyond what the code object declares.
        buffers: All global memory that the kernel may touch; it is changed in place.
        wave_order: How waves take turns; see the module's docstring.
        seed: For the shuffled order.
        preload: Whether kernel arguments are preloaded into registers, where the kernel supports it.
        limit: Most wave instructions before the launch is given up.
        timeout: Most seconds before it is given up; None for no bound.
        detect_races: Whether to note which waves touch the same memory without an order between them.
        latest: Whether memory instructions take effect as late as the waits allow; see `latest`.

    Raises:
        MissingWaitError: With `latest`, a register was touched before its load was waited for.
        LimitError: More wave instructions, or more seconds, than allowed.
        RaceError: Races were found; the launch has gone on to its end, unless something else stopped it.
        WaitingError: Waves only wait for each other, or for workgroups that have no room on the device.
        UnsupportedError: The code asks for what the emulator does not know.
        EmulatorError: The code did what it must not.
        MissingToolError: The decoder is not installed.
    """
    loaded = _loaded(code, detect_races, latest)
    kernel, descriptor = loaded.kernel, loaded.kernel.descriptor
    lds = descriptor.group_bytes + dynamic_lds
    _check_size(kernel, threads, lds)
    whole = hidden.segment(kernel.arguments, descriptor.kernarg_bytes, kernarg, grid, threads, dynamic_lds)
    arguments = _region("the kernel arguments", np.frombuffer(whole or bytes(4), np.uint8), writable=False)
    packed = dispatch_packet(grid, threads, descriptor.private_bytes, lds, arguments.address)
    packet = _region("the dispatch packet", np.frombuffer(packed, np.uint8), writable=False)
    given = tuple(_given(buffer) for buffer in buffers)
    regions = (*given, arguments, loaded.image, packet)
    launch = Launch(kernel, grid, threads, arguments, packet, preload)
    groups = _order(grid, wave_order, seed)
    most = room(kernel, launch.waves, lds)
    plan = Plan(wave_order, seed, limit, timeout, len(groups), launch.waves, most)
    watch = Races(len(groups), launch.waves) if detect_races else None
    batches = _batches(regions, launch, groups, lds, whole, watch, latest)
    scheduler = Scheduler(loaded.program, plan, batches, watch)
    with np.errstate(all="ignore"), _reported(watch), _named_accesses():
        scheduler.run()
    stores = tuple(Stores(region.address, region.size, frozenset(region.pages)) for region in given if region.stored)
    return _statistics(loaded.program, scheduler.executed, len(groups), launch.waves, stores)


@contextmanager
def _reported(watch: Races | None) -> Iterator[None]:
    """Raise what was found in the end; a race explains whatever else went wrong."""
    try:
        yield
    except EmulatorError as error:
        if watch is None or not watch.races:
            raise
        raise RaceError(watch.races) from error
    if watch is not None and watch.races:
        raise RaceError(watch.races)


@contextmanager
def _named_accesses() -> Iterator[None]:
    """Tell an access through a hidden argument that is not modelled by the argument's name."""
    try:
        yield
    except EmulatorError as error:
        reason = None if error.address is None else hidden.accessed(error.address)
        if reason is None:
            raise
        raise UnsupportedError(reason, error.pc, error.instruction, error.lane) from error


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A code object that was taken in: decoded blocks serve every further launch."""

    kernel: Kernel
    image: Region
    program: Program


@lru_cache(maxsize=64)
def _loaded(code: bytes, watched: bool, latest: bool) -> _Loaded:
    kernel = Kernel.read(code)
    check_modes(kernel)
    image = _region("the code object", np.frombuffer(kernel.image, np.uint8), writable=False)
    operands = Operands(kernel.vgprs, kernel.agprs, arch=kernel.target.arch)
    wrap = Late(operands, watched) if latest else Observed() if watched else None
    program = Program(kernel.image, *kernel.text, kernel.target, operands, Code(image.address), wrap)
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


def _batches(
    regions: tuple[Region, ...],
    launch: Launch,
    groups: Array,
    lds: int,
    kernarg: bytes,
    watch: Watch | None,
    latest: bool,
) -> Iterator[Waves]:
    """Fresh waves, some workgroups at a time, as long as the waves that live have left room."""
    together = max(1, _TOGETHER // launch.waves)
    for first in range(0, len(groups), together):
        batch = groups[first : first + together]
        arena = _arena(regions, launch, first, len(batch), lds, watch)
        waves = launch.start(arena, batch, kernarg)
        waves.queue = Queue() if latest else None
        yield waves


def room(kernel: Kernel, waves: int, lds: int) -> int:
    """How many workgroups of `waves` waves and `lds` bytes of LDS the device holds at once; at least one."""
    registers = -(-max(1, kernel.vgprs + kernel.agprs) // 8) * 8
    by_registers = 4 * min(_UNIT_WAVES // 4, _REGISTERS // registers) // waves
    by_lds = kernel.target.limits.lds_bytes // lds if lds else by_registers
    each = max(1, min(by_registers, by_lds))
    return max(1, min(each * _UNITS[kernel.target.arch], _MOST_WAVES // waves))


def _arena(
    regions: tuple[Region, ...], launch: Launch, first: int, groups: int, lds: int, watch: Watch | None
) -> Arena:
    """Fresh LDS and scratch, poisoned, for `groups` workgroups from the launch's `first` on."""
    lds_stride = -(-max(lds, 1) // 16) * 16
    scratch = launch.kernel.descriptor.private_bytes
    scratch_stride = -(-scratch // 16) * 16
    sizes = {"LDS": groups * lds_stride, "scratch": groups * launch.threads * scratch_stride}
    made = {
        name: Region(name, 0, np.full(-(-size // 4), POISON, np.uint32).view(np.uint8), writable=True)
        for name, size in sizes.items()
    }
    waves = first * launch.waves
    return Arena(regions, made["LDS"], lds_stride, lds, made["scratch"], scratch_stride, scratch, first, waves, watch)


def _statistics(
    program: Program, executed: Mapping[int, int], groups: int, waves: int, stores: tuple[Stores, ...]
) -> Statistics:
    mnemonics: Counter[str] = Counter()
    addresses: set[int] = set()
    for pc, count in executed.items():
        for instruction in program.block(pc).instructions:
            mnemonics[instruction.mnemonic] += count
            addresses.add(instruction.pc)
    return Statistics(groups, groups * waves, mnemonics.total(), dict(mnemonics), tuple(sorted(addresses)), stores)


__all__ = ["Buffer", "Statistics", "Stores", "WaveOrder", "run"]
