"""The compressor: states, slots, and compressed records, in one pass and in two stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from records import UNTOUCHED, pages, record_cache, store_record

from aotkern.errors import InputError
from kernels import compressed_writer, compressor, compressor_state, fp8, record
from kernels.layout import page_of
from kernels.write_compressed import (
    CompressorStep,
    compress_splits,
    compressed_slots,
    state_width,
    store_compressor_state,
    write_compressed_cache,
)
from kernels.writer_reference import OCP, compress, compressed_record, compressed_slot, fp8_values, group_states

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinities and NaN are wanted here

DIMS = 512
IDENTITY_EPS = 2.0**120
"""So large that the mean square of an ordinary row vanishes beside it: the norm is then a division by exactly 2^60."""
IDENTITY_WEIGHT = torch.full((DIMS,), 2.0**60)


@pytest.fixture
def launcher(interpreted: Callable) -> object:
    return interpreted(compressed_writer, compressor, compressor_state, record, fp8)


def angle_table(positions: int) -> torch.Tensor:
    angle = np.arange(positions)[:, None] * 1.7 + np.arange(32) * 0.37 + 0.1
    return torch.from_numpy(np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32))


def step_of(states: np.ndarray, positions: list[int], ratio: int, block_size: int = 8) -> CompressorStep:
    """A step of one sequence whose states lie in the cache, on pages in reverse order, with garbage around them."""
    count = -(-len(states) // block_size)
    cache = np.full((count + 1, block_size, states.shape[1]), np.nan, np.float32)
    table = np.arange(count, 0, -1, dtype=np.int32)
    for position, state in enumerate(states):
        page, offset = page_of(position, block_size)
        cache[table[page], offset] = state
    return CompressorStep(
        state=torch.from_numpy(cache),
        positions=torch.tensor(positions, dtype=torch.int64),
        state_slots=torch.arange(len(positions)),
        token_to_req=torch.ones(len(positions), dtype=torch.int32),
        state_table=torch.from_numpy(np.stack([table * 0, table])),
        ratio=ratio,
    )


def passing_states(rows: np.ndarray, ratio: int) -> np.ndarray:
    """States whose entry number i is exactly `rows[i]`: the last token of a group takes all the weight."""
    width = state_width(ratio, DIMS)
    states = np.zeros((len(rows) * ratio, 2 * width), np.float32)
    states[:, :width] = 77
    states[:, width:] = -np.inf
    last = np.arange(len(rows)) * ratio + ratio - 1
    states[last, width - DIMS : width] = rows
    states[last, -DIMS:] = 0
    return states


def random_states(positions: int, ratio: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((positions, 2 * state_width(ratio, DIMS))).astype(np.float32)


def write(launcher, step: CompressorStep, slots: list[int], weight, eps, *, sanitize=True, splits=None, block_size=2):
    cache = record_cache(max(slots) // block_size + 1, block_size)
    table = angle_table(int(step.positions.max()) + 1)
    slots_tensor = torch.tensor(slots)
    options = {"eps": eps, "sanitize": sanitize, "num_splits": splits}
    write_compressed_cache(launcher, cache, slots_tensor, step, weight, table, **options)
    return pages(cache), table.numpy()


FORMS = pytest.mark.parametrize(("ratio", "splits"), [(4, None), (8, None), (8, 1), (8, 4), (8, 16)])


def check_known_rows(launcher, ratio: int, splits: int | None, *, sanitize: bool, block_size: int = 2) -> None:
    """Compress groups whose entries are known exactly, and compare every byte of the cache with the reference."""
    rows = np.random.default_rng(3).standard_normal((4, DIMS)).astype(np.float32)
    rows[1] *= np.float32(2.0) ** np.arange(-20, 12).repeat(16)
    rows[2, ::64] = 448 * 2.0 ** np.arange(-8, 0)
    rows[3] = 0
    step = step_of(passing_states(rows, ratio), [(entry + 1) * ratio - 1 for entry in range(4)], ratio)
    slots = [5, 0, 3, 6]
    image, table = write(
        launcher, step, slots, IDENTITY_WEIGHT, IDENTITY_EPS, sanitize=sanitize, splits=splits, block_size=block_size
    )
    wanted = np.full_like(image, UNTOUCHED)
    for entry, slot in enumerate(slots):
        store_record(wanted, slot, block_size, *compressed_record(rows[entry], table[entry * ratio], sanitize=sanitize))
    np.testing.assert_array_equal(image, wanted)


@FORMS
@pytest.mark.parametrize("sanitize", [False, True])
def test_records_of_known_rows_are_exact(launcher, ratio, splits, sanitize):
    check_known_rows(launcher, ratio, splits, sanitize=sanitize)


@FORMS
def test_records_of_random_states_decode_to_the_float64_result(launcher, ratio, splits):
    states = random_states(4 * ratio, ratio)
    weight = np.random.default_rng(1).standard_normal(DIMS).astype(np.float32)
    ends = [ratio - 1, 3 * ratio - 1]
    image, table = write(launcher, step_of(states, ends, ratio), [0, 1], torch.from_numpy(weight), 1e-6, splits=splits)
    for entry, end in enumerate(ends):
        kv, score = group_states(states, end, ratio, overlap=ratio == 4)
        assert len(kv) == (ratio if ratio != 4 or end < 4 else 8)
        row = compress(kv, score, weight.astype(np.float64), 1e-6)
        data, codes = image[0, entry * 576 : (entry + 1) * 576], image[0, 1152 + entry * 8 :][:7]
        scales = np.repeat(2.0 ** (codes.astype(np.int64) - 127), 64)
        assert (np.abs(fp8_values(OCP)[data[:448]] * scales - row[:448]) <= 16.01 * scales).all()
        turned, _ = compressed_record(row.astype(np.float32), table[end - ratio + 1], sanitize=True)
        ours, theirs = (part[448:].view("<u2").astype(np.int64) for part in (data, turned))
        assert (np.abs(ours - theirs) <= 1).all()


def test_one_pass_and_two_stages_agree_for_ratio_128(launcher):
    step = step_of(random_states(256, 128), [100, 127, 255], 128)
    weight = torch.ones(DIMS, dtype=torch.bfloat16)
    one, _ = write(launcher, step, [9, 0, 3], weight, 1e-6)
    two, _ = write(launcher, step, [9, 0, 3], weight, 1e-6, splits=2)
    written = [page for page in range(len(one)) if (one[page] != UNTOUCHED).any()]
    assert written == [0, 1]
    # The sums of the two forms are taken over different pieces and may differ in the last bit.
    assert np.count_nonzero(one != two) <= 4


def test_only_tokens_that_end_a_group_and_have_slots_write(launcher):
    states = random_states(32, 8)
    step = step_of(states, [7, 15, 23, 30, 31], 8)
    step = replace(step, state_slots=torch.tensor([0, -1, 2, 3, 4]))
    for splits in (None, 2):
        image, _ = write(launcher, step, [0, 2, -1, 4, 6], IDENTITY_WEIGHT, 1.0, splits=splits)
        assert [page for page in range(4) if (image[page] != UNTOUCHED).any()] == [0, 3]


@pytest.mark.parametrize("splits", [None, 2])
def test_sanitised_records_hold_no_nan_and_no_code_255(launcher, splits):
    rows = np.ones((2, DIMS), np.float32)
    weight = IDENTITY_WEIGHT.clone()
    weight[5], weight[70], weight[450] = float("nan"), float("inf"), float("nan")
    step = step_of(passing_states(rows, 8), [7, 15], 8)
    dirty, _ = write(launcher, step, [0, 1], weight, IDENTITY_EPS, sanitize=False, splits=splits)
    clean, _ = write(launcher, step, [0, 1], weight, IDENTITY_EPS, sanitize=True, splits=splits)
    assert (dirty[0, 5], clean[0, 5]) == (0x7F, 0)
    assert (dirty[0, 70], clean[0, 70]) == (0x7E, 0x7E)
    assert (dirty[0, 1153], clean[0, 1153]) == (255, 254)
    assert dirty[0, 450 * 2 - 448 :][:4].view("<u2").tolist() == [0x7FC0, 0x7FC0]
    assert clean[0, 450 * 2 - 448 :][:4].view("<u2").tolist() == [0, 0]
    changed = set(np.nonzero(dirty[0] != clean[0])[0] % 576)
    assert changed == {5, 452, 453, 454, 455, 1, 9}


def test_a_row_that_is_all_nan_becomes_all_zero(launcher):
    rows = np.ones((1, DIMS), np.float32)
    rows[0, 0] = np.nan  # reaches every dim through the norm
    image, _ = write(launcher, step_of(passing_states(rows, 8), [7], 8), [0], IDENTITY_WEIGHT, 1.0)
    assert (image[0, :576] == 0).all()
    assert image[0, 1152:1160].tolist() == [105] * 7 + [0]


@pytest.mark.parametrize(("ratio", "dims"), [(4, 512), (4, 128), (128, 512)])
def test_states_are_stored_with_the_bias_of_their_place(launcher, ratio, dims):
    width = state_width(ratio, dims)
    generator = torch.Generator().manual_seed(4)
    both = torch.randn(3, 2 * width, generator=generator)
    ape = torch.randn(ratio, width, generator=generator)
    step = replace(step_of(np.zeros((8, 2 * width), np.float32), [2, 131, 5], ratio, 4))
    step = replace(step, state_slots=torch.tensor([6, -1, 0]))
    before = step.state.clone()
    kv, score = both.split(width, dim=1)
    store_compressor_state(launcher, step, kv, score, ape)
    before[1, 2] = torch.cat([kv[0], score[0] + ape[2]])
    before[0, 0] = torch.cat([kv[2], score[2] + ape[5 % ratio]])
    assert torch.equal(step.state.view(torch.int32), before.view(torch.int32))


@pytest.mark.parametrize(("ratio", "block_size"), [(4, 64), (128, 2), (4, 16)])
def test_slots_follow_the_block_table(launcher, ratio, block_size):
    positions = [0, ratio - 1, ratio, 2 * ratio - 1, ratio * block_size - 1, ratio * (block_size + 1) - 1]
    table = np.array([[7, 3], [2, 5]], np.int32)
    both = torch.tensor(positions * 2)
    requests = torch.tensor([0] * 6 + [1] * 6, dtype=torch.int32)
    slots = torch.full((12,), 99)
    compressed_slots(launcher, slots, both, requests, torch.from_numpy(table), ratio=ratio, block_size=block_size)
    assert slots.tolist() == [compressed_slot(at, ratio, row, block_size) for row in table for at in positions]


def test_slots_of_padding_missing_pages_and_positions_past_the_table_are_none(launcher):
    table = torch.tensor([[3, -1]], dtype=torch.int32)
    slots = torch.full((4,), 99)
    requests = torch.tensor([0, -1, 0, 0], dtype=torch.int32)
    positions = torch.tensor([7, 7, 11, 19])
    compressed_slots(launcher, slots, positions, requests, table, ratio=4, block_size=2)
    assert slots.tolist() == [7, -1, -1, -1]


def test_the_splits_of_the_first_stage_fill_the_device_once():
    vectors = {(1, 256): 16, (2048, 256): 16, (4096, 256): 8, (8192, 256): 4, (8192, 304): 4, (65536, 256): 1}
    assert {key: compress_splits(key[0], 128, key[1]) for key in vectors} == vectors
    for tokens in range(1, 70_000, 997):
        splits = compress_splits(tokens, 128, 304)
        assert splits in (1, 2, 4, 8, 16)
        assert splits * max(1, tokens // 128) < 2 * 304 or splits == 1


def test_two_stages_are_refused_with_overlap():
    step = step_of(random_states(4, 4), [3], 4)
    cache, slots = record_cache(1, 2), torch.tensor([0])
    with pytest.raises(InputError, match="expected None, because entries overlap, found 2"):
        write_compressed_cache(
            {}, cache, slots, step, IDENTITY_WEIGHT, angle_table(4), eps=1.0, sanitize=True, num_splits=2
        )


def test_everything_wrong_is_reported_at_once():
    step = replace(step_of(random_states(8, 8), [7], 8), ratio=6, token_to_req=torch.zeros(1))
    with pytest.raises(InputError) as caught:
        write_compressed_cache(
            {}, record_cache(1, 2), torch.tensor([0, 1]), step, IDENTITY_WEIGHT[:3], angle_table(8), eps=1.0,
            sanitize=True, num_splits=3,
        )  # fmt: skip
    places = [problem.where.removeprefix("write_compressed_cache: ") for problem in caught.value.problems]
    assert places == ["ratio", "token_to_req", "slots", "norm_weight", "num_splits"]


def test_an_empty_step_launches_nothing():
    step = step_of(random_states(8, 8), [], 8)
    cache, none = record_cache(1, 2), torch.zeros(0, dtype=torch.int64)
    write_compressed_cache({}, cache, none, step, IDENTITY_WEIGHT, angle_table(1), eps=1.0, sanitize=True)
    store_compressor_state({}, step, torch.zeros(0, DIMS), torch.zeros(0, DIMS), torch.zeros(8, DIMS))
    assert (pages(cache) == UNTOUCHED).all()
