"""Indexer-cache writers: keys of 128 dims as fp8 bytes with one fp32 scale a token.

* `insert_compressed_index` is the compressor of the indexer: the front end of the compressed-cache writer with 128
  dims (64 plain, 64 rotated). Rotation comes first, then rounding to bf16, then one scale for all 128 dims. It writes
  the NORMAL layout, OCP bytes on every chip, and power-of-two scales.
* `insert_index_keys` quantises plain keys, in either layout, either dialect, and with scales that are powers of two or
  exactly the largest magnitude over the limit.

A page of `block_size` tokens holds the keys first and the scales, in token order, after them.
"""

import triton
import triton.language as tl

from aotkern.spec import Constexpr, Int, Joint, Kernel, Pointer, Space

from .compressor import STEP, compressed_columns, group_end, rms_normalised, rotated_pairs
from .fp8 import as_patterns, bf16_values, encode_e4m3, magnitude_bits, power_of_two, rounded_to_bf16, scale_exponent
from .index_layout import index_key_offset
from .writer_options import WRITER_OPTIONS

_HEAD_DIM = tl.constexpr(128)
_ROPE = tl.constexpr(64)
_TILE = tl.constexpr(16)


@triton.jit
def _store_key(cache, slot, codes, scale, block_size, page_stride, LAYOUT: tl.constexpr):
    """Store the 128 bytes and the scale of the key in a global slot (>= 0)."""
    token = slot.to(tl.int32) % block_size
    page = cache + (slot.to(tl.int32) // block_size).to(tl.int64) * page_stride
    dim = tl.arange(0, _HEAD_DIM)
    tl.store(page + index_key_offset(token, dim, LAYOUT, _HEAD_DIM, _TILE, _TILE), codes)
    tl.store((page + block_size * _HEAD_DIM).to(tl.pointer_type(tl.float32)) + token, scale)


@triton.jit(do_not_specialize=["state_block_size", "state_table_stride", "block_size"])
def insert_compressed_index(
    state,
    positions,
    state_slots,
    token_to_req,
    state_table,
    norm_weight,
    cos_sin,
    cache,
    slots,
    eps,
    state_block_size,
    state_page_stride,
    state_table_stride,
    block_size,
    page_stride,
    RATIO: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Compress a group of tokens into one indexer key and insert it; grid (tokens,).

    Args:
        state: fp32 [blocks, state_block_size, 2 * (1 + OVERLAP) * 128], states packed within a page.
        positions: int64 [tokens].
        state_slots: int64 [tokens]; negative is padding.
        token_to_req: int32 [tokens], row of the state block table.
        state_table: int32 [requests, width].
        norm_weight: fp32 or bf16 [128].
        cos_sin: fp32 [positions, 64], 32 cosines then 32 sines.
        cache: uint8 [blocks, block_size, 132], the cache that receives the keys.
        slots: int64 [tokens], destination of each token's key; negative has none.
        eps: Added to the mean square.
        state_block_size: States in a page.
        state_page_stride: Elements from one page of states to the next.
        state_table_stride: Elements from one row of the state block table to the next.
        block_size: Keys in a page of the cache.
        page_stride: Bytes from one page of the cache to the next.
        RATIO: Tokens that become one key.
        OVERLAP: Whether a key reads the group before as well.
    """
    token = tl.program_id(0)
    position, slot = group_end(token, positions, state_slots, slots, RATIO)
    if slot >= 0:
        pages = state_table + tl.load(token_to_req + token).to(tl.int64) * state_table_stride
        row = compressed_columns(
            state,
            pages,
            position,
            0,
            state_block_size,
            state_page_stride,
            RATIO,
            OVERLAP,
            _HEAD_DIM,
            _HEAD_DIM,
        )
        row = rms_normalised(row, norm_weight, eps, _HEAD_DIM)
        angles = cos_sin + (position // RATIO).to(tl.int64) * RATIO * _ROPE
        even, odd = rotated_pairs(row, angles, _HEAD_DIM, _ROPE)
        key = rounded_to_bf16(tl.interleave(even, odd))
        exponent = scale_exponent(tl.max(magnitude_bits(key), axis=0), False)
        codes = encode_e4m3(key * power_of_two(-exponent), False)
        _store_key(cache, slot, codes, power_of_two(exponent), block_size, page_stride, "normal")


@triton.jit(do_not_specialize=["block_size"])
def insert_index_keys(
    keys,
    slots,
    cache,
    key_stride,
    block_size,
    page_stride,
    LAYOUT: tl.constexpr,
    FNUZ: tl.constexpr,
    POWER_OF_TWO: tl.constexpr,
):
    """Quantise and insert plain keys; grid (rows,).

    Args:
        keys: bf16 [rows, 128], row stride `key_stride`.
        slots: int64 [rows], global slots; negative skips.
        cache: uint8 [blocks, block_size, 132], the cache that receives the keys.
        key_stride: Elements from one row to the next.
        block_size: Keys in a page; a multiple of 16 with the shuffled layout.
        page_stride: Bytes from one page to the next.
        LAYOUT: Order of the key bytes, "normal" or "shuffle".
        FNUZ: Dialect of the fp8 bytes.
        POWER_OF_TWO: Round the scale up to a power of two.
    """
    index = tl.program_id(0)
    slot = tl.load(slots + index)
    if slot >= 0:
        row = as_patterns(keys) + index.to(tl.int64) * key_stride
        key = bf16_values(tl.load(row + tl.arange(0, _HEAD_DIM)))
        largest = tl.max(magnitude_bits(key), axis=0)
        if POWER_OF_TWO:
            exponent = scale_exponent(largest, FNUZ)
            scale = power_of_two(exponent)
            scaled = key * power_of_two(-exponent)
        else:
            LIMIT: tl.constexpr = 224.0 if FNUZ else 448.0
            # Rounded divisions: the fast ones differ between chips in the last bit.
            scale = tl.div_rn(tl.maximum(largest.to(tl.float32, bitcast=True), 1e-4), LIMIT)
            scaled = tl.div_rn(key, scale)
        codes = encode_e4m3(scaled, FNUZ)
        _store_key(cache, slot, codes, scale, block_size, page_stride, LAYOUT)


_INDEX_PAGES = {"cache": Pointer("u8"), "block_size": Int(classes=("any",)), "page_stride": Int(classes=("16",))}
_KEYS = {
    **_INDEX_PAGES,
    "keys": Pointer("bf16"),
    "slots": Pointer("i64"),
    "key_stride": Int(classes=("16",)),
    "LAYOUT": Constexpr("normal", "shuffle"),
    "POWER_OF_TWO": Constexpr(False, True),
}

KERNELS = (
    Kernel(
        insert_compressed_index,
        Space(
            ("gfx942", "gfx950", "cuda:90"),
            {**STEP, **_INDEX_PAGES, "RATIO": 4, "OVERLAP": True},
            joint=(Joint(("norm_weight",), ((Pointer("bf16"),), (Pointer("fp32"),))),),
            options=WRITER_OPTIONS["insert_compressed_index"],
        ),
    ),
    Kernel(
        insert_index_keys,
        Space(("gfx942",), {**_KEYS, "FNUZ": True}, options=WRITER_OPTIONS["insert_index_keys"]),
        Space(("gfx950", "cuda:90"), {**_KEYS, "FNUZ": False}, options=WRITER_OPTIONS["insert_index_keys"]),
    ),
)
"""The compressor's keys are OCP everywhere; plain keys follow the chip's dialect."""
