"""When a compressed cache may be read without the NaN scrub, and when a launch may choose its splits on the device.

Both are promises that somebody else must have kept, so both are false unless every condition is known to hold.
"""

from typing import Final

RECORD_DTYPE: Final = "fp8_ds_mla"
"""Name, in a server's configuration, of the record format that `layout` describes."""


def may_trust_extra(*, design: str, cache_dtype: str, has_transfer_connector: bool, has_extra: bool) -> bool:
    """Whether every byte of the compressed cache is known to come from the canonical writers of this family.

    Those never store an fp8 NaN, a scale that decodes to infinity, or a bf16 NaN. A connector that moves cache pages
    between servers could bring rows that something else wrote.

    Args:
        design: Of the attention kernels; only those of "gfx950" can leave the scrub out.
        cache_dtype: The server's KV cache dtype.
        has_transfer_connector: Whether pages may arrive from elsewhere.
        has_extra: Whether the layer has a compressed cache.
    """
    return design == "gfx950" and cache_dtype == RECORD_DTYPE and not has_transfer_connector and has_extra


def asks_adaptive(*, design: str, compress_ratio: int, has_extra: bool, built_for_capture: bool) -> bool:
    """Whether a call asks for the choice of splits on the device.

    It pays only where a graph fixed the grid for the longest rows while the live ones vary: captured launches of layers
    that attend to all compressed entries (ratio 128). A step outside a graph knows its own lengths.

    Args:
        design: Of the attention kernels; only those of "gfx950" can choose.
        compress_ratio: Positions that one compressed entry of the layer covers; 1 for none.
        has_extra: Whether the call has an extra segment.
        built_for_capture: Whether its metadata was built to be captured in a graph.
    """
    return design == "gfx950" and compress_ratio == 128 and has_extra and built_for_capture
