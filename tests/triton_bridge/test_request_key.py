"""What decides code is in the key: functions of one name, exact types of constants, settings of the compiler."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from serving import FP32, built, manifest_keys

import aotkern
from aotkern.arguments import Pointer
from aotkern.errors import MissError
from aotkern.target import Target
from aotkern.triton_bridge.paper import PaperTensor, paper_device
from aotkern.triton_bridge.recording import record

triton = pytest.importorskip("triton")

import key_kernels as kernels  # noqa: E402
from key_one import act as twice  # noqa: E402
from key_two import act as more  # noqa: E402

TARGETS = tuple(map(Target.parse, ("gfx942", "cuda:90")))
I32 = PaperTensor("int32")
STRIDES = kernels.Strides(4, 5)
PAIRS = ((twice, more), (more, twice), (twice, twice))
TYPED = ((STRIDES, kernels.Mode.FAST, 4), (STRIDES, kernels.Mode.NONE, 104), ((4, 5), 1, 104), (STRIDES, 1, 104))


def fresh() -> None:
    """Empty Triton's tables, which take for equal what Python calls equal."""
    for kernel in kernels.KERNELS:
        kernel.device_caches.clear()


@contextmanager
def ieee():
    """A knob that is set in Python, as a program would."""
    with triton.knobs.language.scope():
        triton.knobs.language.fp32_default = "ieee"
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """Bundles for gfx942 and cuda:90 of calls that differ in nothing but identity, type or setting."""
    folder = tmp_path_factory.mktemp("key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        patch.setenv("TRITON_DISABLE_LINE_INFO", "1")
        with record() as found:
            with paper_device(TARGETS[0]):
                for pair in PAIRS:
                    kernels.composed[(1,)](FP32, FP32, *pair)
                for s, mode, _ in TYPED:
                    fresh()
                    kernels.typed[(1,)](I32, s, mode)
            with paper_device(TARGETS[1]), ieee():
                kernels.product[(1,)](FP32, FP32, FP32, 32)
        paths = {path.name: path for path in built(found[0], folder / "bundles", TARGETS)}
    return paths["served.gfx942.aotk"], paths["served.sm90.aotk"]


@pytest.fixture
def install():
    """Install bundles for one test."""
    running = []

    def installed(path, **options):
        running.append(aotkern.install(path, **options))
        return running[-1]

    fresh()
    yield installed
    for installation in running:
        installation.remove()
    fresh()


def test_functions_of_one_name_are_loaded_as_what_they_are(made):
    bundle = aotkern.load(made[0], device="emulator:gfx942")
    x = np.array([3], np.float32)
    for pair, expected in zip(PAIRS, (106, 206, 12), strict=True):
        o = np.zeros(1, np.float32)
        bundle["key_kernels.composed"][(1,)](x, o, *pair)
        assert o[0] == expected
    with pytest.raises(MissError, match=r"G: &key_two:act#\w+ -> &key_one:|&key_one:act#\w+ -> &key_two:"):
        bundle["key_kernels.composed"][(1,)](x, o, more, more)


def test_named_tuples_and_enums_are_loaded_as_what_they_are(made):
    bundle = aotkern.load(made[0], device="emulator:gfx942")
    for s, mode, expected in TYPED:
        o = np.zeros(1, np.int32)
        bundle["key_kernels.typed"][(1,)](o, s, mode)
        assert o[0] == expected
    for s, mode in (((4, 5), kernels.Mode.FAST), (STRIDES, True), (STRIDES, 0)):
        with pytest.raises(MissError, match="no prebuilt variant fits"):
            bundle["key_kernels.typed"][(1,)](o, s, mode)


def test_a_program_is_served_each_of_them(made, install):
    installation = install(made[0])
    with paper_device(TARGETS[0]):
        for pair in PAIRS:
            assert type(kernels.composed[(1,)](FP32, FP32, *pair)).__name__ == "PrebuiltKernel"
        for s, mode, _ in TYPED:
            fresh()
            assert type(kernels.typed[(1,)](I32, s, mode)).__name__ == "PrebuiltKernel"
        with pytest.raises(MissError):
            kernels.composed[(1,)](FP32, FP32, more, more)
    assert sum(installation.counts.hits.values()) == len(PAIRS) + len(TYPED)


def test_preload_makes_the_constants_again(made, install):
    installation = install(made[0])
    with paper_device(TARGETS[0]):
        assert installation.preload(kernels.typed) == len(TYPED)
        assert installation.preload(kernels.composed) == len(PAIRS)


def test_a_variant_is_built_and_served_with_the_setting_that_was_recorded(made, install):
    (key,) = [text for text in manifest_keys(made[1]) if text.startswith("key_kernels.product")]
    assert 'TRITON_F32_DEFAULT="ieee"' in key
    install(made[1])
    with paper_device(TARGETS[1]):
        with ieee():
            served = kernels.product[(1,)](FP32, FP32, FP32, 32)
        fresh()
        expected = r"TRITON_F32_DEFAULT \(knobs\.language\.fp32_default\): \"ieee\", as it was built; None here"
        with pytest.raises(MissError, match=expected):
            kernels.product[(1,)](FP32, FP32, FP32, 32)
    assert type(served).__name__ == "PrebuiltKernel"


def test_the_served_code_is_that_of_the_setting(made, install, monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    with paper_device(TARGETS[1]), ieee():
        own = kernels.product[(1,)](FP32, FP32, FP32, 32)
        assert "tf32" not in own.asm["ptx"]
        fresh()
        install(made[1])
        assert kernels.product[(1,)](FP32, FP32, FP32, 32).asm["cubin"] == own.asm["cubin"]


@pytest.mark.parametrize("how", ["variable", "knob"])
def test_a_setting_that_changes_later_counts_for_the_next_specialisation(made, install, how):
    installation = install(made[1])
    with paper_device(TARGETS[1]), triton.knobs.language.scope():
        triton.knobs.language.fp32_default = "ieee"
        kernels.product[(1,)](FP32, FP32, FP32, 32)
        if how == "knob":
            triton.knobs.language.fp32_default = "tf32"
        else:
            del triton.knobs.language.fp32_default
            os.environ["TRITON_F32_DEFAULT"] = "tf32"  # `scope` takes it back, as it does what a knob writes there
        # What Triton has in its table is launched again, whatever the knob says: nobody is asked.
        kernels.product[(1,)](FP32, FP32, FP32, 32)
        with pytest.raises(MissError, match='"tf32" here'):
            kernels.product[(1,)](FP32, FP32, FP32, 64)
    assert sum(installation.counts.hits.values()) == 1


def test_a_setting_can_be_named_where_no_triton_is(made):
    bundle = aotkern.load(made[1], device="null:cuda:90")
    tensors = [Pointer(4096, "fp32", 1 << 20)] * 3
    kernel = bundle["key_kernels.product"]
    kernel[(1,)](*tensors, 32)
    kernel[(1,)](*tensors, 32, TRITON_F32_DEFAULT="ieee")
    for other in (None, "tf32"):
        with pytest.raises(MissError, match="TRITON_F32_DEFAULT"):
            kernel[(1,)](*tensors, 32, TRITON_F32_DEFAULT=other)


def compiled(function, signature, constants, attributes, target):
    """A direct compile, as Inductor asks for one."""
    from triton.compiler import ASTSource

    return triton.compile(ASTSource(function, signature, constants, attributes), target)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({(0,): [["tt.divisibility", 8]]}, r"o: expected attributes among .*, found tt\.divisibility 8"),
        ({(0,): [["tt.contiguity", 16]]}, r"found tt\.contiguity 16"),
        ({(0,): [["tt.pointer_range", 64]]}, r"found tt\.pointer_range 64"),
    ],
    ids=["a smaller divisor", "another attribute", "another range"],
)
def test_attributes_are_read_with_their_values(made, install, attributes, said):
    from triton.backends.compiler import GPUTarget

    install(made[0])
    signature = {"o": "*i32", "S": "constexpr", "M": "constexpr"}
    constants = {(1,): STRIDES, (2,): kernels.Mode.FAST}
    with paper_device(TARGETS[0]), pytest.raises(MissError, match=said):
        compiled(kernels.typed, signature, constants, attributes, GPUTarget("hip", "gfx942", 64))


def test_a_value_that_is_constant_and_passed_is_refused(made, install):
    from triton.backends.compiler import GPUTarget

    install(made[0])
    signature = {"o": "*i32", "S": "constexpr", "M": "i32"}
    with paper_device(TARGETS[0]), pytest.raises(MissError, match=r"a constant or a run-time value .* both for M"):
        compiled(kernels.typed, signature, {(1,): (1, 2), (2,): 7}, {}, GPUTarget("hip", "gfx942", 64))


def test_another_wave_size_is_another_target(made, install):
    from triton.backends.compiler import GPUTarget

    install(made[0])
    with paper_device(TARGETS[0]), pytest.raises(MissError, match="waves of 64 lanes, found 32"):
        compiled(
            kernels.typed,
            {"o": "*i32", "S": "constexpr", "M": "constexpr"},
            {(1,): STRIDES, (2,): kernels.Mode.FAST},
            {},
            GPUTarget("hip", "gfx942", 32),
        )
