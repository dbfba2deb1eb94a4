"""The shipped cases notice a page offset that is computed in 32 bits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aotkern.audit import numerics_jobs
from aotkern.audit.cases import Sparse
from kernels.cases.far import Far

pytest.importorskip("triton")
KERNELS = Path(__file__).parents[2] / "kernels"
NARROWED = {
    "gfx950_tile.py": ("(slots // BLOCK_SIZE).to(tl.int64)", "(slots // BLOCK_SIZE)"),
    "legacy_tile.py": ("(slots // block_size).to(tl.int64)", "(slots // block_size)"),
    "record.py": ("page.to(tl.int64) * page_stride", "page.to(tl.int32) * page_stride"),
    "gather.py": ("page = block.to(tl.int64)", "page = block"),
    "compressor.py": ("mask=live, other=0).to(tl.int64)", "mask=live, other=0)"),
    "compressor_state.py": ("(slot // state_block_size).to(tl.int64)", "(slot // state_block_size)"),
    "indexer_writer.py": ("// block_size).to(tl.int64) * page_stride", "// block_size) * page_stride"),
}
"""The address computations in 64 bits, by the file in which they stand, and the same in 32 bits."""
BUILT = {
    "gfx942": (
        "decode_partial_legacy*main_cache:?u8:D,*HAS_EXTRA=False*NUM_SPLITS=1,*",
        "decode_monolithic*main_cache:?u8:D,*HAS_SINK=False,HAS_EXTRA=False*",
        "insert_main_cache?hip*cache:?u8:D,*",
        "cp_gather_indexer_quant_cache_dynamic*k_cache:?u8:D,*normal*",
        "store_compressor_state*kv:?bf16:D,*RATIO=128,*",
        "insert_index_keys*cache:?u8:D,*normal*POWER_OF_TWO=False*",
    ),
    "gfx950": (
        "decode_partial_gfx950*HAS_EXTRA=False*NUM_SPLITS=1,*",
        "insert_compressed_cache*state:?fp32:D,*norm_weight:?bf16:D,*RATIO=128,*",
        "insert_compressed_index*state:?fp32:D,*norm_weight:?bf16:D,*",
        "insert_compressed_rows*norm_weight:?bf16:D,*cache:?u8:D,*",
        "compress_columns*state:?fp32:D,*NUM_SPLITS=1?*",
    ),
}


@pytest.mark.parametrize("target", BUILT)
def test_page_offsets_in_32_bits_are_found_in_every_family(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in NARROWED.items():
        source = (folder / name).read_text("utf-8")
        assert source.count(before) == 1, name
        (folder / name).write_text(source.replace(before, after), "utf-8")
    command = [sys.executable, "-m", "aotkern", "build", str(folder), "-t", target, "--name", "far", "--no-cache"]
    only = [word for pattern in BUILT[target] for word in ("--only", pattern)]
    subprocess.run([*command, *only, "--jobs", "1", "-o", str(tmp_path)], check=True, capture_output=True)
    setting = numerics_jobs.Setting(tmp_path / f"far.{target}.aotk", "kernels.cases", orders=("lockstep",))
    report = numerics_jobs.audit(setting, most=1)
    assert {kernel for kernel, counts in report.objects.items() if counts.run} >= {
        pattern.partition("*")[0].partition("?")[0] for pattern in BUILT[target]
    }
    noticed = {finding.subject for finding in report.findings}
    assert {outcome.key for outcome in report.outcomes} == noticed


def test_pages_lie_apart_and_slots_follow_them() -> None:
    pages = np.arange(4 * 48, dtype=np.uint8).reshape(4, 48)
    far = Far.of(4, 48)
    assert far.numbers[0] == 0
    assert [number * 48 > 1 << 31 for number in far.numbers] == [False, True, True, True]
    assert [number * 48 > 1 << 32 for number in far.numbers] == [False, False, True, True]
    memory = far.memory(pages)
    assert isinstance(memory, Sparse)
    assert memory.shape == (far.count, 48)
    assert (memory.pieces[far.numbers[2] * 48] == pages[2]).all()
    slots = np.array([-1, 0, 5, 6, 23, 24, 30, 2**31 - 1], np.int32)
    end = far.count * 6
    moved = [-1, 0, 5, far.numbers[1] * 6, far.numbers[3] * 6 + 5, end, end + 6, 2**31 - 1]
    assert far.slots(slots, 6).tolist() == moved
    assert far.pages(np.array([-1, 0, 3], np.int32)).tolist() == [-1, 0, far.numbers[3]]
