"""What a decode step is given, checked: every argument problem at once, before anything is launched.

Shapes, strides, dtypes and devices are checked; what stands in the index lists is not, only the device knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from . import layout, selectors
from .checks import Checks
from .launchers import Platform
from .ragged import Ragged

if TYPE_CHECKING:
    import torch

_INT32_MAX: Final = 2**31 - 1
_INT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """A paged cache and the entries that each query row takes from it.

    Attributes:
        cache: uint8 [blocks, bs, 584]; only `stride(0)`, the page stride in bytes, addresses it (see `layout`).
        rows: Slots, by query row.
    """

    cache: torch.Tensor
    rows: Ragged

    @property
    def block_size(self) -> int:
        """Records of a page."""
        return self.cache.shape[1]

    @property
    def page_stride(self) -> int:
        """Bytes between two pages; where there is only one, those of serving."""
        return layout.pages_apart(self.cache)

    @property
    def slots(self) -> int:
        """Slots of the cache; entries outside are invalid."""
        return self.cache.shape[0] * self.cache.shape[1]

    @property
    def pointers(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a kernel takes of it."""
        return self.cache, self.rows.indices, self.rows.indptr


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a decode step, checked, index lists as contiguous int32.

    Attributes:
        q: bf16 [rows, heads, 512].
        main: Sliding window entries.
        extra: Compressed entries, or None.
        sink: fp32 [heads], or None.
        scale: Softmax scale.
        trust_extra: Whether the extra cache may be read without the NaN scrub.
    """

    q: torch.Tensor
    main: Segment
    extra: Segment | None
    sink: torch.Tensor | None
    scale: float
    trust_extra: bool

    @property
    def extra_or_main(self) -> Segment:
        """The extra segment; main stands in where there is none, and is then not read through this."""
        return self.main if self.extra is None else self.extra

    @property
    def head_blocks(self) -> int:
        """Programs that the heads of one row need."""
        return selectors.head_blocks(self.q.shape[1])


def checked_call(
    platform: Platform,
    q: torch.Tensor,
    main: Segment,
    extra: Segment | None = None,
    *,
    sink: torch.Tensor | None = None,
    scale: float = layout.SOFTMAX_SCALE,
    trust_extra: bool = False,
) -> Call:
    """The call that these arguments make; see `decode` for what they are.

    Raises:
        InputError: With one problem for each argument that is wrong.
    """
    checks = Checks("decode")
    checks.tensor("q", q, "bfloat16", (None, None, layout.HEAD_DIM), packed=1)
    rows, heads = tuple(q.shape[:2]) if q.dim() == 3 else (0, 0)
    checks.require(q.dim() != 3 or heads > 0, "q", "at least one head", heads)
    _check_segment(checks, "main", main, q, rows)
    if extra is not None:
        _check_segment(checks, "extra", extra, q, rows)
    if sink is not None:
        checks.tensor("sink", sink, "float32", (None,), like=q)
        checks.require(sink.numel() >= heads, "sink", f"at least {heads} elements", sink.numel())
    if trust_extra:
        able = platform.design == "gfx950" and extra is not None
        found = f"{platform.design} and {'no extra' if extra is None else 'an extra'} segment"
        checks.require(able, "trust_extra", "gfx950 kernels and an extra segment", found)
    checks.done()
    return Call(
        q=q,
        main=_with_int32(main),
        extra=None if extra is None else _with_int32(extra),
        sink=None if sink is None else sink[:heads].contiguous(),
        scale=scale,
        trust_extra=trust_extra,
    )


def check_request(
    platform: Platform, q: torch.Tensor, out: torch.Tensor | None, splits: int | None, monolithic: bool
) -> None:
    """Check what `decode.decode` takes beyond the call itself.

    Raises:
        InputError: With one problem for each argument that is wrong, or that asks for what `platform` cannot do.
    """
    checks = Checks("decode")
    if out is not None:
        checks.tensor("out", out, "bfloat16|float16|float32|float64", tuple(q.shape), like=q, packed=1)
    legacy = platform.design == "gfx942"
    most = selectors.LEGACY_MAX_SPLITS if legacy else selectors.GFX950_MAX_SPLITS
    if splits is not None:
        checks.require(1 <= splits <= most, "splits", f"1 to {most} with {platform.design} kernels", splits)
    if monolithic:
        checks.require(legacy, "monolithic", "gfx942 kernels", platform.design)
        checks.require(splits is None, "monolithic", "no forced splits", splits)
    checks.done()


def _check_segment(checks: Checks, name: str, segment: Segment, q: torch.Tensor, rows: int) -> None:
    """Check the cache and the index lists of a segment."""
    cache = segment.cache
    checks.tensor(f"{name}.cache", cache, "uint8", (None, None, layout.RECORD_BYTES), like=q)
    checks.tensor(f"{name}.rows.indices", segment.rows.indices, "int32|int64", (None,), like=q)
    checks.tensor(f"{name}.rows.indptr", segment.rows.indptr, "int32|int64", (rows + 1,), like=q)
    entries = segment.rows.indices.numel()
    checks.require(entries <= _INT32_MAX, f"{name}.rows.indices", "fewer than 2^31 entries", entries)
    if cache.dim() != 3:
        return
    least = layout.page_bytes(segment.block_size)
    checks.require(segment.block_size > 0, f"{name}.cache", "at least one record a page", segment.block_size)
    checks.require(
        segment.page_stride >= least, f"{name}.cache", f"pages of at least {least} bytes", segment.page_stride
    )
    # The rotated dims are read as bf16.
    whole = segment.page_stride % 2 == 0 and cache.storage_offset() % 2 == 0
    checks.require(whole, f"{name}.cache", "pages that start at even bytes", f"a page stride of {segment.page_stride}")
    slots = segment.slots
    checks.require(slots < 2**31, f"{name}.cache", "fewer than 2^31 slots", slots)


def _with_int32(segment: Segment) -> Segment:
    """The segment with index lists that are int32 and contiguous.

    What int32 cannot hold stays outside: a slot of 2^32 + 3 is no slot of any cache, not slot 3.
    """
    indices, indptr = segment.rows.indices, segment.rows.indptr
    rows = Ragged(_narrowed(indices, -1, _INT32_MAX), _narrowed(indptr, 0, indices.numel()))
    return Segment(segment.cache, rows)


def _narrowed(values: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Integers as contiguous int32; those of wider ones that are below `least` or above `most` become these."""
    held = values if values.element_size() == _INT32_BYTES else values.clamp(least, most)
    return held.int().contiguous()
