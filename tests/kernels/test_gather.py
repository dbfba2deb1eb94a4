"""The indexer gather, in both forms: what is copied, what is left alone, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotkern.errors import InputError
from kernels import gather, index_layout
from kernels.gather_host import DYNAMIC, SPECIALISED, gather_indexer_cache, gather_kernel
from kernels.layout import INDEX_RECORD_BYTES, index_byte_offset, index_scale_offset

ARCHS = ("gfx942", "gfx950")
SENTINEL = 123


def paged_cache(blocks: int, block_size: int, padding: int = 0) -> torch.Tensor:
    """A cache of random bytes whose pages are `padding` bytes apart."""
    generator = torch.Generator().manual_seed(blocks * 1000 + block_size)
    stride = block_size * INDEX_RECORD_BYTES + padding
    storage = torch.randint(0, 256, (blocks, stride), dtype=torch.uint8, generator=generator)
    return storage.as_strided((blocks, block_size, INDEX_RECORD_BYTES), (stride, INDEX_RECORD_BYTES, 1))


def expected_record(cache: torch.Tensor, block: int, token: int, layout: str) -> tuple[list[int], list[int]]:
    """Key bytes and scale bytes of one token, byte by byte by the layout's definition."""
    page = cache.as_strided((cache.stride(0),), (1,), block * cache.stride(0)).tolist()
    start = index_scale_offset(token, cache.shape[1])
    key = [page[index_byte_offset(token, dim, shuffled=layout == "shuffle")] for dim in range(128)]
    return key, page[start : start + 4]


class Case:
    """Arguments of one gather, with sentinels in the outputs."""

    def __init__(self, cache: torch.Tensor, table: list[list[int]], lengths: list[int], padding: int = 0) -> None:
        starts = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
        self.cache = cache
        self.rows = starts[-1] + padding
        self.k_out = torch.full((self.rows, 128), SENTINEL, dtype=torch.uint8)
        self.scale_out = torch.full((self.rows,), float(SENTINEL))
        self.block_table = torch.tensor(table, dtype=torch.int32)
        self.cu_seqlen = torch.tensor(starts, dtype=torch.int32)
        owners = [seq for seq, length in enumerate(lengths) for _ in range(length)] + [-1] * padding
        self.token_to_seq = torch.tensor(owners, dtype=torch.int32)

    def run(self, launcher: object, layout: str, arch: str, *, dynamic: bool = False) -> None:
        tensors = (self.cache, self.k_out, self.scale_out, self.block_table, self.cu_seqlen, self.token_to_seq)
        gather_indexer_cache(launcher, *tensors, layout=layout, arch=arch, dynamic=dynamic)

    def row(self, index: int) -> tuple[list[int], list[int]]:
        return self.k_out[index].tolist(), self.scale_out[index : index + 1].view(torch.uint8).tolist()


@pytest.fixture
def launcher(interpreted: Callable) -> object:
    return interpreted(gather, index_layout)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("layout", ["normal", "shuffle"])
def test_rows_of_three_sequences_are_copied_and_padding_is_left_alone(launcher, arch, layout):
    case = Case(paged_cache(3, 16), [[0], [1], [2]], [3, 3, 3], padding=4)
    case.run(launcher, layout, arch)
    for index in range(9):
        assert case.row(index) == expected_record(case.cache, index // 3, index % 3, layout)
    assert (case.k_out[9:] == SENTINEL).all()
    assert (case.scale_out[9:] == SENTINEL).all()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("layout", ["normal", "shuffle"])
def test_sequences_cross_pages_in_block_table_order_whatever_the_page_stride(launcher, arch, layout):
    case = Case(paged_cache(5, 32, padding=192), [[4, 1], [3, 0]], [33, 40])
    case.run(launcher, layout, arch)
    for index, (block, token) in {0: (4, 0), 31: (4, 31), 32: (1, 0), 33: (3, 0), 64: (3, 31), 72: (0, 7)}.items():
        assert case.row(index) == expected_record(case.cache, block, token, layout)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("block", [-1, 3, 2**31 - 1])
def test_a_block_out_of_range_gives_scale_zero_and_keeps_the_key_bytes(launcher, arch, block):
    case = Case(paged_cache(3, 16), [[block]], [2])
    case.run(launcher, "normal", arch)
    assert (case.scale_out == 0).all()
    assert (case.k_out == SENTINEL).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_tokens_beyond_the_block_table_read_no_foreign_table_row(launcher, arch):
    case = Case(paged_cache(3, 16), [[0], [1]], [17, 1])
    case.run(launcher, "normal", arch)
    assert case.row(15) == expected_record(case.cache, 0, 15, "normal")
    assert case.scale_out[16] == 0
    assert (case.k_out[16] == SENTINEL).all()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("owner", [-1, 2, 1])
def test_rows_that_no_sequence_owns_are_left_alone(launcher, arch, owner):
    case = Case(paged_cache(3, 16), [[0], [1]], [1, 1])
    case.token_to_seq[0] = owner
    case.run(launcher, "normal", arch)
    assert (case.k_out[0] == SENTINEL).all()
    assert case.scale_out[0] == SENTINEL
    assert case.row(1) == expected_record(case.cache, 1, 0, "normal")


def test_normal_and_shuffled_readings_of_one_page_differ():
    page = paged_cache(1, 16)
    assert expected_record(page, 0, 1, "normal")[0] != expected_record(page, 0, 1, "shuffle")[0]


def test_no_rows_launch_nothing():
    case = Case(paged_cache(1, 16), [[0]], [0])
    case.run({}, "normal", "gfx950")
    assert case.rows == 0


def test_gfx942_keeps_the_specialised_form_unless_asked():
    kernels = {(arch, dynamic): gather_kernel(arch, dynamic=dynamic) for arch in ARCHS for dynamic in (False, True)}
    assert kernels == {
        ("gfx942", False): SPECIALISED,
        ("gfx942", True): DYNAMIC,
        ("gfx950", False): DYNAMIC,
        ("gfx950", True): DYNAMIC,
    }


def test_everything_wrong_is_reported_at_once():
    case = Case(paged_cache(2, 8), [[0]], [2])
    case.cache = case.cache[:, :, :100]
    case.cu_seqlen = case.cu_seqlen.long()
    case.scale_out = case.scale_out[:1]
    with pytest.raises(InputError) as caught:
        case.run({}, "shuffle", "gfx950")
    places = {problem.where.removeprefix("gather_indexer_cache: ") for problem in caught.value.problems}
    assert places == {"cache", "cu_seqlen", "scale_out"}
    assert "expected a block size that 16 divides, found 8" in str(caught.value)


def test_an_unknown_layout_is_refused():
    with pytest.raises(InputError, match="expected normal or shuffle, found 'auto'"):
        Case(paged_cache(1, 16), [[0]], [1]).run({}, "auto", "gfx950")
