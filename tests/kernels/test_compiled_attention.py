"""The attention kernels compiled ahead of time: registers, LDS, instructions, and how many variants are declared."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aotkern.audit.policy import Policy
from aotkern.build import registry
from aotkern.build.compiler import Compiled, compile_variant
from aotkern.build.environment import pinned
from aotkern.codeobject import section_bytes
from aotkern.codeobject.facts import Role
from aotkern.emulator.disassembler import disassemble
from aotkern.spec import VariantKey, expand
from aotkern.target import Target
from kernels import gfx950_partial, legacy_partial, monolithic, ragged_pack, reducer, serving
from kernels.launchers import LAUNCH_OPTIONS

MODULES = (gfx950_partial, legacy_partial, monolithic, ragged_pack, reducer)


@cache
def loaded() -> dict[str, registry.LoadedKernel]:
    return {kernel.declaration.name: kernel for kernel in registry.load([registry.Source(m.__name__) for m in MODULES])}


def keys(kernel: str, target: str) -> tuple[VariantKey, ...]:
    return expand(loaded()[kernel].declaration, loaded()[kernel].parameters, Target.parse(target))


def compiled(kernel: str, target: str, monkeypatch: pytest.MonkeyPatch, folder: Path, **constants: Any) -> Compiled:
    """The first declared variant with these constants, compiled."""
    for name, value in {**pinned(), "TRITON_CACHE_DIR": str(folder), "TRITON_ALWAYS_COMPILE": "1"}.items():
        monkeypatch.setenv(name, value)
    wanted = [f"{name}={value!r}" for name, value in constants.items()]
    found = [key for key in keys(kernel, target) if all(text in str(key) for text in wanted)]
    assert found, f"no variant has {wanted}"
    return compile_variant(loaded()[kernel], found[0])


def instructions(code: Compiled, target: str) -> Counter[str]:
    names = [section.name for section in code.code.sections if section.role is Role.CODE]
    text = b"".join(section_bytes(code.data, name, target) for name in names)
    return Counter(instruction.name for instruction in disassemble(text, Target.parse(target)))


@pytest.mark.parametrize(
    "constants",
    [
        {"NUM_SPLITS": 32, "ADAPTIVE": True, "HEADS": 16, "EXTRA_BLOCK_SIZE": 2, "TRUST_EXTRA": True},
        {"NUM_SPLITS": 8, "ADAPTIVE": False, "HEADS": 8, "EXTRA_BLOCK_SIZE": 64, "TRUST_EXTRA": False},
    ],
)
def test_gfx950_partial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, constants: dict[str, Any]) -> None:
    code = compiled("decode_partial_gfx950", "gfx950", monkeypatch, tmp_path, HAS_EXTRA=True, **constants)
    held = code.code.resources
    assert (held.vgpr_spills, held.sgpr_spills, held.scratch_bytes) == (0, 0, 0)
    assert held.vgprs <= 256  # two waves on a SIMD
    assert held.lds_bytes + code.launch.shared == 32_768
    used = instructions(code, "gfx950")
    assert used["v_mfma_f32_16x16x32_bf16"] > 0
    # A tile loads three NoPE chunks and the rotated dims in 16-byte pieces, and stands in the code five times.
    assert used["global_load_dwordx4"] >= 5 * 4


def test_legacy_partial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = compiled("decode_partial_legacy", "gfx942", monkeypatch, tmp_path, NUM_SPLITS=8, HAS_EXTRA=True)
    held = code.code.resources
    assert (held.vgpr_spills, held.scratch_bytes) == (0, 0)
    assert held.sgpr_spills <= 16  # to lanes of a vector register; see audits/policy.toml
    assert held.lds_bytes + code.launch.shared <= 65_536
    used = instructions(code, "gfx942")
    assert used["v_mfma_f32_16x16x16_bf16"] > 0
    assert used["global_load_dwordx4"] + used["buffer_load_dwordx4"] > 0


@pytest.mark.parametrize(("target", "adaptive"), [("gfx942", False), ("gfx950", True)])
def test_reducer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, adaptive: bool) -> None:
    code = compiled("decode_reduce", target, monkeypatch, tmp_path, NUM_SPLITS=16, ADAPTIVE=adaptive, HAS_SINK=True)
    assert (code.code.resources.vgpr_spills, code.code.resources.scratch_bytes, code.launch.shared) == (0, 0, 0)


def test_the_captured_keys_are_declared() -> None:
    static = {(splits, False) for splits in (1, 2, 3, 4, 32)}
    adaptive = {(splits, True) for splits in (5, 6, 7, 8, 9, 10, 12, 16, 20, 32)}
    assert static | adaptive <= set(serving.reducer_plans())
    assert {splits for splits, is_adaptive in serving.reducer_plans() if not is_adaptive} == set(range(1, 33))
    assert {plan.splits for plan in serving.split_plans(serving.SWA)} == {1, 2, 3, 4, 32}
    assert {plan.splits for plan in serving.split_plans(serving.C4A)} >= {*range(1, 9), 16, 32}


@pytest.mark.parametrize(
    ("kernel", "target", "count"),
    [
        # heads x (SWA plans + 2 ways of reading x (C4A plans + C128A plans))
        ("decode_partial_gfx950", "gfx950", 2 * (5 + 2 * (11 + 42))),
        ("decode_partial_gfx950", "gfx942", 0),
        # splits x extra x storage
        ("decode_partial_legacy", "gfx942", 16 * 2 * 2),
        ("decode_partial_legacy", "gfx950", 0),
        ("decode_monolithic", "gfx942", 2 * 2 * 2),
        ("decode_reduce", "gfx942", 16 * 2),
        ("decode_reduce", "gfx950", (32 + 10) * 2),
        ("pack_ragged", "gfx950", 2),
    ],
)
def test_variant_counts(kernel: str, target: str, count: int) -> None:
    assert len(keys(kernel, target)) == count


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "cuda:90"])
def test_every_variant_is_launched_with_the_options_it_was_built_with(target: str) -> None:
    for kernel, options in LAUNCH_OPTIONS.items():
        for key in keys(kernel, target):
            assert {name: constant.value for name, constant in key.options} == options


def test_the_release_policy_bounds_each_attention_kernel() -> None:
    policy = Policy.read(Path(__file__).parents[2] / "audits" / "policy.toml")
    bounded = {rule.kernel for step in policy.resources for rule in step.rules}
    assert bounded >= {"decode_partial_gfx950", "decode_partial_legacy", "decode_reduce"}


def test_host_modules_need_neither_triton_nor_torch() -> None:
    import subprocess

    modules = "decode, decode_call, launchers, layout, provenance, ragged, selectors, serving"
    code = (
        f"import sys; from kernels import {modules}; sys.exit(bool({{'triton', 'torch', 'numpy'}} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0
