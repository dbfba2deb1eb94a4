"""LDS: reads and writes, transposed reads, atomics.

Addresses are bytes from the beginning of the workgroup's LDS. An access outside of it is an error, where hardware
would read zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aotkern.emulator.access import Atomic, Transfer, active, atomics, deliver, read_lds, update, write_lds
from aotkern.emulator.arena import UnmodelledError
from aotkern.emulator.disassembler import Instruction
from aotkern.emulator.global_memory import lds_offsets
from aotkern.emulator.operands import Operands
from aotkern.emulator.valu import Bind, Step
from aotkern.emulator.waves import LANES, Array, Waves

U32, I64 = np.uint32, np.int64
LDS_MODIFIERS = frozenset(("offset", "offset0", "offset1"))

_READS: dict[str, Transfer] = {
    "b32": Transfer(4),
    "b64": Transfer(4, 2),
    "b96": Transfer(4, 3),
    "b128": Transfer(4, 4),
    "u8": Transfer(1),
    "i8": Transfer(1, signed=True),
    "u16": Transfer(2),
    "i16": Transfer(2, signed=True),
    "u8_d16": Transfer(1, half="low"),
    "u8_d16_hi": Transfer(1, half="high"),
    "i8_d16": Transfer(1, signed=True, half="low"),
    "i8_d16_hi": Transfer(1, signed=True, half="high"),
    "u16_d16": Transfer(2, half="low"),
    "u16_d16_hi": Transfer(2, half="high"),
}
_WRITES: dict[str, Transfer] = {
    **{name: _READS[name] for name in ("b32", "b64", "b96", "b128")},
    "b8": Transfer(1),
    "b16": Transfer(2),
    "b8_d16_hi": Transfer(1, half="high"),
    "b16_d16_hi": Transfer(2, half="high"),
}


def _place(operands: Operands, text: str, offset: int) -> Callable[[Waves], Array]:
    fetch = operands.fetch(text, "u32")
    return lambda w: fetch(w).astype(I64) + offset


def _values(w: Waves, source: int, count: int) -> Array:
    values = w.vector[source : source + count]
    return values if isinstance(w.mask, bool) else values[:, w.mask]


def _read(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], transfer.count)
        place = _place(operands, instruction.operands[1], instruction.number("offset"))

        def step(w: Waves) -> None:
            offsets = lds_offsets(w, place(w), transfer.size)
            deliver(w, target, transfer, read_lds(w, offsets, transfer))

        return step

    return bind


def _write(transfer: Transfer) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        place = _place(operands, instruction.operands[0], instruction.number("offset"))
        source = operands.vector(instruction.operands[1], transfer.count)

        def step(w: Waves) -> None:
            offsets = lds_offsets(w, place(w), transfer.size)
            write_lds(w, offsets, transfer, _values(w, source, transfer.count))

        return step

    return bind


def _two_places(instruction: Instruction, operands: Operands, text: str, scale: int) -> list[Callable[[Waves], Array]]:
    return [_place(operands, text, instruction.number(name) * scale) for name in ("offset0", "offset1")]


def _read_two(transfer: Transfer, scale: int) -> Bind:
    """Two elements, at offsets counted in elements (or in 64 of them)."""

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], 2 * transfer.count)
        places = _two_places(instruction, operands, instruction.operands[1], scale * transfer.size)

        def step(w: Waves) -> None:
            offsets = [lds_offsets(w, place(w), transfer.size) for place in places]
            found = [read_lds(w, offset, transfer) for offset in offsets]  # both, before one is delivered
            for index, values in enumerate(found):
                deliver(w, target + index * transfer.count, transfer, values)

        return step

    return bind


def _write_two(transfer: Transfer, scale: int) -> Bind:
    def bind(instruction: Instruction, operands: Operands) -> Step:
        places = _two_places(instruction, operands, instruction.operands[0], scale * transfer.size)
        sources = [operands.vector(text, transfer.count) for text in instruction.operands[1:3]]

        def step(w: Waves) -> None:
            for place, source in zip(places, sources, strict=True):
                offsets = lds_offsets(w, place(w), transfer.size)
                write_lds(w, offsets, transfer, _values(w, source, transfer.count))

        return step

    return bind


def transposed(block: Array, width: int) -> Array:
    """What a transposed read hands out.

    Args:
        block: `(2, waves, 64)` uint32, the 64 bits that each lane's own address holds.
        width: Bytes of an element, 1 or 2.

    Returns:
        The same shape: within 16 lanes, whose bits together are rows of 16 elements, lane c gets column c.
    """
    _, count, _ = block.shape
    element = np.uint8 if width == 1 else np.uint16
    rows = 8 // width
    whole = np.ascontiguousarray(block.transpose(1, 2, 0)).view(element)
    columns = whole.reshape(count, LANES // 16, rows, 16).swapaxes(2, 3)
    return np.asarray(np.ascontiguousarray(columns).view(U32).reshape(count, LANES, 2).transpose(2, 0, 1))


def _read_transposed(width: int) -> Bind:
    transfer = Transfer(4, 2)

    def bind(instruction: Instruction, operands: Operands) -> Step:
        target = operands.vector(instruction.operands[0], 2)
        place = _place(operands, instruction.operands[1], instruction.number("offset"))

        def step(w: Waves) -> None:
            if not isinstance(w.mask, bool):
                raise UnmodelledError("transposed read with inactive lanes")
            block = read_lds(w, lds_offsets(w, place(w), 8), transfer)
            deliver(w, target, transfer, transposed(block, width))

        return step

    return bind


def _atomic(atomic: Atomic, *, returns: bool) -> Bind:
    words = atomic.size // 4

    def bind(instruction: Instruction, operands: Operands) -> Step:
        texts = list(instruction.operands)
        target = operands.vector(texts.pop(0), words) if returns else None
        place = _place(operands, texts[0], instruction.number("offset"))
        # A compare-and-swap in LDS is spelt comparison first, new value second.
        new = operands.vector(texts[2 if atomic.compares else 1], words)
        expected = operands.vector(texts[1], words) if atomic.compares else None

        def data(w: Waves, first: int) -> Array:
            values = _values(w, first, words).reshape(words, -1)
            return np.ascontiguousarray(values.T).view(atomic.dtype)[:, 0]

        def step(w: Waves) -> None:
            offsets = lds_offsets(w, place(w), atomic.size).reshape(-1)
            there = None if expected is None else data(w, expected)
            if w.arena.watch is not None:
                w.arena.watch.atomics(w.arena.lds, offsets, w.mask, atomic.size)
            old = update(w.arena.lds, offsets, atomic, data(w, new), there)
            if target is not None:
                halves = old.view(U32).reshape(-1, words).T
                shape = active(w.vector[target], w.mask).shape
                deliver(w, target, Transfer(4, words), halves.reshape(words, *shape))

        return step

    return bind


def _atomics() -> dict[str, Bind]:
    """LDS atomics are those of global memory under other names."""
    known = atomics()
    names: dict[str, Atomic] = {}
    for suffix, bits, global_suffix in (("u32", "32", ""), ("u64", "64", "_x2")):
        for name in ("add", "sub", "inc", "dec"):
            names[f"{name}_{suffix}"] = known[name + global_suffix]
        for name in ("min", "max"):
            names[f"{name}_u{bits}"] = known["u" + name + global_suffix]
            names[f"{name}_i{bits}"] = known["s" + name + global_suffix]
        for name in ("and", "or", "xor"):
            names[f"{name}_b{bits}"] = known[name + global_suffix]
        names[f"cmpst_b{bits}"] = known["cmpswap" + global_suffix]
    names["add_f32"] = known["add_f32"]
    names["min_f32"], names["max_f32"] = Atomic(np.float32, np.fmin), Atomic(np.float32, np.fmax)
    names["add_f64"] = known["add_f64"]
    names["pk_add_f16"], names["pk_add_bf16"] = known["pk_add_f16"], known["pk_add_bf16"]
    table: dict[str, Bind] = {f"ds_{name}": _atomic(atomic, returns=False) for name, atomic in names.items()}
    for name, atomic in names.items():
        operation, _, kind = name.rpartition("_")
        table[f"ds_{operation}_rtn_{kind}"] = _atomic(atomic, returns=True)
    table["ds_wrxchg_rtn_b32"] = _atomic(known["swap"], returns=True)
    table["ds_wrxchg_rtn_b64"] = _atomic(known["swap_x2"], returns=True)
    return table


LDS: dict[str, Bind] = {
    **{f"ds_read_{name}": _read(transfer) for name, transfer in _READS.items()},
    **{f"ds_write_{name}": _write(transfer) for name, transfer in _WRITES.items()},
    "ds_read2_b32": _read_two(Transfer(4), 1),
    "ds_read2_b64": _read_two(Transfer(4, 2), 1),
    "ds_read2st64_b32": _read_two(Transfer(4), 64),
    "ds_read2st64_b64": _read_two(Transfer(4, 2), 64),
    "ds_write2_b32": _write_two(Transfer(4), 1),
    "ds_write2_b64": _write_two(Transfer(4, 2), 1),
    "ds_write2st64_b32": _write_two(Transfer(4), 64),
    "ds_write2st64_b64": _write_two(Transfer(4, 2), 64),
    "ds_read_b64_tr_b16": _read_transposed(2),
    "ds_read_b64_tr_b8": _read_transposed(1),
    **_atomics(),
}
"""Mnemonic, to how it is bound."""
