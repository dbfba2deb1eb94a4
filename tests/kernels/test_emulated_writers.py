"""The machine code of the writers and of the gather, executed by the emulator: the same bytes as the reference.

Calls are served from the declared variants only, in the shapes of serving.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import test_compressed_writer as compressed
import test_gather as gathering
import test_indexer_writer as indexer
import test_main_writer as main
import torch
from emulating import EmulatorLauncher

from kernels.layout import C4A_BLOCK_SIZE, C128A_BLOCK_SIZE, MAIN_BLOCK_SIZE
from kernels.writer_options import CACHE_MODULES
from kernels.writer_reference import FNUZ, OCP, Dialect

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinities and NaN are wanted here

_DIALECTS = {"gfx942": FNUZ, "gfx950": OCP}


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def arch(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def compile_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


@pytest.fixture(scope="module", params=[True, False], ids=["small", "any"])
def launcher(request: pytest.FixtureRequest, arch: str) -> EmulatorLauncher:
    return EmulatorLauncher(arch, *(f"kernels.{name}" for name in CACHE_MODULES), small=request.param)


@pytest.fixture
def dialect(arch: str) -> Dialect:
    return _DIALECTS[arch]


@pytest.mark.parametrize("rotates", [False, True])
def test_main_rows_land_in_their_slots_and_nothing_else_changes(launcher, dialect, rotates):
    rotation = (torch.tensor([3, 0, 9, 1, 4]), main.angle_table(10)) if rotates else None
    main.check(launcher, main.random_rows(5), dialect, [7, 0, -1, 130, 2], rotation, MAIN_BLOCK_SIZE)


def test_every_exponent_boundary_and_every_code_of_the_quantised_dims(launcher, dialect):
    rows = main.boundary_rows(dialect, step=1)
    main.check(launcher, rows, dialect, list(range(len(rows))))


def test_every_bf16_pattern_as_a_quantised_dim(launcher, dialect):
    rows = main.quantised_patterns()
    main.check(launcher, rows, dialect, list(range(len(rows))))


def test_every_bf16_pattern_as_a_rotated_dim(launcher, dialect):
    rows = main.rotated_patterns()
    rotation = (torch.arange(len(rows)) % 64, main.angle_table(64))
    main.check(launcher, rows, dialect, list(range(len(rows))), rotation)


@pytest.mark.parametrize(("ratio", "splits"), [(4, None), (128, None), *((128, 1 << power) for power in range(5))])
def test_compressed_records_of_known_rows_are_exact(launcher, arch, ratio, splits):
    block_size = C4A_BLOCK_SIZE if ratio == 4 else C128A_BLOCK_SIZE
    compressed.check_known_rows(launcher, ratio, splits, sanitize=arch != "gfx942", block_size=block_size)


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_the_order_of_the_waves_does_not_matter(arch, order):
    launcher = EmulatorLauncher(arch, "kernels.compressed_writer", wave_order=order)
    compressed.check_known_rows(launcher, 128, None, sanitize=arch != "gfx942")


@pytest.mark.parametrize(("ratio", "dims"), [(4, 512), (4, 128), (128, 512)])
def test_states_are_stored_with_the_bias_of_their_place(launcher, ratio, dims):
    compressed.test_states_are_stored_with_the_bias_of_their_place(launcher, ratio, dims)


@pytest.mark.parametrize(("ratio", "block_size"), [(4, C4A_BLOCK_SIZE), (128, C128A_BLOCK_SIZE)])
def test_slots_follow_the_block_table(launcher, ratio, block_size):
    compressed.test_slots_follow_the_block_table(launcher, ratio, block_size)


def test_compressed_index_keys_of_known_rows_are_exact(launcher):
    indexer.test_compressed_keys_of_known_rows_are_exact(launcher)


@pytest.mark.parametrize("layout", ["normal", "shuffle"])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_plain_index_keys_are_exact(launcher, dialect, layout, power_of_two):
    indexer.check_plain_keys(launcher, dialect, layout, power_of_two=power_of_two)


@pytest.mark.parametrize("layout", ["normal", "shuffle"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_gather_copies_rows_and_leaves_padding_alone(launcher, arch, layout, dynamic):
    case = gathering.Case(gathering.paged_cache(3, 16), [[0], [1], [2]], [3, 3, 3], padding=4)
    case.run(launcher, layout, arch, dynamic=dynamic)
    for index in range(9):
        assert case.row(index) == gathering.expected_record(case.cache, index // 3, index % 3, layout)
    assert (case.k_out[9:] == gathering.SENTINEL).all()
    assert (case.scale_out[9:] == gathering.SENTINEL).all()


def test_the_gather_crosses_serving_pages(launcher, arch):
    cache = gathering.paged_cache(5, C4A_BLOCK_SIZE, padding=192)
    case = gathering.Case(cache, [[4, 1], [3, -1]], [C4A_BLOCK_SIZE + 1, C4A_BLOCK_SIZE + 2], padding=1)
    case.run(launcher, "normal", arch, dynamic=True)
    for index, (block, token) in {0: (4, 0), 63: (4, 63), 64: (1, 0), 65: (3, 0), 128: (3, 63)}.items():
        assert case.row(index) == gathering.expected_record(cache, block, token, "normal")
    np.testing.assert_array_equal(case.scale_out[129:], [0, 0, gathering.SENTINEL])
    assert (case.k_out[129:] == gathering.SENTINEL).all()
