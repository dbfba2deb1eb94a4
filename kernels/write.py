"""Host side of the plain writers: the main cache, and indexer keys that are ready.

Checks, then one launch; no Triton, and no import of torch. A launcher is whatever `launcher[kernel][grid](...)` works
on: Triton's JIT or a loaded bundle.

Not in here: the compressor's caches (`write_compressed`) and the kernels (`main_writer`, `indexer_writer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .checks import Checks
from .gather_host import check_index_cache
from .layout import HEAD_DIM, INDEX_HEAD_DIM, RECORD_BYTES, ROPE, distance, page_bytes, pages_apart
from .writer_options import WRITER_OPTIONS

if TYPE_CHECKING:
    import torch

    from .launchers import Launcher

RotationArguments = tuple["torch.Tensor", "torch.Tensor"]
"""Positions and the table of cosines and sines."""


def check_record_cache(checks: Checks, cache: torch.Tensor) -> None:
    """Check a cache of KV records: uint8 [blocks, bs, 584] with an even page stride that holds a page."""
    checks.tensor("cache", cache, "uint8", (None, None, RECORD_BYTES), packed=1)
    if cache.dim() == 3:
        needed, stride = page_bytes(cache.shape[1]), pages_apart(cache)
        # RoPE dims are stored as 16-bit values.
        checks.require(
            stride >= needed and stride % 2 == 0, "cache", f"a page stride of at least {needed}, even", stride
        )


def write_main_cache(
    launcher: Launcher,
    cache: torch.Tensor,
    kv: torch.Tensor,
    slots: torch.Tensor,
    *,
    fnuz: bool,
    rotation: RotationArguments | None = None,
) -> None:
    """Quantise rows and insert them into the main cache.

    Args:
        launcher: Launches the kernels of this family by name.
        cache: uint8 [blocks, bs, 584], changed in place; page stride >= bs * 584 bytes and even.
        kv: bf16 [N, 512], RMS-normalised, rows packed.
        slots: int64 [M], M <= N: global slots of the first M rows; negative skips a row. A slot past the end of the
            cache is not caught: values are the device's alone to know.
        fnuz: Whether the fp8 bytes are E4M3 FNUZ (gfx942) or OCP.
        rotation: Positions int64 [N] and a table fp32 [positions, 64] (32 cosines, then 32 sines) to turn the last 64
            dims by; None for rows that are turned already.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("write_main_cache")
    rows = slots.numel()
    check_record_cache(checks, cache)
    checks.tensor("kv", kv, "bfloat16", (None, HEAD_DIM), like=cache, packed=1)
    checks.tensor("slots", slots, "int64", (None,), like=cache, packed=1)
    checks.require(kv.shape[0] >= rows, "slots", f"at most {kv.shape[0]} slots, one for each row of kv", rows)
    if rotation is not None:
        positions, cos_sin = rotation
        checks.tensor("positions", positions, "int64", (None,), like=cache, packed=1)
        checks.require(positions.numel() >= rows, "positions", f"at least {rows} positions", positions.numel())
        checks.tensor("cos_sin", cos_sin, "float32", (None, ROPE), like=cache, packed=-1)
    checks.done()
    if rows == 0:
        return
    kernel = "insert_main_cache" if rotation is None else "insert_main_cache_rope"
    strides = distance(kv, 0), cache.shape[1], pages_apart(cache)
    launcher[kernel][(rows,)](kv, *(rotation or ()), slots, cache, *strides, FNUZ=fnuz, **WRITER_OPTIONS[kernel])


def write_index_keys(
    launcher: Launcher,
    cache: torch.Tensor,
    keys: torch.Tensor,
    slots: torch.Tensor,
    *,
    layout: Literal["normal", "shuffle"],
    fnuz: bool,
    power_of_two: bool,
) -> None:
    """Quantise plain indexer keys and insert them.

    Args:
        launcher: Launches the kernels of this family by name.
        cache: uint8 [blocks, bs, 132], changed in place; page stride >= bs * 132 bytes and a multiple of 4.
        keys: bf16 [N, 128], rows packed.
        slots: int64 [N], global slots; negative skips a key.
        layout: Order of the key bytes that readers of this cache expect; "shuffle" needs 16 to divide bs.
        fnuz: Whether the fp8 bytes are E4M3 FNUZ or OCP.
        power_of_two: Round scales up to powers of two.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("write_index_keys")
    rows = slots.numel()
    check_index_cache(checks, cache, layout)
    checks.tensor("keys", keys, "bfloat16", (rows, INDEX_HEAD_DIM), like=cache, packed=1)
    checks.tensor("slots", slots, "int64", (None,), like=cache, packed=1)
    checks.done()
    if rows == 0:
        return
    constants = {"LAYOUT": layout, "FNUZ": fnuz, "POWER_OF_TWO": power_of_two}
    strides = distance(keys, 0), cache.shape[1], distance(cache, 0)
    kernel = "insert_index_keys"
    launcher[kernel][(rows,)](keys, slots, cache, *strides, **constants, **WRITER_OPTIONS[kernel])
