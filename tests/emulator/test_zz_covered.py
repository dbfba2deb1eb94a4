"""Every kind of instruction in the shipped kernels has an opcode test.

The list of tested kinds stands in `covered.txt`. It is held from both sides: kernels that bring another kind fail, and
so does a kind that no test of this folder runs (when all of them ran in this process, before this file).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bench
import pytest

from aotkern.build.compiler import compile_variant
from aotkern.build.registry import Source, load
from aotkern.emulator.control import WITHOUT_EFFECT
from aotkern.emulator.disassembler import disassemble
from aotkern.emulator.kernel import Kernel
from aotkern.emulator.table import BEHAVIOURS
from aotkern.spec import expand
from aotkern.target import Target

COVERED = frozenset((Path(__file__).parent / "covered.txt").read_text().split())
MODULES = ["compressed_writer", "compressor_state", "gather", "gfx950_partial", "indexer_writer", "legacy_partial",
           "main_writer", "monolithic", "ragged_pack", "reducer"]  # fmt: skip
OPCODE_TESTS = ["test_compare", "test_control", "test_convert", "test_global_memory", "test_lanes", "test_lds",
                "test_matrix", "test_packed", "test_scalar", "test_vector_float", "test_vector_integer"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_shipped_kernels_bring_no_kind_without_a_test(module: str, arch: str) -> None:
    """The first and the last declared variant of each kernel stand for all: they differ in every constant."""
    target = Target.parse(arch)
    for loaded in load([Source(f"kernels.{module}")]):
        keys = expand(loaded.declaration, loaded.parameters, target)
        for key in {keys[0], keys[-1]} if keys else ():
            kernel = Kernel.read(compile_variant(loaded, key).data)
            start, end = kernel.text
            found = {i.name for i in disassemble(kernel.image[start:end], target)}
            assert found <= COVERED, (str(key), sorted(found - COVERED))


def test_each_kind_on_the_list_is_run_by_a_test() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or any(name not in sys.modules for name in OPCODE_TESTS):
        pytest.skip("the opcode tests did not all run in this process")
    assert frozenset() == COVERED - bench.EXECUTED


def test_the_list_names_only_what_the_emulator_knows() -> None:
    ends = {name for name in COVERED if name.startswith(("s_cbranch", "s_branch", "s_endpgm", "s_barrier", "s_getpc"))}
    ends |= {"s_setpc_b64", "s_swappc_b64"} & COVERED
    assert COVERED - ends <= BEHAVIOURS.keys()
    assert WITHOUT_EFFECT & COVERED
