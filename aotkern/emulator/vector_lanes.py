"""Instructions that move values between lanes, or between lanes and scalar registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.operands import Fetch, OperandError, Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.waves import EXEC, LANES, Array, Waves

U32 = np.uint32


def _scalar_writer(operands: Operands, text: str) -> Callable[[Waves, Array], None]:
    register = operands.scalar(text)
    place, half, renew = register // 2, register % 2, register in (EXEC, EXEC + 1)

    def write(w: Waves, value: Array) -> None:
        w.scalar[place, :, half] = value
        if renew:
            w.exec_changed()

    return write


def _lane(operands: Operands, text: str) -> tuple[Fetch, int | None]:
    """A lane number: as a function of the waves, and as a plain number where it is a constant."""
    fetch = operands.fetch_scalar(text, "u6")
    return fetch, int(text, 0) & 63 if text.lstrip("-").isdigit() or text.startswith("0x") else None


def read_lane(instruction: Instruction, operands: Operands) -> Step:
    """`v_readlane_b32`: one lane's value to a scalar register, active or not."""
    write = _scalar_writer(operands, instruction.operands[0])
    register = operands.vector(instruction.operands[1])
    fetch, fixed = _lane(operands, instruction.operands[2])
    if fixed is not None:
        return lambda w: write(w, w.vector[register, :, fixed])
    return lambda w: write(w, w.vector[register, np.arange(w.count), fetch(w).astype(np.intp)])


def write_lane(instruction: Instruction, operands: Operands) -> Step:
    """`v_writelane_b32`: a scalar to one lane, active or not."""
    register = operands.vector(instruction.operands[0])
    value = operands.fetch_scalar(instruction.operands[1], "u32")
    fetch, fixed = _lane(operands, instruction.operands[2])

    def step(w: Waves) -> None:
        lane = fixed if fixed is not None else fetch(w).astype(np.intp)
        w.vector[register, np.arange(w.count), lane] = value(w)

    def step_fixed(w: Waves) -> None:
        w.vector[register, :, fixed] = value(w)

    return step if fixed is None else step_fixed


def read_first_lane(instruction: Instruction, operands: Operands) -> Step:
    """`v_readfirstlane_b32`: the value of the first active lane, of lane 0 when none is."""
    write = _scalar_writer(operands, instruction.operands[0])
    register = operands.vector(instruction.operands[1])

    def step(w: Waves) -> None:
        if isinstance(w.mask, bool):
            write(w, w.vector[register, :, 0])
        else:
            write(w, w.vector[register, np.arange(w.count), w.mask.argmax(axis=1)])

    return step


def _swap_halves(distance: int) -> Bind:
    """`v_permlane16_swap` and `v_permlane32_swap`: the upper halves of one register for the lower ones of the other."""
    lower = np.flatnonzero((np.arange(LANES) & distance) == 0)
    upper = lower + distance

    def bind(instruction: Instruction, operands: Operands) -> Step:
        first, second = (operands.vector(text) for text in instruction.operands[:2])

        def step(w: Waves) -> None:
            a, b = w.vector[first].copy(), w.vector[second].copy()
            a_new, b_new = a.copy(), b.copy()
            a_new[:, upper], b_new[:, lower] = b[:, lower], a[:, upper]
            w.write(first, a_new)
            w.write(second, b_new)

        return step

    return bind


def swap(instruction: Instruction, operands: Operands) -> Step:
    """`v_swap_b32`: two registers exchange their values in the active lanes."""
    first, second = (operands.vector(text) for text in instruction.operands[:2])

    def step(w: Waves) -> None:
        kept = w.vector[first].copy()
        w.write(first, w.vector[second])
        w.write(second, kept)

    return step


