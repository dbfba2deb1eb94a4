"""One decode step on the host: checks, the choice of splits, scratch, and the launches.

`decode` is the whole step. Its parts are public because tests look at the scratch in between:

    checked_call     what the step is given, checked (in `decode_call`)
    choose_splits    the split plan of the call (the rules are in `selectors`)
    launch_partial   the slices of every row, into scratch
    launch_reduce    the slices merged, into the output

The host never waits for the device: lengths that only the device knows are not read. Runs without Triton; the launcher
may be Triton's JIT or a loaded bundle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import layout, selectors
from .decode_call import Call, Segment, check_request, checked_call
from .launchers import LAUNCH_OPTIONS, Launcher, Platform

if TYPE_CHECKING:
    import torch

BLOCK_H: Final = 16
"""Heads of one program of the partial and monolithic kernels."""
MONOLITHIC_TILE: Final = 16
_NOPE_BLOCK: Final = 512
_RECORD: Final = {"NOPE": layout.NOPE, "ROPE": layout.ROPE, "BLOCK_H": BLOCK_H}
_LEGACY_RECORD: Final = {**_RECORD, "NOPE_BLOCK": _NOPE_BLOCK}


@dataclass(frozen=True, slots=True)
class Scratch:
    """What the slices leave for the reducer; never initialised.

    Attributes:
        m: fp32 [rows, splits, heads], running maxima.
        l: fp32 [rows, splits, heads], denominators.
        acc: fp32 [rows, splits, heads, 512], numerators.
    """

    m: torch.Tensor
    l: torch.Tensor
    acc: torch.Tensor

    @classmethod
    def for_call(cls, q: torch.Tensor, splits: int) -> Scratch:
        """Fresh scratch for q [rows, heads, 512], on its device."""
        import torch  # noqa: PLC0415 - whoever has a tensor has torch; importing this module must not need it

        rows, heads, dim = q.shape
        shape = (rows, splits, heads)
        return cls(*(q.new_empty(size, dtype=torch.float32) for size in (shape, shape, (*shape, dim))))


def scratch_bytes(rows: int, splits: int, heads: int) -> int:
    """Bytes of the scratch of a call."""
    return rows * splits * heads * (2 + layout.HEAD_DIM) * 4


def decode(
    launcher: Launcher,
    platform: Platform,
    q: torch.Tensor,
    main: Segment,
    extra: Segment | None = None,
    *,
    sink: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    scale: float = layout.SOFTMAX_SCALE,
    splits: int | None = None,
    adaptive: bool = False,
    trust_extra: bool = False,
    monolithic: bool = False,
) -> torch.Tensor:
    """Sparse-MLA attention of decode tokens; `reference.attend` says what it computes.

    Args:
        launcher: Launches the kernels of this family by name.
        platform: The device's facts.
        q: bf16 [rows, heads, 512], normalised and rotated, last dim contiguous.
        main: Sliding window entries.
        extra: Compressed entries of the layer, if it has any.
        sink: fp32 [>= heads]: one logit per head that only the denominator gets.
        out: [rows, heads, 512], last dim contiguous, any float dtype; a new bf16 tensor without it.
        scale: Softmax scale.
        splits: Forces the split count; the platform's selector chooses without it.
        adaptive: Let each row choose its splits on the device (`provenance.asks_adaptive`); gfx942 cannot.
        trust_extra: Leave out the NaN scrub of extra entries (`provenance.may_trust_extra`).
        monolithic: gfx942 only: one program for each row and block of heads, no splits.

    Returns:
        `out`, or the new tensor.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here, or asks for what the
            platform's kernels cannot do.
    """
    call = checked_call(platform, q, main, extra, sink=sink, scale=scale, trust_extra=trust_extra)
    check_request(platform, q, out, splits, monolithic)
    # gfx942 keeps its output path, a buffer and a copy; gfx950 stores into the caller's tensor where it is bf16.
    direct = out is not None and platform.design == "gfx950" and out.dtype == q.dtype
    target = out if out is not None and direct else q.new_empty(q.shape)
    if q.numel():
        if monolithic:
            launch_monolithic(launcher, platform, call, target)
        else:
            plan = choose_splits(platform, call, splits=splits, adaptive=adaptive)
            scratch = Scratch.for_call(q, plan.splits)
            launch_partial(launcher, platform, call, plan, scratch)
            launch_reduce(launcher, call, plan, scratch, target)
    if out is None or direct:
        return target
    return out.copy_(target.to(out.dtype))


def choose_splits(
    platform: Platform, call: Call, *, splits: int | None = None, adaptive: bool = False
) -> selectors.SplitPlan:
    """The splits of a call, from what the host knows: its shape, and the capacities of its index lists."""
    shape = selectors.Shape(
        rows=call.q.shape[0],
        head_blocks=call.head_blocks,
        main_entries=call.main.rows.indices.numel(),
        extra_entries=0 if call.extra is None else call.extra.rows.indices.numel(),
        compute_units=platform.compute_units,
    )
    if platform.design == "gfx942":
        chosen = selectors.legacy_splits(shape) if splits is None else splits
        return selectors.SplitPlan(chosen, adaptive=False, one_wave=chosen)
    chosen = selectors.gfx950_splits(shape) if splits is None else splits
    return selectors.adaptive_plan(shape, chosen, asked=adaptive)


def launch_partial(
    launcher: Launcher, platform: Platform, call: Call, plan: selectors.SplitPlan, scratch: Scratch
) -> None:
    """Attend every slice of every row, into `scratch`."""
    extra = call.extra_or_main
    pointers = (call.q, *call.main.pointers, *extra.pointers, scratch.m, scratch.l, scratch.acc)
    grid = (call.q.shape[0], plan.splits, call.head_blocks)
    common: dict[str, Any] = {
        "HAS_EXTRA": call.extra is not None,
        "FNUZ_MAIN": platform.fnuz_main,
        "FNUZ_EXTRA": False,
        "BLOCK_KV": selectors.TILE,
        "NUM_SPLITS": plan.splits,
        "NUM_STAGES": 1,
    }
    if platform.design == "gfx942":
        strides = (*scratch.m.stride()[:2], *scratch.acc.stride()[:3])
        scalars = (*_strides(call), *strides, *_sizes(call), call.scale, call.q.shape[1])
        name = "decode_partial_legacy"
        launcher[name][grid](*pointers, *scalars, **_LEGACY_RECORD, **common, **LAUNCH_OPTIONS[name])
        return
    constants = {
        "Q_STRIDE_T": layout.distance(call.q, 0),
        "Q_STRIDE_H": layout.distance(call.q, 1),
        "MAIN_PAGE_STRIDE": call.main.page_stride,
        "EXTRA_PAGE_STRIDE": extra.page_stride,
        "MAIN_BLOCK_SIZE": call.main.block_size,
        "EXTRA_BLOCK_SIZE": extra.block_size,
        "SCALE": call.scale,
        "HEADS": call.q.shape[1],
        "TRUST_EXTRA": call.trust_extra,
        "ADAPTIVE": plan.adaptive,
        "ONE_WAVE_SPLITS": plan.one_wave,
    }
    name = "decode_partial_gfx950"
    slots = call.main.slots, extra.slots
    launcher[name][grid](*pointers, *slots, **constants, **_RECORD, **common, **LAUNCH_OPTIONS[name])


def launch_reduce(
    launcher: Launcher, call: Call, plan: selectors.SplitPlan, scratch: Scratch, out: torch.Tensor
) -> None:
    """Merge the slices in `scratch` into `out` [rows, heads, 512], in the dtype of `out`."""
    rows, heads, dim = call.q.shape
    name = "decode_reduce"
    launcher[name][(rows, heads)](
        scratch.m,
        scratch.l,
        scratch.acc,
        scratch.m if call.sink is None else call.sink,
        out,
        layout.distance(out, 0),
        layout.distance(out, 1),
        heads,
        HAS_SINK=call.sink is not None,
        ADAPTIVE=plan.adaptive,
        HEAD_DIM=dim,
        NUM_SPLITS=plan.splits,
        SPLITS_PAD=1 << (plan.splits - 1).bit_length(),
        **LAUNCH_OPTIONS[name],
    )


def launch_monolithic(launcher: Launcher, platform: Platform, call: Call, out: torch.Tensor) -> None:
    """Attend every row in one program per block of heads, straight into `out` [rows, heads, 512]."""
    rows, heads, _ = call.q.shape
    name = "decode_monolithic"
    strides = _strides(call)
    launcher[name][(rows, call.head_blocks)](
        call.q,
        *call.main.pointers,
        *call.extra_or_main.pointers,
        call.q.new_zeros(1).float() if call.sink is None else call.sink,
        out,
        *strides[:2],
        layout.distance(out, 0),
        layout.distance(out, 1),
        *strides[2:],
        *_sizes(call),
        call.scale,
        heads,
        HAS_SINK=call.sink is not None,
        HAS_EXTRA=call.extra is not None,
        FNUZ_MAIN=platform.fnuz_main,
        FNUZ_EXTRA=False,
        BLOCK_KV=MONOLITHIC_TILE,
        **_LEGACY_RECORD,
        **LAUNCH_OPTIONS[name],
    )


def _strides(call: Call) -> tuple[int, int, int, int]:
    """Strides of q (rows, heads) and page strides (main, extra), as the gfx942 kernels take them."""
    q = call.q
    pages = call.main.page_stride, call.extra_or_main.page_stride
    return layout.distance(q, 0), layout.distance(q, 1), *pages


def _sizes(call: Call) -> tuple[int, int, int, int]:
    """Slots (main, extra) and block sizes (main, extra), as the gfx942 kernels take them."""
    main, extra = call.main, call.extra_or_main
    return main.slots, extra.slots, main.block_size, extra.block_size
