"""The family's host functions as torch custom operators, so that torch.compile and graph capture take each whole.

    from aotkern_kernels import torch_ops
    torch_ops.use(aotkern.load("decode"), Platform.of(device.arch, device.units))
    out = torch.ops.aotkern.decode(q, cache, indices, indptr, None, None, None, sink, scale, None, False, False)

The first `use` imports torch and registers the operators; nothing else in the package does. An operator launches
through whatever `use` was given last for the device of its tensors: a loaded bundle, or Triton's JIT. Each has a fake
implementation that knows shapes and dtypes alone, and its schema says which arguments it changes (`!`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from aotkern.errors import InputError

from . import decode as decode_host
from . import gather_host, ragged, write, write_compressed
from .decode_call import Segment
from .launchers import Launcher, Platform
from .ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

NAMESPACE: Final = "aotkern"

_Layout = Literal["normal", "shuffle"]


@dataclass(frozen=True, slots=True)
class _Device:
    """What the operators of one device launch through, and what that device is."""

    launcher: Launcher
    platform: Platform
    arch: str


_devices: dict[int | None, _Device] = {}


def use(launcher: Launcher, platform: Platform, *, arch: str | None = None, device: int | None = None) -> None:
    """Say what the operators launch through, and register them if they are not.

    Args:
        launcher: A loaded bundle, or another launcher of this family's kernels.
        platform: The facts of the device.
        arch: Its architecture, which decides the form of the gather; that of the platform's design unless given.
        device: Its number; None for every device that is not named by a call of its own.
    """
    register()
    _devices[device] = _Device(launcher, platform, arch or platform.design)


@cache
def register() -> None:
    """Register the operators with torch, once."""
    import torch  # noqa: PLC0415 - see the module's docstring

    for operator in OPERATORS:
        name = f"{NAMESPACE}::{operator.function.__name__}"
        changed = [part.split()[-1] for part in operator.schema.split("->")[0].strip("() ").split(", ") if "!" in part]
        made = torch.library.custom_op(name, operator.function, mutates_args=changed, schema=operator.schema)
        made.register_fake(operator.fake)


def _for(tensor: Tensor) -> _Device:
    found = _devices.get(tensor.device.index, _devices.get(None))
    if found is None:
        raise InputError.one(
            "torch_ops", "a call of torch_ops.use before the first operator", f"none for {tensor.device}"
        )
    return found


def _segment(cache: Tensor | None, indices: Tensor | None, indptr: Tensor | None) -> Segment | None:
    if cache is None or indices is None or indptr is None:
        return None
    return Segment(cache, Ragged(indices, indptr))


def decode(
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor,
    main_indptr: Tensor,
    extra_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_indptr: Tensor | None,
    sink: Tensor | None,
    scale: float,
    splits: int | None,
    adaptive: bool,
    trust_extra: bool,
) -> Tensor:
    """`decode.decode` into a new tensor: bf16 [rows, heads, 512], as q."""
    device = _for(q)
    main = Segment(main_cache, Ragged(main_indices, main_indptr))
    extra = _segment(extra_cache, extra_indices, extra_indptr)
    how = {"scale": scale, "splits": splits, "adaptive": adaptive, "trust_extra": trust_extra}
    return decode_host.decode(device.launcher, device.platform, q, main, extra, sink=sink, **how)


def _decode_fake(q: Tensor, *_rest: object) -> Tensor:
    return q.new_empty(q.shape)


def decode_into(
    out: Tensor,
    q: Tensor,
    main_cache: Tensor,
    main_indices: Tensor,
    main_indptr: Tensor,
    extra_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_indptr: Tensor | None,
    sink: Tensor | None,
    scale: float,
    splits: int | None,
    adaptive: bool,
    trust_extra: bool,
) -> None:
    """`decode.decode` into `out`: any float dtype, [rows, heads, 512]."""
    device = _for(q)
    main = Segment(main_cache, Ragged(main_indices, main_indptr))
    extra = _segment(extra_cache, extra_indices, extra_indptr)
    how = {"scale": scale, "splits": splits, "adaptive": adaptive, "trust_extra": trust_extra}
    decode_host.decode(device.launcher, device.platform, q, main, extra, sink=sink, out=out, **how)


def pack_rows(dense: Tensor, lengths: Tensor | None, num_rows: int) -> tuple[Tensor, Tensor]:
    """`ragged.pack_rows`: int32 [rows, width] to indices [rows * width] and indptr [rows + 1]."""
    packed = ragged.pack_rows(_for(dense).launcher, dense, lengths, num_rows=num_rows)
    return packed.indices, packed.indptr


def _pack_rows_fake(dense: Tensor, lengths: Tensor | None, num_rows: int) -> tuple[Tensor, Tensor]:
    del lengths, num_rows
    rows, width = dense.shape
    return dense.new_empty(rows * width), dense.new_empty(rows + 1)


def write_main_cache(
    cache: Tensor, kv: Tensor, slots: Tensor, positions: Tensor | None, cos_sin: Tensor | None
) -> None:
    """`write.write_main_cache` in the platform's fp8 dialect; with positions and angles the rows are turned as well."""
    device = _for(cache)
    rotation = None if positions is None or cos_sin is None else (positions, cos_sin)
    write.write_main_cache(device.launcher, cache, kv, slots, fnuz=device.platform.fnuz_main, rotation=rotation)


