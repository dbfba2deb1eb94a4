"""The cases of the numerics audit: complete, in the classes that variants assume, and right on real machine code."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sampled

from aotkern.audit.cases import Case, Exact, Near, Sparse, Typed
from aotkern.audit.executors import Emulated
from aotkern.audit.findings import Verdict
from aotkern.audit.numerics import audit
from aotkern.bundle import Bundle
from aotkern.codeobject import elf
from aotkern.drivers.emulator import EmulatorDriver
from aotkern.emulator.disassembler import disassemble
from aotkern.spec import Fixed, Runtime, VariantKey
from aotkern.target import Target
from kernels import reference
from kernels.cases import CASES, attention
from kernels.selectors import SplitPlan, live_splits, slice_bounds
from kernels.serving import LAYERS, split_plans

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinities and NaN are wanted here

TARGETS = ("gfx942", "gfx950", "cuda:90")
EXECUTED = {
    "gfx942": (
        ("decode_partial_legacy", {"NUM_SPLITS": 1, "HAS_EXTRA": True}),
        ("decode_monolithic", {"HAS_SINK": True, "HAS_EXTRA": True}),
        ("decode_reduce", {"NUM_SPLITS": 3, "HAS_SINK": True}),
        ("cp_gather_indexer_quant_cache", {"NUM_TOKENS": 13, "LAYOUT": "shuffle"}),
        ("insert_main_cache_rope", {}),
        ("insert_index_keys", {"LAYOUT": "shuffle", "POWER_OF_TWO": False}),
        ("insert_compressed_cache", {"RATIO": 4}),
    ),
    "gfx950": (
        ("decode_partial_gfx950", {"NUM_SPLITS": 9, "ADAPTIVE": True}),
        ("decode_reduce", {"NUM_SPLITS": 9, "ADAPTIVE": True}),
        ("pack_ragged", {}),
        ("cp_gather_indexer_quant_cache_dynamic", {"LAYOUT": "normal"}),
        ("insert_main_cache", {}),
        ("store_compressor_state", {"RATIO": 128}),
        ("compressed_slots", {"RATIO": 4}),
        ("compress_columns", {"NUM_SPLITS": 4}),
        ("insert_compressed_rows", {}),
        ("insert_compressed_index", {}),
    ),
}


@pytest.fixture(scope="session", autouse=True)
def compile_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


def chosen(arch: str) -> tuple[VariantKey, ...]:
    return tuple(sampled.pick(kernel, arch, **constants) for kernel, constants in EXECUTED[arch])


@pytest.fixture(scope="session", params=EXECUTED)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compile_environment: None) -> Path:
    path = tmp_path_factory.mktemp("bundles") / f"family.{request.param}.aotk"
    return sampled.write_bundle(path, chosen(request.param))


def test_every_declared_kernel_has_cases_and_nothing_else_has() -> None:
    assert set(CASES) == set(sampled.family())


def test_the_machine_code_of_some_variants_is_right(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    report = audit(manifest, CASES, Emulated(bundle, manifest.target.arch), seed=11)
    assert report.verdict is Verdict.CLEAN, "\n".join(finding.message for finding in report.findings)
    assert report.variants == len(manifest.variants)


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_wave_order_and_preload_make_no_difference(bundle: Path, order: Any) -> None:
    manifest = Bundle.open(bundle).manifest
    cheap = {name: CASES[name] for name in ("decode_reduce", "insert_compressed_cache", "compress_columns")}
    driver = EmulatorDriver(wave_order=order, preload=False)
    report = audit(manifest, cheap, Emulated(bundle, manifest.target.arch, driver))
    assert report.outcomes
    assert not report.findings


def test_shipped_kernels_have_no_race_and_miss_no_wait(bundle: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    names = ("decode_reduce", "insert_compressed_cache", "compress_columns", "pack_ragged")
    cheap = {name: CASES[name] for name in names}
    driver = EmulatorDriver(detect_races=True, latest=True)
    report = audit(manifest, cheap, Emulated(bundle, manifest.target.arch, driver))
    assert report.outcomes
    assert not report.findings, "\n".join(finding.message for finding in report.findings)


def test_each_barrier_of_a_shipped_kernel_is_missed(tmp_path: Path, compile_environment: None) -> None:
    """In lockstep, which gives the right numbers without any of them."""
    key = sampled.pick("compress_columns", "gfx950", NUM_SPLITS=4)
    code = sampled.compiled_variant(key).data
    cases = {key.kernel: lambda one, seed: itertools.islice(CASES[key.kernel](one, seed), 1)}
    races = 0
    places = list(barriers(code, key.target))
    for number, place in enumerate(places):
        changed = bytearray(code)
        struct.pack_into("<I", changed, place, 0xBF800000)  # s_nop 0
        path = sampled.write_bundle(tmp_path / f"{number}.aotk", [key], {key: bytes(changed)})
        driver = EmulatorDriver(detect_races=True)
        report = audit(Bundle.open(path).manifest, cases, Emulated(path, "gfx950", driver))
        races += any("RaceError" in outcome.error for outcome in report.outcomes)
    assert races == len(places) > 5


def barriers(code: bytes, target: Target) -> Iterator[int]:
    """Where barriers stand in the file."""
    text = elf.parse(code, "test").section(".text")
    for found in disassemble(code[text.offset : text.offset + text.size], target):
        if found.name == "s_barrier":
            yield text.offset + found.pc


def test_a_planted_wrong_kernel_is_found(tmp_path: Path, compile_environment: None) -> None:
    """The reducer's last store, of another register."""
    key = sampled.pick("decode_reduce", "gfx942", NUM_SPLITS=3, HAS_SINK=True)
    image = bytearray(sampled.compiled_variant(key).data)
    text = elf.parse(bytes(image), "test").section(".text")
    code = disassemble(bytes(image[text.offset : text.offset + text.size]), key.target)
    last = [instruction for instruction in code if "_store_" in instruction.mnemonic][-1]
    image[text.offset + last.pc + 5] ^= 1  # the number of the data register
    path = sampled.write_bundle(tmp_path / "wrong.aotk", [key], {key: bytes(image)})
    report = audit(Bundle.open(path).manifest, CASES, Emulated(path, "gfx942"))
    assert report.verdict is Verdict.FINDINGS


