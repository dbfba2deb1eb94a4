"""The whole decode step in Triton's interpreter against the float64 reference, for both designs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention import (
    GFX942,
    GFX950,
    PLATFORMS,
    as_reference,
    assert_close,
    query,
    ragged,
    random_cache,
    random_rows,
    write_record,
)
from mended import mend_interpreter

from kernels import gfx950_partial, gfx950_tile, legacy_partial, legacy_tile, monolithic, reducer, reference
from kernels.decode import decode
from kernels.decode_call import Segment
from kernels.launchers import Platform
from kernels.ragged import Ragged


@pytest.fixture
def launcher(interpreted: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    mend_interpreter(monkeypatch)
    return interpreted(legacy_tile, legacy_partial, monolithic, gfx950_tile, gfx950_partial, reducer)


class Recorder:
    """A launcher that keeps the positional arguments of each kernel's last launch."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher
        self.arguments: dict[str, tuple[Any, ...]] = {}

    def __getitem__(self, kernel: str) -> Any:
        recorder = self

        class Bound:
            def __getitem__(self, grid: tuple[int, ...]) -> Any:
                def launch(*arguments: Any, **constants: Any) -> None:
                    recorder.arguments[kernel] = arguments
                    recorder._launcher[kernel][grid](*arguments, **constants)

                return launch

        return Bound()


