"""The indexer-cache writers against the reference, byte for byte, and through the gather that reads them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from records import UNTOUCHED, bf16, index_cache, pages, store_key

from aotkern.errors import InputError
from kernels import compressor, fp8, gather, index_layout, indexer_writer, record
from kernels.gather_host import gather_indexer_cache
from kernels.write import write_index_keys
from kernels.write_compressed import CompressorStep, write_indexer_cache
from kernels.writer_reference import (
    FNUZ,
    OCP,
    Dialect,
    compress,
    compressed_index_record,
    fp8_values,
    group_states,
    index_record,
    to_bf16,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinities and NaN are wanted here

DIMS = 128
DIALECTS = pytest.mark.parametrize("dialect", [OCP, FNUZ], ids=lambda dialect: dialect.name)
LAYOUTS = pytest.mark.parametrize("layout", ["normal", "shuffle"])


@pytest.fixture
def launcher(interpreted: Callable) -> object:
    return interpreted(indexer_writer, compressor, record, fp8, gather, index_layout)


def angle_table(positions: int) -> torch.Tensor:
    angle = np.arange(positions)[:, None] * 1.7 + np.arange(32) * 0.37 + 0.1
    return torch.from_numpy(np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32))


def random_keys(count: int) -> np.ndarray:
    scale = np.float32(2.0) ** np.arange(-6, count - 6)[:, None]
    return to_bf16((np.random.default_rng(2).standard_normal((count, DIMS)) * scale).astype(np.float32))


def step_of(states: np.ndarray, positions: list[int]) -> CompressorStep:
    return CompressorStep(
        state=torch.from_numpy(states.reshape(-1, 4, states.shape[1])),
        positions=torch.tensor(positions),
        state_slots=torch.arange(len(positions)),
        token_to_req=torch.zeros(len(positions), dtype=torch.int32),
        state_table=torch.arange(len(states) // 4, dtype=torch.int32)[None],
        ratio=4,
    )


def check_plain_keys(launcher, dialect: Dialect, layout: str, *, power_of_two: bool) -> None:
    """Insert keys of many magnitudes, and compare every byte of the cache with the reference."""
    keys = random_keys(20)
    keys[3] = 0
    keys[4, 7], keys[5, 9], keys[6, :] = 0x7FC0, 0x7F80, to_bf16(np.float32([dialect.limit]))
    slots = [*range(17, 27), -1, 0, 5, 31, 2, 16, 1, 3, 9, 15]
    cache = index_cache(2, 16)
    wanted = np.full_like(pages(cache), UNTOUCHED)
    for key, slot in zip(keys, slots, strict=True):
        if slot >= 0:
            record_bytes, scale = index_record(key, dialect, power_of_two=power_of_two)
            store_key(wanted, slot, 16, record_bytes, scale, shuffled=layout == "shuffle")
    write_index_keys(
        launcher, cache, bf16(keys), torch.tensor(slots), layout=layout, fnuz=dialect is FNUZ, power_of_two=power_of_two
    )
    np.testing.assert_array_equal(pages(cache), wanted)


@DIALECTS
@LAYOUTS
@pytest.mark.parametrize("power_of_two", [False, True])
def test_plain_keys_are_exact(launcher, dialect, layout, power_of_two):
    check_plain_keys(launcher, dialect, layout, power_of_two=power_of_two)


def test_compressed_keys_of_known_rows_are_exact(launcher):
    rows = np.random.default_rng(3).standard_normal((4, DIMS)).astype(np.float32)
    rows[1] *= np.float32(2.0) ** np.arange(-16, 16).repeat(4)
    rows[2, 3], rows[3] = 448 * 2.0**-5, 0
    states = np.zeros((16, 4 * DIMS), np.float32)
    states[:, 2 * DIMS :] = -np.inf
    states[3::4, DIMS : 2 * DIMS] = rows  # the last token of each group takes all the weight
    states[3::4, 3 * DIMS :] = 0
    step, slots, table = step_of(states, [3, 6, 7, 11, 15]), [1, 9, 3, 0, 2], angle_table(16)
    cache = index_cache(1, 16)
    # With such an eps the norm divides by exactly 2^60, which the weight undoes.
    weight = torch.full((DIMS,), 2.0**60)
    write_indexer_cache(launcher, cache, torch.tensor(slots), step, weight, table, eps=2.0**120)
    wanted = np.full_like(pages(cache), UNTOUCHED)
    for entry, slot in enumerate([1, 3, 0, 2]):
        store_key(wanted, slot, 16, *compressed_index_record(rows[entry], table[entry * 4].numpy()))
    np.testing.assert_array_equal(pages(cache), wanted)


def test_compressed_keys_of_random_states_decode_to_the_float64_result(launcher):
    states = np.random.default_rng(5).standard_normal((12, 4 * DIMS)).astype(np.float32)
    step, table = step_of(states, [3, 11]), angle_table(12)
    cache = index_cache(1, 16)
    write_indexer_cache(launcher, cache, torch.tensor([0, 1]), step, torch.ones(DIMS).bfloat16(), table, eps=1e-6)
    for entry, end in enumerate([3, 11]):
        row = compress(*group_states(states, end, 4, overlap=True), np.ones(DIMS), 1e-6).astype(np.float32)
        key, scale = compressed_index_record(row, table[end - 3].numpy())
        ours = pages(cache)[0, entry * DIMS : (entry + 1) * DIMS]
        assert pages(cache)[0, 16 * DIMS + 4 * entry :][:4].tobytes() == scale.tobytes()
        assert np.abs(fp8_values(OCP)[ours] - fp8_values(OCP)[key]).max() <= 32  # one step between the largest codes
        assert np.count_nonzero(ours != key) <= 2


@LAYOUTS
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_gather_gives_back_what_was_written_in_the_same_layout_only(launcher, layout, arch):
    keys, cache = random_keys(20), index_cache(2, 16)
    write_index_keys(launcher, cache, bf16(keys), torch.arange(20), layout=layout, fnuz=False, power_of_two=True)
    wanted = [index_record(key, OCP, power_of_two=True) for key in keys]
    for read_as in ("normal", "shuffle"):
        k_out, scale_out = torch.zeros(20, 128, dtype=torch.uint8), torch.zeros(20)
        table, starts = torch.tensor([[0, 1]], dtype=torch.int32), torch.tensor([0, 20], dtype=torch.int32)
        owners = torch.zeros(20, dtype=torch.int32)
        gather_indexer_cache(launcher, cache, k_out, scale_out, table, starts, owners, layout=read_as, arch=arch)
        np.testing.assert_array_equal(scale_out.numpy(), [scale for _, scale in wanted])
        same = np.array_equal(k_out.numpy(), np.stack([key for key, _ in wanted]))
        assert same == (read_as == layout)


def test_everything_wrong_is_reported_at_once():
    cache = index_cache(1, 8)
    with pytest.raises(InputError) as caught:
        write_index_keys({}, cache, torch.zeros(2, 64), torch.zeros(3), layout="shuffle", fnuz=False, power_of_two=True)
    places = [problem.where.removeprefix("write_index_keys: ") for problem in caught.value.problems]
    assert places == ["cache", "keys", "keys", "slots"]


def test_a_step_of_the_wrong_width_is_refused():
    step = step_of(np.zeros((4, 4 * 512), np.float32), [3])
    with pytest.raises(InputError, match=r"state: expected shape \[any, any, 512\], found \[1, 4, 2048\]"):
        write_indexer_cache({}, index_cache(1, 16), torch.tensor([0]), step, torch.ones(128), angle_table(4), eps=1.0)
