"""The main-cache writers against the reference, byte for byte, in both dialects."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from records import UNTOUCHED, bf16, pages, record_cache, store_record

from aotkern.errors import InputError
from kernels import fp8, main_writer, record
from kernels.write import write_main_cache
from kernels.writer_reference import FNUZ, OCP, Dialect, fp8_values, from_bf16, main_record, rotate, to_bf16

DIALECTS = pytest.mark.parametrize("dialect", [OCP, FNUZ], ids=lambda dialect: dialect.name)
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinities and NaN are wanted here


@pytest.fixture
def launcher(interpreted: Callable) -> object:
    return interpreted(main_writer, record, fp8)


def angle_table(positions: int) -> torch.Tensor:
    """Cosines and sines of arbitrary angles, none of them special."""
    angle = np.arange(positions)[:, None] * 1.7 + np.arange(32) * 0.37 + 0.1
    return torch.from_numpy(np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32))


def random_rows(count: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((count, 512)) * 0.125
    return to_bf16(values.astype(np.float32))


def check(launcher, rows: np.ndarray, dialect: Dialect, slots: list[int], rotation=None, block_size: int = 64) -> None:
    """Write `rows` and compare every byte of the cache, padding included, with the reference."""
    cache = record_cache(max(slots) // block_size + 1, block_size)
    image = np.full_like(pages(cache), UNTOUCHED)
    for row, slot in enumerate(slots):
        if slot >= 0:
            angles = None if rotation is None else rotation[1][rotation[0][row]].numpy()
            store_record(image, slot, block_size, *main_record(rows[row], dialect, angles))
    write_main_cache(launcher, cache, bf16(rows), torch.tensor(slots), fnuz=dialect is FNUZ, rotation=rotation)
    np.testing.assert_array_equal(pages(cache), image)


def boundary_rows(dialect: Dialect, step: int) -> np.ndarray:
    """Rows whose blocks have their largest magnitude at, just below and just above limit * 2^k, for every `step`-th k.

    The block holds all magnitudes that some code decodes to, scaled alike, the points halfway between two of them, and
    the neighbours of those, as far as bf16 has them; signs alternate.
    """
    values = fp8_values(dialect)[1:0x7F]
    halfway = np.concatenate([[0], values[:-1]]) / 2 + values / 2
    spread = to_bf16(np.concatenate([values, halfway]).astype(np.float32)).astype(np.int64)
    blocks = []
    for exponent in range(-30, 119, step):
        for nudge in (-1, 0, 1):
            shifted = np.clip(spread + (exponent << 7), 0, 0x7F7F)
            nudged = np.where(np.arange(len(spread)) % 3 == 0, shifted + nudge, shifted)
            limit = to_bf16(np.float32([dialect.limit]))[0].astype(np.int64) + (exponent << 7) + nudge
            chunks = nudged[: len(nudged) // 63 * 63].reshape(-1, 63)
            blocks.append(np.insert(np.minimum(chunks, limit), 17, limit, axis=1))
    stacked = np.concatenate(blocks)
    stacked[:, 1::2] |= 0x8000
    stacked = stacked[: len(stacked) // 7 * 7].reshape(-1, 448)
    return np.concatenate([stacked, random_rows(len(stacked))[:, 448:]], axis=1).astype(np.uint16)


@DIALECTS
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("block_size", [2, 4, 64])
def test_rows_land_in_their_slots_and_nothing_else_changes(launcher, dialect, rotates, block_size):
    rotation = (torch.tensor([3, 0, 9, 1, 4]), angle_table(10)) if rotates else None
    check(launcher, random_rows(5), dialect, [7, 0, -1, 130, 2], rotation, block_size)


@DIALECTS
def test_exponent_boundaries_and_every_code_of_the_quantised_dims(launcher, dialect):
    rows = boundary_rows(dialect, step=7)
    check(launcher, rows, dialect, list(range(len(rows))))


def quantised_patterns() -> np.ndarray:
    """Rows whose quantised dims hold every bf16 pattern."""
    # Patterns 32 apart are a quarter of a binade apart, so that a block of 64 of them reaches from its largest
    # magnitude down to numbers that round to zero.
    blocks = np.arange(65536).reshape(32, 64, 32).transpose(0, 2, 1).reshape(-1, 64)
    blocks = np.concatenate([blocks, blocks[: -len(blocks) % 7]]).reshape(-1, 448)
    return np.concatenate([blocks, random_rows(len(blocks))[:, 448:]], axis=1).astype(np.uint16)


def rotated_patterns() -> np.ndarray:
    """Rows whose rotated dims hold every bf16 pattern, in random pairs."""
    every = np.random.default_rng(1).permutation(65536).astype(np.uint16).reshape(-1, 64)
    return np.concatenate([np.zeros((len(every), 448), np.uint16), every], axis=1)


@DIALECTS
def test_every_bf16_pattern_as_a_quantised_dim(launcher, dialect):
    rows = quantised_patterns()
    check(launcher, rows, dialect, list(range(len(rows))))


@pytest.mark.slow
def test_every_bf16_pattern_as_a_rotated_dim(launcher):
    rows = rotated_patterns()
    rotation = (torch.arange(len(rows)) % 64, angle_table(64))
    check(launcher, rows, OCP, list(range(len(rows))), rotation)


@DIALECTS
def test_rotating_first_and_writing_plainly_gives_the_same_cache(launcher, dialect):
    rows, table = random_rows(4), angle_table(4)
    rows[1, 448:] = 0x7F80  # infinities, and NaN after rotation
    turned = rows.copy()
    for index, row in enumerate(turned):
        row[448:] = to_bf16(rotate(from_bf16(row[448:]), table[index].numpy()))
    fused, plain = record_cache(1, 4), record_cache(1, 4)
    slots, fnuz = torch.arange(4), dialect is FNUZ
    write_main_cache(launcher, fused, bf16(rows), slots, fnuz=fnuz, rotation=(torch.arange(4), table))
    write_main_cache(launcher, plain, bf16(turned), slots, fnuz=fnuz)
    assert torch.equal(torch.from_numpy(pages(fused)), torch.from_numpy(pages(plain)))


@DIALECTS
def test_special_values_keep_their_meaning(launcher, dialect):
    rows = np.zeros((1, 512), np.uint16)
    rows[0, 0] = 0xFFC1  # NaN with sign and payload
    rows[0, 64], rows[0, 65] = 0x7F80, 0x3F80  # infinity next to 1
    rows[0, 128] = 0x8000  # -0
    rows[0, 448] = 0x7F81  # NaN in the part that is copied
    cache = record_cache(1, 2)
    write_main_cache(launcher, cache, bf16(rows), torch.tensor([0]), fnuz=dialect is FNUZ)
    data, codes = pages(cache)[0, :576], pages(cache)[0, 1152:1160]
    floor = 105 if dialect is OCP else 106
    assert data[0] == dialect.nan
    assert (data[64], data[65]) == (0x7E, 0)
    assert data[128] == (0x80 if dialect is OCP else 0)
    assert data[448:450].tolist() == [0x81, 0x7F]
    assert codes.tolist() == [floor, 255, floor, floor, floor, floor, floor, 0]


def test_reading_back_stays_within_half_a_unit_of_the_largest_code(launcher):
    rows = random_rows(3)
    cache = record_cache(1, 4)
    write_main_cache(launcher, cache, bf16(rows), torch.arange(3), fnuz=False)
    for row in range(3):
        data, codes = pages(cache)[0, row * 576 : row * 576 + 448], pages(cache)[0, 4 * 576 + row * 8 :][:7]
        scales = np.repeat(2.0 ** (codes.astype(np.int64) - 127), 64)
        error = np.abs(fp8_values(OCP)[data] * scales - from_bf16(rows[row, :448]))
        assert (error <= 16 * scales).all()


def test_rows_may_be_a_part_of_a_wider_tensor_and_more_than_the_slots(launcher):
    rows = random_rows(3)
    wide = torch.zeros(3, 1536, dtype=torch.bfloat16)
    wide[:, 512:1024] = bf16(rows)
    cache, image = record_cache(1, 4), np.full_like(pages(record_cache(1, 4)), UNTOUCHED)
    for row in range(2):
        store_record(image, row, 4, *main_record(rows[row], OCP))
    write_main_cache(launcher, cache, wide[:, 512:1024], torch.arange(2), fnuz=False)
    np.testing.assert_array_equal(pages(cache), image)


def test_nothing_to_insert_launches_nothing():
    cache = record_cache(1, 4)
    write_main_cache({}, cache, torch.zeros(3, 512, dtype=torch.bfloat16), torch.zeros(0).long(), fnuz=False)
    assert (pages(cache) == UNTOUCHED).all()


def test_everything_wrong_is_reported_at_once():
    cache = record_cache(2, 4).as_strided((2, 4, 584), (584, 584, 1))
    kv = torch.zeros(2, 511)
    rotation = torch.zeros(1).long(), torch.zeros(4, 32)
    with pytest.raises(InputError) as caught:
        write_main_cache({}, cache, kv, torch.zeros(3).long(), fnuz=False, rotation=rotation)
    places = [problem.where.removeprefix("write_main_cache: ") for problem in caught.value.problems]
    assert places == ["cache", "kv", "kv", "slots", "positions", "cos_sin"]
    assert "expected a page stride of at least 2336, even, found 584" in str(caught.value)
