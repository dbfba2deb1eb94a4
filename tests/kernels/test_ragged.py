"""Packing dense rows, and buffers whose address stays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from attention import ragged

from aotkern.errors import InputError
from kernels import ragged_pack
from kernels.ragged import Ragged, RaggedBuffers, pack_rows


@pytest.fixture
def launcher(interpreted: Any) -> Any:
    return interpreted(ragged_pack)


def rows_of(packed: Ragged) -> list[list[int]]:
    bounds = packed.indptr.tolist()
    return [packed.indices[first:end].tolist() for first, end in pairwise(bounds)]


def test_lengths_come_from_the_entries(launcher: Any) -> None:
    dense = torch.tensor([[3, 5, -1, -1], [-1, -1, -1, -1], [9, 8, 7, 6]], dtype=torch.int32)
    packed = pack_rows(launcher, dense)
    assert rows_of(packed) == [[3, 5], [], [9, 8, 7, 6]]
    assert packed.indices.numel() == 12
    assert packed.indptr.dtype == torch.int32


def test_given_lengths_are_clamped_and_padding_rows_are_empty(launcher: Any) -> None:
    dense = torch.arange(12, dtype=torch.int32).view(3, 4)
    lengths = torch.tensor([9, 0, -2])
    assert rows_of(pack_rows(launcher, dense, lengths)) == [[0, 1, 2, 3], [], []]


def test_entries_outside_the_cache_become_minus_one(launcher: Any) -> None:
    dense = torch.tensor([[3, 10, -7, 9]], dtype=torch.int32)
    lengths = torch.tensor([4])
    assert rows_of(pack_rows(launcher, dense, lengths, num_rows=10)) == [[3, -1, -1, 9]]
    assert rows_of(pack_rows(launcher, dense, lengths)) == [[3, 10, -7, 9]]


@pytest.mark.parametrize("width", [127, 128, 129, 300])
def test_rows_longer_than_a_block(launcher: Any, width: int) -> None:
    dense = torch.arange(2 * (width + 5), dtype=torch.int32).view(2, width + 5)[:, :width]
    assert rows_of(pack_rows(launcher, dense)) == dense.tolist()


def test_nothing_to_pack(launcher: Any) -> None:
    assert rows_of(pack_rows(launcher, torch.empty(0, 4, dtype=torch.int32))) == []
    assert rows_of(pack_rows(launcher, torch.empty(2, 0, dtype=torch.int32))) == [[], []]


def test_wrong_arguments_are_named(launcher: Any) -> None:
    with pytest.raises(
        InputError, match=r"dense: expected dtype int32, found int64[\s\S]*lengths: expected shape \[2\]"
    ):
        pack_rows(launcher, torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3, dtype=torch.int32))


def test_views_keep_their_address_and_narrow_on_gfx950_only() -> None:
    buffers = RaggedBuffers(torch.empty(0, dtype=torch.int32), max_rows=2, entries_per_row=8)
    small, large = ragged([[1], [2, 3]]), ragged([[1, 2, 3], [4, 5, 6]])
    narrow = [buffers.refill(source, "gfx950") for source in (small, large)]
    assert [view.indices.numel() for view in narrow] == [3, 6]
    wide = [buffers.refill(source, "gfx942") for source in (small, large)]
    assert [view.indices.numel() for view in wide] == [16, 16]
    assert {view.indices.data_ptr() for view in (*narrow, *wide)} == {buffers.indices.data_ptr()}
    assert {view.indptr.data_ptr() for view in (*narrow, *wide)} == {buffers.indptr.data_ptr()}
    assert rows_of(wide[1]) == [[1, 2, 3], [4, 5, 6]]


def test_a_view_is_never_empty() -> None:
    buffers = RaggedBuffers(torch.empty(0, dtype=torch.int32), max_rows=2, entries_per_row=8)
    assert buffers.refill(ragged([[], []]), "gfx950").indices.numel() == 1


def test_what_does_not_fit_is_refused() -> None:
    buffers = RaggedBuffers(torch.empty(0, dtype=torch.int32), max_rows=2, entries_per_row=2)
    with pytest.raises(InputError, match="at most 2 elements, found 3"):
        buffers.refill(ragged([[1, 2, 3]]), "gfx950")
    with pytest.raises(InputError, match="1 to 3 elements, found 4"):
        buffers.refill(ragged([[], [], []]), "gfx950")
