"""Host side of the compressor: states of a step, destination slots, and the compressed and indexer caches.

A step goes through these in order:

    store_compressor_state   every token leaves its state
    compressed_slots         which slot the entry of each token gets, if any
    write_compressed_cache   entries of the KV cache
    write_indexer_cache      keys of the indexer cache (ratio 4 only)

Checks, then launches; no Triton, and no import of torch.

Not in here: the kernels (`compressor_state`, `compressed_writer`, `indexer_writer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .checks import Checks
from .gather_host import check_index_cache
from .layout import HEAD_DIM, INDEX_HEAD_DIM, ROPE, distance, pages_apart
from .write import check_record_cache
from .writer_options import WRITER_OPTIONS

if TYPE_CHECKING:
    import torch

    from .launchers import Launcher

OVERLAP_RATIO: Final = 4
"""With this ratio an entry also reads the group before its own, and a state holds two vectors of each kind."""
MOST_SPLITS: Final = 16
_SLOTS_BLOCK: Final = 256


def state_width(ratio: int, head_dim: int) -> int:
    """Numbers of kv, and of score, in one state: twice `head_dim` with overlap."""
    return head_dim * (2 if ratio == OVERLAP_RATIO else 1)


def compress_splits(tokens: int, ratio: int, compute_units: int) -> int:
    """Programs that share an entry in the first of two stages: a power of two, at most 16.

    Enough that the entries of the step, tokens // ratio of them, fill the device once.

    Args:
        tokens: Tokens of the step.
        ratio: Tokens that become one entry.
        compute_units: Of the device that holds the tensors.
    """
    wanted = min(-(-compute_units // max(1, tokens // ratio)), MOST_SPLITS)
    return 1 << (max(1, wanted).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class CompressorStep:
    """The tensors of one step that every part of the compressor reads.

    Attributes:
        state: fp32 [blocks, state bs, 2 * state_width], states packed within a page.
        positions: int64 [tokens].
        state_slots: int64 [tokens], global slots of the tokens' states; negative is padding.
        token_to_req: int32 [tokens], row of `state_table`.
        state_table: int32 [requests, width], pages of `state`; rows packed.
        ratio: Tokens that become one entry, a power of two.
    """

    state: torch.Tensor
    positions: torch.Tensor
    state_slots: torch.Tensor
    token_to_req: torch.Tensor
    state_table: torch.Tensor
    ratio: int

    @property
    def tokens(self) -> int:
        """Tokens of the step."""
        return self.positions.numel()

    def check(self, checks: Checks, head_dim: int) -> None:
        """Check the tensors, for entries of `head_dim` dims."""
        tokens, state = self.tokens, self.state
        power_of_two = self.ratio > 0 and self.ratio & (self.ratio - 1) == 0
        checks.require(power_of_two, "ratio", "a power of two", self.ratio)
        checks.tensor("state", state, "float32", (None, None, 2 * state_width(self.ratio, head_dim)), packed=2)
        checks.tensor("positions", self.positions, "int64", (None,), like=state, packed=1)
        checks.tensor("state_slots", self.state_slots, "int64", (tokens,), like=state, packed=1)
        checks.tensor("token_to_req", self.token_to_req, "int32", (tokens,), like=state, packed=1)
        checks.tensor("state_table", self.state_table, "int32", (None, None), like=state, packed=1)


def store_compressor_state(
    launcher: Launcher, step: CompressorStep, kv: torch.Tensor, score: torch.Tensor, ape: torch.Tensor
) -> None:
    """Store kv and score of every token of a step in the state cache.

    Args:
        launcher: Launches the kernels of this family by name.
        step: The step; `step.state` is changed in place.
        kv: fp32 or bf16 [tokens, state_width], rows packed.
        score: As `kv`, same dtype.
        ape: fp32 [ratio, state_width], added to the score by place in the group.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("store_compressor_state")
    width = ape.shape[-1]
    step.check(checks, width // (2 if step.ratio == OVERLAP_RATIO else 1))
    checks.tensor("ape", ape, "float32", (step.ratio, None), like=step.state, packed=-1)
    widths = [state_width(step.ratio, dims) for dims in (HEAD_DIM, INDEX_HEAD_DIM)]
    checks.require(width in widths, "ape", f"rows of {widths[0]} or {widths[1]}", width)
    checks.tensor("kv", kv, "float32|bfloat16", (step.tokens, width), like=step.state, packed=1)
    checks.tensor("score", score, "float32|bfloat16", (step.tokens, width), like=step.state, packed=1)
    checks.require(score.dtype == kv.dtype, "score", f"dtype {kv.dtype}, as kv has", score.dtype)
    checks.done()
    if step.tokens == 0:
        return
    tensors = kv, score, ape, step.positions, step.state, step.state_slots
    strides = distance(kv, 0), distance(score, 0), step.state.shape[1], distance(step.state, 0)
    kernel = "store_compressor_state"
    launcher[kernel][(step.tokens,)](*tensors, *strides, RATIO=step.ratio, WIDTH=width, **WRITER_OPTIONS[kernel])


def compressed_slots(
    launcher: Launcher,
    slots: torch.Tensor,
    positions: torch.Tensor,
    token_to_req: torch.Tensor,
    block_table: torch.Tensor,
    *,
    ratio: int,
    block_size: int,
) -> None:
    """Find the global slot of each token's entry: -1 for tokens that end no group, and for padding.

    Args:
        launcher: Launches the kernels of this family by name.
        slots: int64 [tokens], the result.
        positions: int64 [tokens].
        token_to_req: int32 [tokens], row of `block_table`; negative is padding.
        block_table: int32 [requests, width], pages of the destination cache; rows packed.
        ratio: Tokens that become one entry.
        block_size: Entries in a page of the destination cache.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("compressed_slots")
    tokens = positions.numel()
    checks.tensor("positions", positions, "int64", (None,), like=slots, packed=1)
    checks.tensor("slots", slots, "int64", (tokens,), packed=1)
    checks.tensor("token_to_req", token_to_req, "int32", (tokens,), like=slots, packed=1)
    checks.tensor("block_table", block_table, "int32", (None, None), like=slots, packed=1)
    checks.require(ratio > 0, "ratio", "a positive number", ratio)
    checks.require(block_size > 0, "block_size", "a positive number", block_size)
    checks.done()
    if tokens == 0:
        return
    sizes = tokens, distance(block_table, 0), block_table.shape[1], block_size
    tensors = positions, token_to_req, block_table, slots
    grid = (-(-tokens // _SLOTS_BLOCK),)
    kernel = "compressed_slots"
    launcher[kernel][grid](*tensors, *sizes, RATIO=ratio, BLOCK=_SLOTS_BLOCK, **WRITER_OPTIONS[kernel])


def write_compressed_cache(
    launcher: Launcher,
    cache: torch.Tensor,
    slots: torch.Tensor,
    step: CompressorStep,
    norm_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    *,
    eps: float,
    sanitize: bool,
    num_splits: int | None = None,
) -> None:
    """Compress every group that ends in a step and insert the entries.

    Args:
        launcher: Launches the kernels of this family by name.
        cache: uint8 [blocks, bs, 584], changed in place; page stride >= bs * 584 bytes and even. OCP on every chip.
        slots: int64 [tokens], what `compressed_slots` found.
        step: The step, its states stored.
        norm_weight: fp32 or bf16 [512].
        cos_sin: fp32 [positions, 64], 32 cosines then 32 sines.
        eps: Added to the mean square.
        sanitize: Store canonical records, which readers may trust to hold no NaN.
        num_splits: None compresses in one pass. A number, from `compress_splits`, takes two stages with so many
            programs for each entry: for prefill without overlap.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("write_compressed_cache")
    step.check(checks, HEAD_DIM)
    check_record_cache(checks, cache)
    _check_entries(checks, cache, slots, step, norm_weight, cos_sin, HEAD_DIM)
    if num_splits is not None:
        checks.require(num_splits in (1, 2, 4, 8, 16), "num_splits", "1, 2, 4, 8 or 16", num_splits)
        checks.require(step.ratio != OVERLAP_RATIO, "num_splits", "None, because entries overlap", num_splits)
    checks.done()
    if step.tokens == 0:
        return
    if num_splits is None:
        _insert_entries(launcher, "insert_compressed_cache", cache, slots, step, norm_weight, cos_sin, eps, sanitize)
        return
    rows = step.state.new_empty((step.tokens, HEAD_DIM))
    kernel = "compress_columns"
    launcher[kernel][(step.tokens * num_splits,)](
        step.state,
        step.positions,
        step.state_slots,
        step.token_to_req,
        step.state_table,
        slots,
        rows,
        step.state.shape[1],
        distance(step.state, 0),
        distance(step.state_table, 0),
        RATIO=step.ratio,
        NUM_SPLITS=num_splits,
        **WRITER_OPTIONS[kernel],
    )
    kernel = "insert_compressed_rows"
    launcher[kernel][(step.tokens,)](
        rows,
        step.positions,
        step.state_slots,
        norm_weight,
        cos_sin,
        cache,
        slots,
        eps,
        cache.shape[1],
        pages_apart(cache),
        RATIO=step.ratio,
        SANITIZE=sanitize,
        **WRITER_OPTIONS[kernel],
    )


def write_indexer_cache(
    launcher: Launcher,
    cache: torch.Tensor,
    slots: torch.Tensor,
    step: CompressorStep,
    norm_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    *,
    eps: float,
) -> None:
    """Compress every group that ends in a step and insert the indexer keys, in the NORMAL layout.

    Args:
        launcher: Launches the kernels of this family by name.
        cache: uint8 [blocks, bs, 132], changed in place; page stride >= bs * 132 bytes and a multiple of 4.
        slots: int64 [tokens], what `compressed_slots` found.
        step: The step, its states (of 128 dims) stored.
        norm_weight: fp32 or bf16 [128].
        cos_sin: fp32 [positions, 64], 32 cosines then 32 sines.
        eps: Added to the mean square.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("write_indexer_cache")
    step.check(checks, INDEX_HEAD_DIM)
    check_index_cache(checks, cache, "normal")
    _check_entries(checks, cache, slots, step, norm_weight, cos_sin, INDEX_HEAD_DIM)
    checks.done()
    if step.tokens:
        _insert_entries(launcher, "insert_compressed_index", cache, slots, step, norm_weight, cos_sin, eps, None)


def _check_entries(
    checks: Checks,
    cache: torch.Tensor,
    slots: torch.Tensor,
    step: CompressorStep,
    norm_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    head_dim: int,
) -> None:
    """Check what both writers take beside the step and the cache's own shape."""
    checks.require(cache.device == step.state.device, "cache", f"a tensor on {step.state.device}", cache.device)
    checks.tensor("slots", slots, "int64", (step.tokens,), like=cache, packed=1)
    checks.tensor("norm_weight", norm_weight, "float32|bfloat16", (head_dim,), like=cache, packed=1)
    checks.tensor("cos_sin", cos_sin, "float32", (None, ROPE), like=cache, packed=-1)


def _insert_entries(
    launcher: Launcher,
    kernel: str,
    cache: torch.Tensor,
    slots: torch.Tensor,
    step: CompressorStep,
    norm_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    eps: float,
    sanitize: bool | None,
) -> None:
    """Launch one of the two kernels that compress and insert in one pass."""
    constants = {"RATIO": step.ratio, "OVERLAP": step.ratio == OVERLAP_RATIO}
    if sanitize is not None:
        constants["SANITIZE"] = sanitize
    launcher[kernel][(step.tokens,)](
        step.state,
        step.positions,
        step.state_slots,
        step.token_to_req,
        step.state_table,
        norm_weight,
        cos_sin,
        cache,
        slots,
        eps,
        step.state.shape[1],
        distance(step.state, 0),
        distance(step.state_table, 0),
        cache.shape[1],
        pages_apart(cache),
        **constants,
        **WRITER_OPTIONS[kernel],
    )
