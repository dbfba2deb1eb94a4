"""What the writer tests share: caches with recognisable padding, and records read back by the layout's definition."""

from __future__ import annotations

import numpy as np
import torch

from kernels import layout

UNTOUCHED = 0xA5
"""Every byte of a cache before a test writes to it."""


def bf16(patterns: np.ndarray) -> torch.Tensor:
    """bf16 tensor of uint16 patterns."""
    return torch.from_numpy(patterns.astype(np.uint16).view(np.int16)).view(torch.bfloat16)


def patterns(tensor: torch.Tensor) -> np.ndarray:
    """uint16 patterns of a bf16 tensor."""
    return tensor.view(torch.int16).numpy().view(np.uint16)


def record_cache(blocks: int, block_size: int) -> torch.Tensor:
    """A KV cache with serving page strides."""
    return _cache(blocks, block_size, layout.RECORD_BYTES, layout.page_stride(block_size))


def index_cache(blocks: int, block_size: int) -> torch.Tensor:
    """An indexer cache with some padding after each page."""
    return _cache(blocks, block_size, layout.INDEX_RECORD_BYTES, layout.index_page_bytes(block_size) + 64)


def _cache(blocks: int, block_size: int, record: int, stride: int) -> torch.Tensor:
    storage = torch.full((blocks, stride), UNTOUCHED, dtype=torch.uint8)
    return storage.as_strided((blocks, block_size, record), (stride, record, 1))


def pages(cache: torch.Tensor) -> np.ndarray:
    """All bytes of a cache, one row a page, padding included."""
    return cache.as_strided((cache.shape[0], cache.stride(0)), (cache.stride(0), 1)).numpy()


def store_record(image: np.ndarray, slot: int, block_size: int, data: np.ndarray, codes: np.ndarray) -> None:
    """Put a reference record into an image of `pages`."""
    page, position = layout.page_of(slot, block_size)
    start = layout.data_offset(position)
    image[page, start : start + layout.DATA_BYTES] = data
    start = layout.scale_offset(position, block_size)
    image[page, start : start + layout.SCALE_BYTES] = codes


def store_key(
    image: np.ndarray, slot: int, block_size: int, key: np.ndarray, scale: np.float32, *, shuffled: bool = False
) -> None:
    """Put a reference indexer key into an image of `pages`."""
    page, position = layout.page_of(slot, block_size)
    for dim, byte in enumerate(key):
        image[page, layout.index_byte_offset(position, dim, shuffled=shuffled)] = byte
    start = layout.index_scale_offset(position, block_size)
    image[page, start : start + 4] = np.frombuffer(scale.tobytes(), np.uint8)
