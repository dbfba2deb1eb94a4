"""Byte formats of the KV cache and of the indexer cache, and the arithmetic of pages; plain numbers, nothing heavy.

A KV record ("fp8_ds_mla") is 584 bytes for one token, kept in two regions of its page so that both stay aligned:

    page byte offset             content of a page of `bs` tokens
    [0, bs*576)                  data: token p at p*576 = 448 fp8 bytes (NoPE dims), then 64 bf16 values (RoPE dims)
    [bs*576, bs*584)             scales: token p at bs*576 + p*8 = 7 UE8M0 codes (one per 64 NoPE dims), then one 0 byte
    [bs*584, page stride)        padding, never read or written

A code c means the scale 2^(c-127). Which fp8 dialect the bytes speak depends on the writer: the main cache follows the
chip (FNUZ on gfx942, OCP elsewhere), the compressed cache and the indexer cache are always OCP.

An indexer record is 132 bytes, also in two regions: bs*128 fp8 bytes, then one fp32 scale per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

HEAD_DIM: Final = 512
"""Width of q, of a latent row (K and V are the same row) and of the output, per head."""
NOPE: Final = 448
"""Leading dims that carry no position; stored as fp8."""
ROPE: Final = 64
"""Trailing dims that were rotated; stored as bf16."""
QUANT_BLOCK: Final = 64
"""NoPE dims that share one scale."""
QUANT_BLOCKS: Final = NOPE // QUANT_BLOCK

DATA_BYTES: Final = NOPE + 2 * ROPE
"""Data part of a record: 576 bytes."""
SCALE_BYTES: Final = QUANT_BLOCKS + 1
"""Scale part of a record: seven codes and one byte of padding."""
RECORD_BYTES: Final = DATA_BYTES + SCALE_BYTES

SCALE_BIAS: Final = 127
"""The UE8M0 code of 1.0."""
SCALE_CODE_MAX: Final = 255
SCALE_CODE_CAP: Final = 254
"""Largest code of a canonical row: 255 decodes to infinity, and 0 * infinity is NaN."""
QUANT_FLOOR: Final = 1e-4
"""The largest magnitude of a block counts as at least this when its scale is chosen."""

FP8_MAX_OCP: Final = 448.0
"""Largest finite E4M3 OCP value, and the quantiser's limit."""
FP8_MAX_FNUZ: Final = 224.0
"""The quantiser's limit with E4M3 FNUZ by convention; the largest finite value is 240."""

INDEX_HEAD_DIM: Final = 128
"""Width of an indexer key: 64 NoPE and 64 RoPE dims, all fp8."""
INDEX_SCALE_BYTES: Final = 4
INDEX_RECORD_BYTES: Final = INDEX_HEAD_DIM + INDEX_SCALE_BYTES
INDEX_TILE: Final = 16
"""Tokens and bytes of one tile of the shuffled indexer layout."""

SLIDING_WINDOW: Final = 128
MODEL_BLOCK: Final = 256
"""Positions that one block of the model's cache manager covers."""
MAIN_BLOCK_SIZE: Final = 64
"""Tokens on a page of the main (sliding window) cache."""
C4A_BLOCK_SIZE: Final = MODEL_BLOCK // 4
"""Entries on a page of the cache that compresses 4 positions into one."""
C128A_BLOCK_SIZE: Final = MODEL_BLOCK // 128
"""Entries on a page of the cache that compresses 128 positions into one."""

SOFTMAX_SCALE: Final = HEAD_DIM**-0.5


def page_bytes(block_size: int) -> int:
    """Bytes of a page of `block_size` records that hold something."""
    return block_size * RECORD_BYTES


def page_stride(block_size: int) -> int:
    """Bytes between two pages in serving: `page_bytes` rounded up to whole data parts (37,440 for 64; 1,728 for 2)."""
    return -(-page_bytes(block_size) // DATA_BYTES) * DATA_BYTES


def distance(tensor: torch.Tensor, axis: int, single: int | None = None) -> int:
    """Elements between two neighbours of `tensor` along `axis`, for a kernel that steps along it.

    Where there are no two, the stride that the tensor has is whatever made it; kernels never use it, and a launch must
    not depend on it. So it is given as packed data would have it.

    Args:
        tensor: The tensor; only its shape and its strides are looked at.
        axis: At least 0.
        single: What to give instead where there are no two.
    """
    if tensor.shape[axis] > 1:
        return tensor.stride(axis)
    if single is not None:
        return single
    last = axis + 1 == tensor.dim()
    return 1 if last else tensor.shape[axis + 1] * distance(tensor, axis + 1)


def pages_apart(cache: torch.Tensor) -> int:
    """Bytes between two pages of a cache of records or of indexer keys; where there is only one, those of serving."""
    _, block_size, record = cache.shape
    return distance(cache, 0, page_stride(block_size) if record == RECORD_BYTES else block_size * record)


def data_offset(position: int) -> int:
    """Byte offset, inside its page, of the data part of the record at `position`."""
    return position * DATA_BYTES


def scale_offset(position: int, block_size: int) -> int:
    """Byte offset, inside its page, of the scale part of the record at `position`."""
    return block_size * DATA_BYTES + position * SCALE_BYTES


def page_of(slot: int, block_size: int) -> tuple[int, int]:
    """Split a global slot into its page and the position on that page."""
    return divmod(slot, block_size)


def index_page_bytes(block_size: int) -> int:
    """Bytes of a page of `block_size` indexer records."""
    return block_size * INDEX_RECORD_BYTES


def index_byte_offset(position: int, dim: int, *, shuffled: bool) -> int:
    """Byte offset, inside its page, of one fp8 byte of an indexer key.

    Block-flat pages hold the keys one after the other. Shuffled pages hold 16 x 16 tiles (16 tokens, 16 bytes each), so
    that 16 lanes read 16 consecutive pieces; scales are never shuffled.
    """
    if not shuffled:
        return position * INDEX_HEAD_DIM + dim
    token_tile, token = divmod(position, INDEX_TILE)
    dim_tile, byte = divmod(dim, INDEX_TILE)
    return ((token_tile * (INDEX_HEAD_DIM // INDEX_TILE) + dim_tile) * INDEX_TILE + token) * INDEX_TILE + byte


def index_scale_offset(position: int, block_size: int) -> int:
    """Byte offset, inside its page, of the fp32 scale of an indexer key."""
    return block_size * INDEX_HEAD_DIM + position * INDEX_SCALE_BYTES
