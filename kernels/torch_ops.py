"""The family's host functions as torch custom operators, so that torch.compile and graph capture take each whole.

    from aotkern_kernels import torch_ops
    torch_ops.use(aotkern.load("decode"), Platform.of(device.arch, device.units))
    out = torch.ops.aotkern.decode(q, cache, indices, indptr, None, None, None, sink, scale, None, False, False)

Importing this module imports torch and registers the operators; nothing else in the package does. An operator launches
through whatever `use` was given last for the device of its tensors: a loaded bundle, or Triton's JIT. Each has a fake
implementation that knows shapes and dtypes alone, and says which of its arguments it changes.

Annotations are evaluated here, without `from __future__ import annotations`, and optional types are spelt `Optional`:
torch makes the schemas of them, and older ones know no other way.
"""

# ruff: noqa: UP045 - see above

from dataclasses import dataclass
from typing import Literal, Optional, cast

import torch
from torch import Tensor

from aotkern.errors import InputError

from . import decode as decode_host
from . import gather_host, ragged, write, write_compressed
from .decode_call import Segment
from .launchers import Launcher, Platform
from .ragged import Ragged

NAMESPACE = "aotkern"

_Layout = Literal["normal", "shuffle"]


@dataclass(frozen=True, slots=True)
class _Device:
    """What the operators of one device launch through, and what that device is."""

    launcher: Launcher
    platform: Platform
    arch: str


_devices: dict[Optional[int], _Device] = {}


def use(launcher: Launcher, platform: Platform, *, arch: Optional[str] = None, device: Optional[int] = None) -> None:
    """Say what the operators launch through.

    Args:
        launcher: A loaded bundle, or another launcher of this family's kernels.
        platform: The facts of the device.
        arch: Its architecture, which decides the form of the gather; that of the platform's design unless given.
        device: Its number; None for every device that is not named by a call of its own.
    """
    _devices[device] = _Device(launcher, platform, arch or platform.design)


def _for(tensor: Tensor) -> _Device:
    found = _devices.get(tensor.device.index, _devices.get(None))
    if found is None:
        raise InputError.one(
            "torch_ops", "a call of torch_ops.use before the first operator", f"none for {tensor.device}"
        )
    return found


def _segment(cache: Optional[Tensor], indices: Optional[Tensor], indptr: Optional[Tensor]) -> Optional[Segment]:
    if cache is None or indices is None or indptr is None:
        return None
    return Segment(cache, Ragged(indices, indptr))


@torch.library.custom_op(f"{NAMESPACE}::decode", mutates_args=())
def decode(
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor,
    main_indptr: Tensor,
    extra_cache: Optional[Tensor],
    extra_indices: Optional[Tensor],
    extra_indptr: Optional[Tensor],
    sink: Optional[Tensor],
    scale: float,
    splits: Optional[int],
    adaptive: bool,
    trust_extra: bool,
) -> Tensor:
    """`decode.decode` into a new tensor: bf16 [rows, heads, 512], as q."""
    device = _for(q)
    main = Segment(main_cache, Ragged(main_indices, main_indptr))
    extra = _segment(extra_cache, extra_indices, extra_indptr)
    how = {"scale": scale, "splits": splits, "adaptive": adaptive, "trust_extra": trust_extra}
    return decode_host.decode(device.launcher, device.platform, q, main, extra, sink=sink, **how)


