"""Host side of the indexer gather: checks, the two views of the cache, and the launch.

Runs without Triton and without importing torch: it needs tensors and a launcher, and the launcher may be Triton's JIT
or a loaded bundle.

Not in here: the kernels themselves (`gather`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from .checks import Checks
from .launchers import design_of
from .layout import INDEX_HEAD_DIM, INDEX_RECORD_BYTES, INDEX_SCALE_BYTES, INDEX_TILE, distance

if TYPE_CHECKING:
    import torch

    from .launchers import Launcher

SPECIALISED: Final = "cp_gather_indexer_quant_cache"
"""The kernel with compile-time counts."""
DYNAMIC: Final = "cp_gather_indexer_quant_cache_dynamic"
"""The kernel with run-time counts."""

IndexLayout = Literal["normal", "shuffle"]


def gather_kernel(arch: str, *, dynamic: bool = False) -> str:
    """The gather that `arch` uses: gfx942 keeps the specialised form unless `dynamic` asks for the other one.

    Raises:
        InputError: No kernels of this family are made for the architecture.
    """
    return SPECIALISED if design_of(arch) == "gfx942" and not dynamic else DYNAMIC


def index_key_view(cache: torch.Tensor) -> torch.Tensor:
    """The key regions of an indexer cache uint8 [blocks, bs, 132], as uint8 [blocks, bs * 128]; no copy."""
    blocks, block_size, _ = cache.shape
    return cache.as_strided((blocks, block_size * INDEX_HEAD_DIM), (distance(cache, 0), 1))


def index_scale_view(cache: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The scale regions of an indexer cache uint8 [blocks, bs, 132], as fp32 [blocks, bs]; no copy.

    Args:
        cache: The cache; its page stride and the start of its storage are multiples of 4.
        dtype: `torch.float32`, passed in because this module does not import torch.
    """
    blocks, block_size, _ = cache.shape
    offset = cache.storage_offset() + block_size * INDEX_HEAD_DIM
    return cache.as_strided((blocks, block_size * INDEX_SCALE_BYTES), (distance(cache, 0), 1), offset).view(dtype)


def check_index_cache(checks: Checks, cache: torch.Tensor, layout: str) -> None:
    """Check an indexer cache, and that its block size admits `layout`."""
    checks.tensor("cache", cache, "uint8", (None, None, INDEX_RECORD_BYTES), packed=1)
    checks.require(layout in ("normal", "shuffle"), "layout", "normal or shuffle", repr(layout))
    if cache.dim() != 3:
        return
    block_size, stride = cache.shape[1], distance(cache, 0)
    enough = stride >= block_size * INDEX_RECORD_BYTES and stride % INDEX_SCALE_BYTES == 0
    checks.require(
        enough, "cache", f"a page stride of at least {block_size * INDEX_RECORD_BYTES}, a multiple of 4", stride
    )
    if layout == "shuffle":
        checks.require(block_size % INDEX_TILE == 0, "cache", f"a block size that {INDEX_TILE} divides", block_size)


def gather_indexer_cache(
    launcher: Launcher,
    cache: torch.Tensor,
    k_out: torch.Tensor,
    scale_out: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlen: torch.Tensor,
    token_to_seq: torch.Tensor,
    *,
    layout: IndexLayout,
    arch: str,
    dynamic: bool = False,
) -> None:
    """Copy the indexer keys and scales of a chunk of sequences into dense workspaces.

    Args:
        launcher: Launches the kernels of this family by name.
        cache: uint8 [blocks, bs, 132], page stride >= bs * 132 bytes and a multiple of 4; 16 divides bs when shuffled.
        k_out: uint8 or fp8 [N, 128], contiguous; rows without a token keep their bytes.
        scale_out: fp32 [N], contiguous; likewise, and 0 where the block is out of range.
        block_table: int32 [B, width], rows contiguous.
        cu_seqlen: int32 [B + 1], in compressed tokens.
        token_to_seq: int32 [N], -1 for padding.
        layout: Order of the key bytes in the cache; the compressor of this family writes "normal".
        arch: Architecture that the launcher serves, as `Platform.of` takes it.
        dynamic: On gfx942, use the form that is not specialised on the counts.

    Raises:
        InputError: An argument does not have the dtype, shape, strides or device stated here.
    """
    checks = Checks("gather_indexer_cache")
    rows, batches = token_to_seq.numel(), block_table.shape[0] if block_table.dim() else 0
    check_index_cache(checks, cache, layout)
    checks.tensor("k_out", k_out, "uint8|float8_e4m3fn|float8_e4m3fnuz", (rows, INDEX_HEAD_DIM), like=cache, packed=-1)
    checks.tensor("scale_out", scale_out, "float32", (rows,), like=cache, packed=-1)
    checks.tensor("block_table", block_table, "int32", (None, None), like=cache, packed=1)
    checks.tensor("cu_seqlen", cu_seqlen, "int32", (batches + 1,), like=cache, packed=1)
    checks.tensor("token_to_seq", token_to_seq, "int32", (None,), like=cache, packed=1)
    checks.done()
    if rows == 0:
        return
    scales = index_scale_view(cache, scale_out.dtype)
    keys = index_key_view(cache), scales, k_out.view(cache.dtype), scale_out
    strides = (cache.shape[1], distance(block_table, 0), distance(cache, 0), distance(scales, 0))
    counts = {"NUM_BATCHES": batches, "BLOCK_TABLE_WIDTH": block_table.shape[1], "NUM_BLOCKS": cache.shape[0]}
    constants = {"LAYOUT": layout, "HEAD_DIM": INDEX_HEAD_DIM, "BLOCK_TILE": INDEX_TILE, "HEAD_TILE": INDEX_TILE}
    arguments = (*keys, block_table, cu_seqlen, token_to_seq, *strides)
    kernel = gather_kernel(arch, dynamic=dynamic)
    if kernel == SPECIALISED:
        launcher[kernel][(rows,)](*arguments, NUM_TOKENS=rows, **counts, **constants)
    else:
        launcher[kernel][(rows,)](*arguments, *counts.values(), **constants)