def segments(platform: Platform, main: list[list[int]], extra: list[list[int]] | None, block_size: int = 4) -> Any:
    """Segments over random caches of 96 and 128 slots."""
    main_cache = random_cache(1, 96 // block_size, block_size, fnuz=platform.fnuz_main, padding=64)
    first = Segment(main_cache, ragged(main, spare=5))
    if extra is None:
        return first, None
    return first, Segment(random_cache(2, 64, 2, fnuz=False, padding=16), ragged(extra))


def check(launcher: Any, platform: Platform, q: torch.Tensor, main: Segment, extra: Any, sink: Any, **how: Any) -> None:
    found = decode(launcher, platform, q, main, extra, sink=sink, **how)
    call = as_reference(q, main, extra, sink, fnuz_main=platform.fnuz_main)
    assert_close(found, reference.attend(call))


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("with_extra", [False, True])
@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("name", PLATFORMS)
def test_rows_shorter_than_the_splits(launcher: Any, name: str, splits: int, with_extra: bool, with_sink: bool) -> None:
    platform = PLATFORMS[name]
    main, extra = segments(platform, random_rows(3, 96, (8, 5)), random_rows(4, 128, (2, 7)) if with_extra else None)
    sink = torch.tensor([0.5, -1.0, 2.0, 9.0]) if with_sink else None
    check(launcher, platform, query(5, 2, 3), main, extra, sink, splits=splits)


@pytest.mark.parametrize("name", PLATFORMS)
def test_several_blocks_of_heads(launcher: Any, name: str) -> None:
    platform = PLATFORMS[name]
    main, extra = segments(platform, random_rows(6, 96, (33,)), random_rows(7, 128, (5,)), block_size=16)
    check(launcher, platform, query(8, 1, 20), main, extra, torch.linspace(-1, 1, 20), splits=2)


@pytest.mark.parametrize("with_sink", [False, True])
def test_one_program_per_row(launcher: Any, with_sink: bool) -> None:
    main, extra = segments(GFX942, random_rows(9, 96, (17, 0, 40)), random_rows(10, 128, (0, 0, 16)))
    sink = torch.tensor([0.5, -1.0, float("-inf")]) if with_sink else None
    check(launcher, GFX942, query(11, 3, 3), main, extra, sink, monolithic=True)


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_row_without_entries_is_zero_even_with_a_sink(launcher: Any, name: str) -> None:
    platform = PLATFORMS[name]
    main, extra = segments(platform, [[], [1, 2], [-1, 96, 5000]], [[], [3], [128, -7]])
    out = decode(launcher, platform, query(12, 3, 2), main, extra, sink=torch.zeros(2), splits=4)
    assert out[0].eq(0).all()
    assert out[2].eq(0).all()
    assert out[1].ne(0).any()


@pytest.mark.parametrize("extra_length", [0, 1, 31, 32, 33, 63, 64, 65])
def test_extra_lengths_around_tiles_and_groups(launcher: Any, extra_length: int) -> None:
    row = random_rows(13, 127, (extra_length,))[0]
    row = [slot + 1 for slot in row]
    for place, slot in ((3, -1), (40, 128), (64, 128 + 1024)):
        row[place : place + 1] = [slot] if place < extra_length else row[place : place + 1]
    main, extra = segments(GFX950, [[5, 6]], [row])
    write_record(extra.cache, 0, poisoned=True)
    check(launcher, GFX950, query(14, 1, 3), main, extra, None, splits=1)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
@pytest.mark.parametrize("name", PLATFORMS)
def test_poisoned_rows_read_as_zero(launcher: Any, name: str) -> None:
    platform = PLATFORMS[name]
    main, extra = segments(platform, [[0, 1]], [[0, 1]])
    for slot in (0, 1):
        write_record(extra.cache, slot, poisoned=True)
        write_record(main.cache, slot, poisoned=True, fnuz=platform.fnuz_main)
    out = decode(launcher, platform, query(15, 1, 3), main, extra)
    assert out.eq(0).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("length", [40, 70])
def test_trusting_canonical_rows_changes_no_bit(launcher: Any, length: int) -> None:
    main, extra = segments(GFX950, random_rows(16, 96, (9,)), random_rows(17, 128, (length,)))
    q = query(18, 1, 3)
    write_record(extra.cache, 7, poisoned=True)
    extra.rows.indices[5] = 7
    scrubbed = decode(launcher, GFX950, q, main, extra, splits=2)
    write_record(extra.cache, 7, poisoned=False)
    trusted = decode(launcher, GFX950, q, main, extra, splits=2, trust_extra=True)
    assert torch.equal(scrubbed, trusted)


@pytest.mark.parametrize(("name", "dtype", "direct"), [("gfx942", "bfloat16", False), ("gfx950", "bfloat16", True),
                                                       ("gfx950", "float32", False)])  # fmt: skip
def test_the_result_is_in_the_tensor_that_was_given(launcher: Any, name: str, dtype: str, direct: bool) -> None:
    platform = PLATFORMS[name]
    main, extra = segments(platform, [[4, 2]], None)
    q = query(19, 1, 3)
    out = torch.full((1, 5, 512), 7.0, dtype=getattr(torch, dtype))[:, 1:4]
    stored_by = Recorder(launcher)
    returned = decode(stored_by, platform, q, main, extra, out=out, splits=1)
    assert returned is out
    assert (stored_by.arguments["decode_reduce"][4].data_ptr() == out.data_ptr()) is direct
    assert_close(out, reference.attend(as_reference(q, main, None, None, fnuz_main=platform.fnuz_main)))


@pytest.mark.parametrize(("platform", "splits"), [(GFX950, 32), (GFX942, 16)])
def test_long_rows_without_main_entries(launcher: Any, platform: Platform, splits: int) -> None:
    main, extra = segments(platform, [[]], random_rows(20, 128, (8192,)))
    check(launcher, platform, query(21, 1, 16), main, extra, None, splits=splits)


def test_int64_lists_and_no_rows(launcher: Any) -> None:
    main, _ = segments(GFX950, [[4, 2]], None)
    wide = Segment(main.cache, type(main.rows)(main.rows.indices.long(), main.rows.indptr.long()))
    q = query(22, 1, 3)
    assert torch.equal(decode(launcher, GFX950, q, wide), decode(launcher, GFX950, q, main))
    empty = Segment(main.cache, ragged([]))
    assert decode(launcher, GFX950, q[:0], empty).shape == (0, 3, 512)


def test_a_slot_that_int32_cannot_hold_is_not_attended(launcher: Any) -> None:
    main, extra = segments(GFX950, [[4, 2]], [[3, 5]])
    outside = Ragged(torch.tensor([3, 2**32 + 7, 5]), torch.tensor([0, 3]))
    q = query(23, 1, 3)
    wanted = decode(launcher, GFX950, q, main, extra, splits=1)
    assert torch.equal(decode(launcher, GFX950, q, main, Segment(extra.cache, outside), splits=1), wanted)
