"""Where the cache kernels are declared, and the writers' compile options; plain values, nothing heavy.

The options serve declarations and launches alike.

Fusion of a product and a sum is off wherever a rotation is computed: a fused multiply-add rounds once where the
arithmetic of the writers rounds twice, so that with fusion the stored bits would depend on what a compiler fuses.
"""

from collections.abc import Mapping
from typing import Final

CACHE_MODULES: Final = ("gather", "main_writer", "compressor_state", "compressed_writer", "indexer_writer")
"""The modules of this package that declare the writers and the gather."""

_ONE_WAVE: Final = {"num_warps": 1, "enable_fp_fusion": False}
_FOUR_WAVES: Final = {"num_warps": 4, "enable_fp_fusion": False}

WRITER_OPTIONS: Final[Mapping[str, Mapping[str, int | bool]]] = {
    "insert_main_cache": _ONE_WAVE,
    "insert_main_cache_rope": _ONE_WAVE,
    "insert_compressed_cache": _FOUR_WAVES,
    "compress_columns": _FOUR_WAVES,
    "insert_compressed_rows": _FOUR_WAVES,
    "insert_compressed_index": _ONE_WAVE,
    "insert_index_keys": _ONE_WAVE,
    "store_compressor_state": _FOUR_WAVES,
    "compressed_slots": _FOUR_WAVES,
}
"""By kernel name. A row of 512 numbers is one wave's work (8 numbers a lane); gathering states is worth four."""
