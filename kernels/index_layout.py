"""Device helper: where a byte of an indexer key lies on its page, in either layout.

Writer and reader share it, and take the layout as an argument: a cache does not say which one it has.
"""

import triton
import triton.language as tl


@triton.jit
def index_key_offset(
    token, dim, LAYOUT: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_TILE: tl.constexpr, HEAD_TILE: tl.constexpr
):
    """Byte offset, inside the key region of a page, of element `dim` of the key of token `token`.

    Args:
        token: Position of the token on its page.
        dim: Element of the key.
        LAYOUT: "normal": keys one after the other. "shuffle": tiles of BLOCK_TILE tokens by HEAD_TILE bytes.
        HEAD_DIM: Bytes of a key.
        BLOCK_TILE: Tokens in a tile.
        HEAD_TILE: Bytes of a key in a tile.
    """
    tl.static_assert(LAYOUT == "normal" or LAYOUT == "shuffle", "LAYOUT is normal or shuffle")
    if LAYOUT == "shuffle":
        group = (token // BLOCK_TILE) * (BLOCK_TILE * HEAD_DIM)
        tile = (dim // HEAD_TILE) * (BLOCK_TILE * HEAD_TILE)
        offset = group + tile + (token % BLOCK_TILE) * HEAD_TILE + dim % HEAD_TILE
    else:
        offset = token * HEAD_DIM + dim
    return offset
