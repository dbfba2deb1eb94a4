"""Small inputs for the numerics audit of every kernel of this family, with what must come out.

`CASES` maps the names of kernels to functions from a variant's key and a seed to launches. What a variant assumes and
fixes (strides, heads, splits, dialect, layout, canonical records) is read from its key; shapes are the smallest that
reach every path of the kernel, and one launch packs as many paths as it can, because workgroups are executed by an
emulator at a fraction of a second each.

Writers and copying kernels are compared byte by byte with `writer_reference`, attention with the float64 `reference`.

NumPy only: neither Triton nor torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotkern.audit.cases import CaseFunction

from . import attention, compressor, gather, reduce, states, writers

CASES: Final[Mapping[str, CaseFunction]] = {
    "decode_partial_gfx950": attention.partial_gfx950,
    "decode_partial_legacy": attention.partial_legacy,
    "decode_monolithic": attention.monolithic,
    "decode_reduce": reduce.reduce,
    "pack_ragged": gather.pack_ragged,
    "cp_gather_indexer_quant_cache": gather.gather_specialised,
    "cp_gather_indexer_quant_cache_dynamic": gather.gather_dynamic,
    "insert_main_cache": writers.main_cache,
    "insert_main_cache_rope": writers.main_cache_rope,
    "insert_index_keys": writers.index_keys,
    "store_compressor_state": states.store_state,
    "compressed_slots": states.destination_slots,
    "insert_compressed_cache": compressor.insert_cache,
    "compress_columns": compressor.columns,
    "insert_compressed_rows": compressor.insert_rows,
    "insert_compressed_index": compressor.insert_index,
}
"""By kernel name."""