def declared() -> Iterator[Any]:
    for kernel in CASES:
        for target in TARGETS:
            if sampled.keys(kernel, target):
                yield pytest.param(kernel, target, id=f"{kernel}-{target}")


@pytest.mark.parametrize(("kernel", "target"), tuple(declared()))
def test_every_declared_variant_gets_what_it_assumes(kernel: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention.reference, "partial", nothing)  # what comes out is not the question here
    for key in sampled.keys(kernel, target):
        cases = list(CASES[kernel](key, 1))
        assert cases
        for case in cases:
            check(key, case)


def nothing(call: reference.Call, splits: int) -> reference.Partial:
    """Partial results of slices without entries."""
    rows, heads, dim = call.q.shape
    m = np.full((rows, splits, heads), reference.NEG)
    return reference.Partial(m, np.zeros_like(m), np.zeros((*m.shape, dim)))


def check(key: VariantKey, case: Case) -> None:
    """Arguments are complete, and in the types and classes of the key; expectations fit their arguments."""
    run_time = {name: spec for name, spec in key.arguments if not isinstance(spec, Fixed)}
    assert set(case.arguments) == set(run_time)
    assert 1 <= len(case.grid) <= 3
    assert all(type(size) is int and size > 0 for size in case.grid)
    for name, spec in run_time.items():
        assert isinstance(spec, Runtime)
        check_value(name, spec, case.arguments[name])
    assert case.expected
    for name, expected in case.expected.items():
        value = case.arguments[name]
        data = value.data if isinstance(value, Typed) else value
        assert expected.data.shape == data.shape
        if isinstance(expected, Exact):
            assert expected.data.dtype == data.dtype
            assert not same(expected.data, data), "nothing would be seen of a kernel that does nothing"
        else:
            assert isinstance(expected, Near)
            assert expected.data.dtype == np.float64
            assert expected.elsewhere is not None
            assert (expected.elsewhere.dtype, expected.elsewhere.shape) == (data.dtype, data.shape)


def check_value(name: str, spec: Runtime, value: object) -> None:
    """One argument is of its type and class."""
    if spec.is_pointer:
        data, element = (value.data, value.element) if isinstance(value, Typed) else (value, None)
        assert isinstance(data, (np.ndarray, Sparse)), name
        kind, bits = data.dtype.kind, data.dtype.itemsize * 8
        assert (element or f"{'fp' if kind == 'f' else kind}{bits}") == spec.element, name
        if isinstance(data, Sparse):
            assert not spec.small, name
            assert data.nbytes > 1 << 31, name
            assert all(0 <= at <= data.nbytes - piece.nbytes for at, piece in data.pieces.items()), name
            return
        assert data.flags.c_contiguous, name
        assert data.size, name
    elif spec.type == "fp32":
        assert type(value) is float, name
    else:
        assert type(value) is int, name
        assert -(2**31) <= value < 2**31, name
        assert not spec.divisible or value % 16 == 0, name


@pytest.mark.parametrize("kernel", CASES)
def test_inputs_follow_from_the_seed(kernel: str) -> None:
    key = next(sampled.keys(kernel, target)[0] for target in TARGETS if sampled.keys(kernel, target))
    first, again, other = (next(CASES[kernel](key, seed)).arguments for seed in (4, 4, 5))
    assert all(same(first[name], again[name]) for name in first)
    assert not all(same(first[name], other[name]) for name in first)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, Typed):
        one, two = one.data, two.data
    if isinstance(one, Sparse):
        return one.pieces.keys() == two.pieces.keys() and all(same(one.pieces[at], two.pieces[at]) for at in one.pieces)
    return one.tobytes() == two.tobytes() if isinstance(one, np.ndarray) else bool(one == two)


PLANS = {plan for layer in LAYERS for plan in split_plans(layer) if plan.adaptive}


@pytest.mark.parametrize("plan", sorted(PLANS, key=lambda plan: (plan.splits, plan.one_wave)), ids=str)
def test_adaptive_rows_make_every_choice(plan: SplitPlan) -> None:
    chosen = {live_splits(*row, plan) for row in attention.adaptive_lengths(plan)}
    middle = {plan.one_wave} if plan.one_wave > 4 else set()
    assert chosen == {4, plan.splits} | middle


@pytest.mark.parametrize("splits", [1, 2])
def test_few_splits_meet_every_length_around_a_tile_and_a_group(splits: int) -> None:
    rows = attention.static_lengths(splits)
    slices = {end - first for _, extra in rows for first, end in [slice_bounds(extra, 0, splits)]}
    assert slices >= {0, 1, 31, 32, 33, 63, 64, 65}


@pytest.mark.parametrize("splits", [3, 8, 16, 32])
def test_many_splits_leave_some_slices_empty(splits: int) -> None:
    bounds = [
        slice_bounds(extra, split, splits) for _, extra in attention.static_lengths(splits) for split in range(splits)
    ]
    lengths = [max(0, end - first) for first, end in bounds]
    assert max(lengths) == 65
    assert 0 in lengths or splits == 3


def test_cases_import_neither_triton_nor_torch() -> None:
    code = "import sys, kernels.cases; sys.exit(bool({'triton', 'torch'} & set(sys.modules)))"
    root = Path(attention.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
