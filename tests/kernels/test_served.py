"""Every decode call of a server finds a declared variant; nothing is compiled and nothing is launched."""

from __future__ import annotations

import pytest
import torch
from declared import DeclaredLauncher

from kernels import gfx950_partial, layout, legacy_partial, monolithic, ragged_pack, reducer, serving
from kernels.decode import decode
from kernels.decode_call import Segment
from kernels.launchers import Platform
from kernels.ragged import Ragged, pack_rows

MODULES = (gfx950_partial, legacy_partial, monolithic, ragged_pack, reducer)
TARGETS = {
    "gfx942": Platform.of("gfx942", 304),
    "gfx950": Platform.of("gfx950", 256),
    "cuda:90": Platform.of("90", serving.H200.compute_units),
}
SMALL, LARGE = 8, 3 * 2**30


def pool(block_size: int, size: int) -> torch.Tensor:
    """A cache whose pages lie in a storage of at least `size` bytes, of which none is touched."""
    stride = layout.page_stride(block_size)
    blocks = max(8, -(-size // stride) | 1)  # an odd count: slots are then multiples of the block size only
    storage = torch.empty(blocks * stride, dtype=torch.uint8)
    return storage.as_strided((blocks, block_size, layout.RECORD_BYTES), (stride, layout.RECORD_BYTES, 1))


def rows_of(rows: int, capacity: int) -> Ragged:
    return Ragged(torch.zeros(rows * capacity, dtype=torch.int32), torch.zeros(rows + 1, dtype=torch.int32))


POOLS = {(size, bs): pool(bs, size) for size in (SMALL, LARGE) for bs in (64, 2)}


def serve(launcher: DeclaredLauncher, platform: Platform, layer: serving.Layer, rows: int, heads: int, capacity: int,
          size: int, *, sink: bool, captured: bool) -> None:  # fmt: skip
    q = torch.empty(rows, heads, layout.HEAD_DIM, dtype=torch.bfloat16)
    main = Segment(POOLS[size, 64], rows_of(rows, layout.SLIDING_WINDOW))
    extra = Segment(POOLS[size, layer.block_size], rows_of(rows, capacity)) if layer.block_size else None
    for trust in (False, True) if extra is not None and platform.design == "gfx950" else (False,):
        decode(
            launcher,
            platform,
            q,
            main,
            extra,
            sink=torch.empty(heads) if sink else None,
            out=torch.empty_like(q),
            adaptive=captured and layer.captured_capacity is not None,
            trust_extra=trust,
        )


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("heads", serving.HEADS)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_captured_rows(target: str, heads: int, size: int) -> None:
    launcher = DeclaredLauncher(target, *MODULES)
    for rows in serving.MI355X.captured_rows:
        for layer in serving.LAYERS:
            capacity = layer.captured_capacity or layer.capacities[-1]
            sink = bool(rows % 3)
            serve(launcher, TARGETS[target], layer, rows, heads, capacity, size, sink=sink, captured=True)
    storages = {dict(key.arguments)["main_cache"].attributes for key in launcher.chosen if "partial" in key.kernel}
    assert len(storages) == 1
    assert ("S" in storages.pop()) == (target == "gfx942" and size == SMALL)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_rows_and_lengths_outside_of_graphs(target: str) -> None:
    launcher = DeclaredLauncher(target, *MODULES)
    for rows in (*range(1, 40), 57, 101, 255, 300, 512):
        for layer in serving.LAYERS:
            for capacity in {layer.capacities[0], layer.capacities[-1], layer.capacities[len(layer.capacities) // 7]}:
                serve(launcher, TARGETS[target], layer, rows, 16, capacity, SMALL, sink=True, captured=False)
    assert launcher.chosen


def test_the_matrix_of_shapes_on_cuda() -> None:
    launcher = DeclaredLauncher("cuda:90", *MODULES)
    for rows in serving.MATRIX_ROWS:
        for capacity in (context // 128 for context in serving.MATRIX_CONTEXTS):
            for sink in (False, True):
                for platform in (TARGETS["cuda:90"], Platform("gfx942", fnuz_main=False, compute_units=132)):
                    serve(launcher, platform, serving.C128A, rows, 16, capacity, SMALL, sink=sink, captured=False)
        serve(launcher, TARGETS["cuda:90"], serving.C128A, rows, 16, 8192, SMALL, sink=True, captured=True)


def test_rows_in_and_outside_of_graphs_on_cuda() -> None:
    launcher = DeclaredLauncher("cuda:90", *MODULES)
    for rows in range(1, serving.H200.captured_rows[-1] + 1):
        for layer in serving.LAYERS:
            for capacity in {layer.capacities[0], layer.capacities[-1], layer.capacities[len(layer.capacities) // 7]}:
                platform = TARGETS["cuda:90"]
                serve(launcher, platform, layer, rows, 16, capacity, SMALL, sink=True, captured=False)
            if rows in serving.H200.captured_rows and layer.captured_capacity:
                serve(launcher, platform, layer, rows, 16, layer.captured_capacity, SMALL, sink=True, captured=True)
    assert launcher.chosen


def test_one_program_per_row_and_packing() -> None:
    launcher = DeclaredLauncher("gfx942", *MODULES)
    q = torch.empty(3, 8, layout.HEAD_DIM, dtype=torch.bfloat16)
    decode(launcher, TARGETS["gfx942"], q, Segment(POOLS[SMALL, 64], rows_of(3, 128)), monolithic=True)
    for width in (128, 1024, 77):
        pack_rows(launcher, torch.zeros(3, width, dtype=torch.int32))
    assert [key.kernel for key in launcher.chosen] == ["decode_monolithic", *["pack_ragged"] * 3]