def write_index_keys(cache: Tensor, keys: Tensor, slots: Tensor, layout: str, fnuz: bool, power_of_two: bool) -> None:
    """`write.write_index_keys`."""
    how = {"layout": cast("_Layout", layout), "fnuz": fnuz, "power_of_two": power_of_two}
    write.write_index_keys(_for(cache).launcher, cache, keys, slots, **how)


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


def compressed_slots(
    slots: Tensor, positions: Tensor, token_to_req: Tensor, block_table: Tensor, ratio: int, block_size: int
) -> None:
    """`write_compressed.compressed_slots`."""
    tensors = (slots, positions, token_to_req, block_table)
    write_compressed.compressed_slots(_for(slots).launcher, *tensors, ratio=ratio, block_size=block_size)


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
    num_splits: int | None,
) -> None:
    """`write_compressed.write_compressed_cache`."""
    step = write_compressed.CompressorStep(state, positions, state_slots, token_to_req, state_table, ratio)
    how = {"eps": eps, "sanitize": sanitize, "num_splits": num_splits}
    write_compressed.write_compressed_cache(_for(cache).launcher, cache, slots, step, norm_weight, cos_sin, **how)


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


@dataclass(frozen=True, slots=True)
class Operator:
    """A custom operator.

    Attributes:
        function: What it does; its name is the operator's.
        schema: Torch's schema without the name.
        fake: What it returns when only shapes and dtypes are known.
    """

    function: Callable[..., Any]
    schema: str
    fake: Callable[..., Any] = _changes_only


_ATTENTION = (
    "Tensor q, Tensor main_cache, Tensor main_indices, Tensor main_indptr, Tensor? extra_cache, "
    "Tensor? extra_indices, Tensor? extra_indptr, Tensor? sink, float scale, int? splits, bool adaptive, "
    "bool trust_extra"
)
_STEP = "Tensor positions, Tensor state_slots, Tensor token_to_req, Tensor state_table, int ratio"

OPERATORS: Final = (
    Operator(decode, f"({_ATTENTION}) -> Tensor", _decode_fake),
    Operator(decode_into, f"(Tensor(a!) out, {_ATTENTION}) -> ()"),
    Operator(pack_rows, "(Tensor dense, Tensor? lengths, int num_rows) -> (Tensor, Tensor)", _pack_rows_fake),
    Operator(write_main_cache, "(Tensor(a!) cache, Tensor kv, Tensor slots, Tensor? positions, Tensor? cos_sin) -> ()"),
    Operator(
        write_index_keys,
        "(Tensor(a!) cache, Tensor keys, Tensor slots, str layout, bool fnuz, bool power_of_two) -> ()",
    ),
    Operator(
        gather_indexer_cache,
        "(Tensor cache, Tensor(a!) k_out, Tensor(b!) scale_out, Tensor block_table, Tensor cu_seqlen, "
        "Tensor token_to_seq, str layout, bool dynamic) -> ()",
    ),
    Operator(store_compressor_state, f"(Tensor(a!) state, {_STEP}, Tensor kv, Tensor score, Tensor ape) -> ()"),
    Operator(
        compressed_slots,
        "(Tensor(a!) slots, Tensor positions, Tensor token_to_req, Tensor block_table, int ratio, int block_size) "
        "-> ()",
    ),
    Operator(
        write_compressed_cache,
        f"(Tensor(a!) cache, Tensor slots, Tensor state, {_STEP}, Tensor norm_weight, Tensor cos_sin, float eps, "
        "bool sanitize, int? num_splits) -> ()",
    ),
    Operator(
        write_indexer_cache,
        f"(Tensor(a!) cache, Tensor slots, Tensor state, {_STEP}, Tensor norm_weight, Tensor cos_sin, float eps) -> ()",
    ),
)
"""All of them."""