@decode.register_fake
def _(q: Tensor, *_rest: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op(f"{NAMESPACE}::decode_into", mutates_args=("out",))
def decode_into(
    out: Tensor,
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor,
    main_indptr: Tensor,
    extra_cache: Optional[Tensor],
    extra_indices: Optional[Tensor],
    extra_indptr: Optional[Tensor],
    sink: Optional[Tensor],
    scale: float,
    splits: Optional[int],
    adaptive: bool,
    trust_extra: bool,
) -> None:
    """`decode.decode` into `out`: any float dtype, [rows, heads, 512]."""
    device = _for(q)
    main = Segment(main_cache, Ragged(main_indices, main_indptr))
    extra = _segment(extra_cache, extra_indices, extra_indptr)
    how = {"scale": scale, "splits": splits, "adaptive": adaptive, "trust_extra": trust_extra}
    decode_host.decode(device.launcher, device.platform, q, main, extra, sink=sink, out=out, **how)


@torch.library.custom_op(f"{NAMESPACE}::pack_rows", mutates_args=())
def pack_rows(dense: Tensor, lengths: Optional[Tensor], num_rows: int) -> tuple[Tensor, Tensor]:
    """`ragged.pack_rows`: int32 [rows, width] to indices [rows * width] and indptr [rows + 1]."""
    packed = ragged.pack_rows(_for(dense).launcher, dense, lengths, num_rows=num_rows)
    return packed.indices, packed.indptr


@pack_rows.register_fake
def _(dense: Tensor, lengths: Optional[Tensor], num_rows: int) -> tuple[Tensor, Tensor]:
    del lengths, num_rows
    rows, width = dense.shape
    return dense.new_empty(rows * width), dense.new_empty(rows + 1)


@torch.library.custom_op(f"{NAMESPACE}::write_main_cache", mutates_args=("cache",))
def write_main_cache(
    cache: Tensor, kv: Tensor, slots: Tensor, positions: Optional[Tensor], cos_sin: Optional[Tensor]
) -> None:
    """`write.write_main_cache` in the platform's fp8 dialect; with positions and angles the rows are turned as well."""
    device = _for(cache)
    rotation = None if positions is None or cos_sin is None else (positions, cos_sin)
    write.write_main_cache(device.launcher, cache, kv, slots, fnuz=device.platform.fnuz_main, rotation=rotation)


@torch.library.custom_op(f"{NAMESPACE}::write_index_keys", mutates_args=("cache",))
def write_index_keys(cache: Tensor, keys: Tensor, slots: Tensor, layout: str, fnuz: bool, power_of_two: bool) -> None:
    """`write.write_index_keys`."""
    how = {"layout": cast("_Layout", layout), "fnuz": fnuz, "power_of_two": power_of_two}
    write.write_index_keys(_for(cache).launcher, cache, keys, slots, **how)


@torch.library.custom_op(f"{NAMESPACE}::gather_indexer_cache", mutates_args=("k_out", "scale_out"))
def gather_indexer_cache(
    cache: Tensor,
    k_out: Tensor,
    scale_out: Tensor,
    block_table: Tensor,
    cu_seqlen: Tensor,
    token_to_seq: Tensor,
    layout: str,
    dynamic: bool,
) -> None:
    """`gather_host.gather_indexer_cache`, in the form of the device's architecture."""
    device = _for(cache)
    tensors = (cache, k_out, scale_out, block_table, cu_seqlen, token_to_seq)
    order = cast("_Layout", layout)
    gather_host.gather_indexer_cache(device.launcher, *tensors, layout=order, arch=device.arch, dynamic=dynamic)


@torch.library.custom_op(f"{NAMESPACE}::store_compressor_state", mutates_args=("state",))
def store_compressor_state(
    state: Tensor,
    positions: Tensor,
    state_slots: Tensor,
    token_to_req: Tensor,
    state_table: Tensor,
    ratio: int,
    kv: Tensor,
    score: Tensor,
    ape: Tensor,
) -> None:
    """`write_compressed.store_compressor_state`."""
    step = write_compressed.CompressorStep(state, positions, state_slots, token_to_req, state_table, ratio)
    write_compressed.store_compressor_state(_for(state).launcher, step, kv, score, ape)


@torch.library.custom_op(f"{NAMESPACE}::compressed_slots", mutates_args=("slots",))
def compressed_slots(
    slots: Tensor, positions: Tensor, token_to_req: Tensor, block_table: Tensor, ratio: int, block_size: int
) -> None:
    """`write_compressed.compressed_slots`."""
    tensors = (slots, positions, token_to_req, block_table)
    write_compressed.compressed_slots(_for(slots).launcher, *tensors, ratio=ratio, block_size=block_size)


@torch.library.custom_op(f"{NAMESPACE}::write_compressed_cache", mutates_args=("cache",))
def write_compressed_cache(
    cache: Tensor,
    slots: Tensor,
    state: Tensor,
    positions: Tensor,
    state_slots: Tensor,
    token_to_req: Tensor,
    state_table: Tensor,
    ratio: int,
    norm_weight: Tensor,
    cos_sin: Tensor,
    eps: float,
    sanitize: bool,
    num_splits: Optional[int],
) -> None:
    """`write_compressed.write_compressed_cache`."""
    step = write_compressed.CompressorStep(state, positions, state_slots, token_to_req, state_table, ratio)
    how = {"eps": eps, "sanitize": sanitize, "num_splits": num_splits}
    write_compressed.write_compressed_cache(_for(cache).launcher, cache, slots, step, norm_weight, cos_sin, **how)


@torch.library.custom_op(f"{NAMESPACE}::write_indexer_cache", mutates_args=("cache",))
def write_indexer_cache(
    cache: Tensor,
    slots: Tensor,
    state: Tensor,
    positions: Tensor,
    state_slots: Tensor,
    token_to_req: Tensor,
    state_table: Tensor,
    ratio: int,
    norm_weight: Tensor,
    cos_sin: Tensor,
    eps: float,
) -> None:
    """`write_compressed.write_indexer_cache`."""
    step = write_compressed.CompressorStep(state, positions, state_slots, token_to_req, state_table, ratio)
    write_compressed.write_indexer_cache(_for(cache).launcher, cache, slots, step, norm_weight, cos_sin, eps=eps)


def _changes_only(*_args: object, **_kwargs: object) -> None:
    """The fake of an operator that changes its arguments and returns nothing."""


for _operator in (
    decode_into,
    write_main_cache,
    write_index_keys,
    gather_indexer_cache,
    store_compressor_state,
    compressed_slots,
    write_compressed_cache,
    write_indexer_cache,
):
    _operator.register_fake(_changes_only)