def _count_below(*, upper: bool) -> Bind:
    """`v_mbcnt_lo` and `v_mbcnt_hi`: set bits of a 32-bit mask below the lane, plus a base."""
    lane = np.arange(LANES) - (32 if upper else 0)
    below = ((np.uint64(1) << np.clip(lane, 0, 32).astype(np.uint64)) - np.uint64(1)).astype(U32)

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0])
        mask, base = (operands.fetch(text, "u32") for text in instruction.operands[1:3])

        def step(w: Waves) -> None:
            bits = np.ascontiguousarray(np.broadcast_to(mask(w), (w.count, LANES)) & below)
            set_bits = np.unpackbits(bits.view(np.uint8).reshape(w.count, LANES, 4), axis=2).sum(axis=2, dtype=U32)
            w.write(target, set_bits + base(w))

        return step

    return bind


def bpermute(instruction: Instruction, operands: Operands) -> Step:
    """`ds_bpermute_b32`: each lane reads the register of the lane that its byte address names; inactive ones give 0."""
    if instruction.number("offset") % 4:
        raise OperandError("offset is no multiple of 4")
    target = operands.vector(instruction.operands[0])
    address, register = (operands.vector(text) for text in instruction.operands[1:3])
    offset = U32(instruction.number("offset"))

    def step(w: Waves) -> None:
        lane = (((w.vector[address] + offset) >> U32(2)) & U32(63)).astype(np.intp)
        given = w.vector[register] if w.mask is True else np.where(w.lanes(), w.vector[register], U32(0))
        w.write(target, np.take_along_axis(given, lane, axis=1))

    return step


def permute(instruction: Instruction, operands: Operands) -> Step:
    """`ds_permute_b32`: each active lane sends its value to the lane that its byte address names; others get 0."""
    target = operands.vector(instruction.operands[0])
    address, register = (operands.vector(text) for text in instruction.operands[1:3])
    offset = U32(instruction.number("offset"))

    def step(w: Waves) -> None:
        lane = (((w.vector[address] + offset) >> U32(2)) & U32(63)).astype(np.intp)
        active = w.lanes()
        received = np.zeros((w.count, LANES), U32)
        wave = np.broadcast_to(np.arange(w.count)[:, None], lane.shape)
        received[wave[active], lane[active]] = w.vector[register][active]
        w.write(target, received)

    return step


def swizzle(instruction: Instruction, operands: Operands) -> Step:
    """`ds_swizzle_b32`: quads permuted, lanes within 32 rotated, or and/or/xor masks on them.

    The decoder spells the pattern in many ways, so it is taken from the encoding, whose first 16 bits it is.

    Raises:
        OperandError: The bit-reversing pattern (FFT), which is not modelled.
    """
    target, register = (operands.vector(text) for text in instruction.operands[:2])
    pattern = int.from_bytes(instruction.code[:2], "little")
    lane = np.arange(LANES)
    if pattern >> 13 == 0b111:
        raise OperandError("ds_swizzle_b32 with the pattern FFT")
    if pattern >> 13 == 0b110:
        by = pattern >> 5 & 31
        down = bool(pattern >> 10 & 1)  # to lower lanes' values: lane n reads lane n - by
        origin = (lane & 32) + ((lane & 31) + (-by if down else by)) % 32
    elif pattern & 0x8000:
        chosen = (pattern >> (2 * (lane & 3))) & 3
        origin = (lane & ~3) + chosen
    else:
        within = (((lane & 31) & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)
        origin = (lane & 32) + (within & 31)

    def step(w: Waves) -> None:
        given = w.vector[register] if w.mask is True else np.where(w.lanes(), w.vector[register], U32(0))
        w.write(target, given[:, origin])

    return step


LANE_MOVES: dict[str, Bind] = {
    "v_readlane_b32": read_lane,
    "v_writelane_b32": write_lane,
    "v_readfirstlane_b32": read_first_lane,
    "v_permlane16_swap_b32": _swap_halves(16),
    "v_permlane32_swap_b32": _swap_halves(32),
    "v_swap_b32": swap,
    "v_mbcnt_lo_u32_b32": _count_below(upper=False),
    "v_mbcnt_hi_u32_b32": _count_below(upper=True),
    "ds_bpermute_b32": bpermute,
    "ds_permute_b32": permute,
    "ds_swizzle_b32": swizzle,
}
"""Mnemonic without its encoding suffix, to how it is bound."""
