"""What the attention tests share: caches, index rows and calls, as tensors and as their float64 counterparts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from kernels import layout, reference
from kernels.decode_call import Segment
from kernels.launchers import Platform
from kernels.ragged import Ragged

GFX942 = Platform("gfx942", fnuz_main=True, compute_units=304)
GFX950 = Platform("gfx950", fnuz_main=False, compute_units=256)
PLATFORMS = {"gfx942": GFX942, "gfx950": GFX950}


def random_cache(seed: int, blocks: int, block_size: int, *, fnuz: bool, padding: int = 0) -> torch.Tensor:
    """A cache of legal records, at most 0.44 in each dim; pages stand `padding` bytes further apart than needed."""
    rng = np.random.default_rng(seed)
    pages = rng.integers(0, 256, (blocks, layout.page_bytes(block_size) + padding), np.uint8)
    for position in range(block_size):
        at, scale_at = layout.data_offset(position), layout.scale_offset(position, block_size)
        data = pages[:, at : at + layout.NOPE]
        nan = data == 0x80 if fnuz else data & 0x7F == 0x7F
        data[nan] = 0x38
        pages[:, scale_at : scale_at + layout.QUANT_BLOCKS] = rng.integers(114, 118, (blocks, layout.QUANT_BLOCKS))
        pages[:, scale_at + layout.QUANT_BLOCKS] = 0
        rope = torch.from_numpy(rng.standard_normal((blocks, layout.ROPE)) * 0.125).bfloat16()
        pages[:, at + layout.NOPE : at + layout.DATA_BYTES] = rope.view(torch.uint8).numpy()
    return paged(pages, block_size)


def constant_cache(value: float, blocks: int, block_size: int) -> torch.Tensor:
    """A cache whose every latent number is `value`, which OCP fp8 holds exactly."""
    pages = np.zeros((blocks, layout.page_bytes(block_size)), np.uint8)
    code = next(byte for byte in range(256) if reference.fp8_value(byte, fnuz=False) == value)
    for position in range(block_size):
        at, scale_at = layout.data_offset(position), layout.scale_offset(position, block_size)
        pages[:, at : at + layout.NOPE] = code
        pages[:, scale_at : scale_at + layout.QUANT_BLOCKS] = layout.SCALE_BIAS
        rope = torch.full((layout.ROPE,), value, dtype=torch.bfloat16)
        pages[:, at + layout.NOPE : at + layout.DATA_BYTES] = rope.view(torch.uint8).numpy()
    return paged(pages, block_size)


def paged(pages: np.ndarray, block_size: int) -> torch.Tensor:
    """Pages of bytes as the kernels' uint8 [blocks, block_size, 584], sharing memory."""
    storage = torch.from_numpy(pages)
    shape = (len(pages), block_size, layout.RECORD_BYTES)
    return storage.as_strided(shape, (storage.stride(0), layout.RECORD_BYTES, 1))


def write_record(cache: torch.Tensor, slot: int, *, poisoned: bool, fnuz: bool = False) -> None:
    """Store the row of tests of the NaN scrub: poisoned, or the canonical form that a writer stores instead of it."""
    pages = pages_of(cache)
    page, position = layout.page_of(slot, cache.shape[1])
    at, scale_at = layout.data_offset(position), layout.scale_offset(position, cache.shape[1])
    pages[page, at : at + layout.DATA_BYTES] = 0
    pages[page, scale_at : scale_at + layout.QUANT_BLOCKS] = 255 if poisoned else 254
    if poisoned:
        pages[page, at] = 0x80 if fnuz else 0x7F
        pages[page, at + layout.NOPE : at + layout.NOPE + 2] = torch.tensor([0xC0, 0x7F], dtype=torch.uint8)


def pages_of(cache: torch.Tensor) -> torch.Tensor:
    """The pages of a cache as uint8 [blocks, page stride], sharing memory."""
    return cache.as_strided((cache.shape[0], cache.stride(0)), (cache.stride(0), 1))


def ragged(rows: Sequence[Sequence[int]], spare: int = 0) -> Ragged:
    """Rows of slots as a ragged list with `spare` undefined entries behind the last row."""
    flat = [slot for row in rows for slot in row]
    starts = np.cumsum([0, *(len(row) for row in rows)])
    indices = torch.tensor(flat + [2**30] * spare, dtype=torch.int32)
    return Ragged(indices, torch.tensor(starts, dtype=torch.int32))


def random_rows(seed: int, slots: int, lengths: Sequence[int]) -> list[list[int]]:
    """Rows of random slots."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, slots, length).tolist() for length in lengths]


def query(seed: int, rows: int, heads: int) -> torch.Tensor:
    """A random bf16 query."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, heads, layout.HEAD_DIM, generator=generator) * 0.125).bfloat16()


def as_reference(
    q: torch.Tensor, main: Segment, extra: Segment | None, sink: torch.Tensor | None, *, fnuz_main: bool
) -> reference.Call:
    """The same call in float64."""
    segments = [reference_segment(main, fnuz=fnuz_main)]
    if extra is not None:
        segments.append(reference_segment(extra, fnuz=False))
    heads = q.shape[1]
    return reference.Call(
        q=q.double().numpy(),
        segments=tuple(segments),
        sink=None if sink is None else sink[:heads].double().numpy(),
    )


def reference_segment(segment: Segment, *, fnuz: bool) -> reference.Segment:
    """The same segment for the reference."""
    cache = reference.Cache(pages_of(segment.cache).numpy(), segment.block_size, fnuz)
    return reference.Segment(cache, segment.rows.indices.numpy(), segment.rows.indptr.numpy())


def assert_close(found: torch.Tensor, wanted: np.ndarray) -> None:
    """Every number within 0.02, absolute or relative, and the whole within 1 % of its norm."""
    result = found.double().numpy()
    np.testing.assert_allclose(result, wanted, rtol=0.02, atol=0.02)
    norm = np.linalg.norm(wanted)
    assert np.linalg.norm(result - wanted) <= 0.01 * norm
