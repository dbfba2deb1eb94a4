"""Record, build, run: an unchanged program on a device on paper, served without a compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import served_kernels as kernels
from serving import FP32, TARGETS, built, launching, manifest_keys, recorded

import aotkern
from aotkern.bundle import Bundle
from aotkern.errors import InputError, IntegrityError, MissError
from aotkern.lock import Lock
from aotkern.target import Target
from aotkern.triton_bridge.paper import PaperTensor

tl = pytest.importorskip("triton").language


def program() -> None:
    """Every kind of argument."""
    ends = (1, 16, 17, 2**31 - 1, 2**31, 2**63)
    for n in ends:
        kernels.scale[(1,)](FP32, FP32, n, BLOCK=64)
    kernels.scale[(1,)](PaperTensor("float32", 4100), FP32, 17, BLOCK=64)
    kernels.scale[(1,)](PaperTensor("float32", storage=2**31), FP32, 17, BLOCK=64, num_warps=8)
    kernels.scalars[(1,)](FP32, True, 0.5, None, 1, 2.0)
    kernels.scalars[(1,)](FP32, False, 1.5, None, 2**40, 2)
    kernels.pair[(1,)](FP32, (1, (16, 3)))
    kernels.pair[(1,)](FP32, (17, (16, 5)))
    for value in (0, 0.0, -0.0, False, float("nan"), None):
        kernels.fixed[(1,)](FP32, value, tl.float32, "b", kernels.twice, (2, 3))
    kernels.fixed[(1,)](FP32, None, tl.bfloat16, "a", kernels.twice, (2, 3))
    kernels.fixed[(1,)](FP32, None, tl.bfloat16, "a", kernels.thrice, (2,))
    kernels.unspecialised[(1,)](FP32, 1)
    for n in (64, 17):
        kernels.tuned[(1,)](FP32, n)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[object, list[Path]]:
    """The trace of `program` on both targets, and the bundles of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        trace = recorded(program)
    return trace, built(trace, tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def install():
    """`aotkern.install`, undone after the test; Triton's tables are empty before it."""
    kernels.forget()
    done = []

    def install_(bundles, **options) -> aotkern.Installation:
        done.append(aotkern.install(bundles, **options))
        return done[-1]

    yield install_
    for installation in reversed(done):
        installation.remove()
    kernels.forget()


@pytest.mark.parametrize("target", ["gfx942", "cuda:90"])
def test_every_kind_of_argument_is_served_without_a_compile(made, install, target, tmp_path):
    installation = install(made[1])
    with launching(target) as device:
        program()
    counts = installation.counts
    assert not counts.misses
    assert not counts.untuned
    assert sum(counts.tuned.values()) == 2
    asked = {row.key for row in made[0].recorded if row.key.target == Target.parse(target) and not row.trial}
    assert sum(counts.hits.values()) == len(asked) + 2, "each once, and the two that only benchmarks asked for"
    assert len(device.signatures) == 23
    assert not (tmp_path / "triton").exists(), "nothing was compiled, so nothing was cached"


@pytest.mark.parametrize("target", ["gfx942", "cuda:90"])
def test_a_served_kernel_is_what_triton_would_have_compiled(made, install, target, monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    call = (FP32, FP32, 17)
    with launching(target):
        compiled = kernels.scale[(1,)](*call, BLOCK=64)
        kernels.forget()
        install(made[1])
        served = kernels.scale[(1,)](*call, BLOCK=64)
    assert type(served).__name__ == "PrebuiltKernel"
    only_some_versions = {"_module_pid"}
    assert vars(served).keys() - only_some_versions == vars(compiled).keys() - only_some_versions
    assert served.kernel == compiled.kernel
    assert served.packed_metadata == compiled.packed_metadata
    expected, found = compiled.metadata._asdict(), served.metadata._asdict()
    # Where a back end has no scratch memory, some versions say nothing of it.
    unsaid = {"global_scratch_size": 0, "global_scratch_align": 1}
    assert {**found, "hash": ""} == {**unsaid, **expected, "hash": ""}
    assert served.src.signature == compiled.src.signature
    assert served.src.constants == compiled.src.constants


def test_launch_hooks_see_every_launch(made, install):
    from triton import knobs

    install(made[1])
    seen = []
    knobs.runtime.launch_enter_hook = enter = lambda metadata: seen.append(metadata.get()["name"])
    try:
        with launching("gfx942"):
            kernel = kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)
            assert kernel.launch_metadata((1,), 0, FP32).get()["name"] == "scale"
    finally:
        knobs.runtime.launch_enter_hook = None
    assert enter is not None


@pytest.mark.parametrize("mode", ["error", "warn", "jit"])
def test_a_miss_does_what_was_asked(made, install, mode, capsys):
    installation = install(made[1], on_miss=mode)
    unseen = (FP32, PaperTensor("float32", 4100), 16)
    with launching("gfx942") as device:
        if mode == "error":
            with pytest.raises(MissError) as caught:
                kernels.scale[(1,)](*unseen, BLOCK=64)
            assert caught.value.nearest.startswith("served_kernels.scale[hip:gfx942](")
            assert caught.value.problems
        else:
            kernels.scale[(1,)](*unseen, BLOCK=64)
    assert installation.counts.misses == {"served_kernels.scale": 1}
    reason = next(iter(installation.counts.reasons))
    assert "differs in: out: 16-byte aligned -> not 16-byte aligned (address 0x1004)" in reason
    assert len(device.signatures) == (mode != "error")
    assert ("Triton compiles: " in capsys.readouterr().err) is (mode == "warn")


def test_a_large_storage_is_never_served_by_32_bit_offsets(made, install):
    install(made[1])
    with launching("gfx942"), pytest.raises(MissError, match="storage"):
        kernels.scale[(1,)](PaperTensor("float32", storage=2**31), FP32, 17, BLOCK=64)


def test_an_option_that_was_not_built_is_a_miss(made, install):
    install(made[1])
    with launching("gfx942"), pytest.raises(MissError, match="num_warps: 4 -> 2"):
        kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64, num_warps=2)


def test_a_default_that_the_environment_flips_is_a_miss(made, install, monkeypatch):
    install(made[1])
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    with launching("gfx942"), pytest.raises(MissError, match="enable_fp_fusion: True -> False"):
        kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)


def test_another_target_is_refused_with_those_that_are_there(made, install):
    install(made[1])
    with (
        launching("gfx950"),
        pytest.raises(MissError, match=r"no bundle for hip:gfx950 \(there are bundles for: hip:gfx942"),
    ):
        kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)


def test_a_function_constant_is_part_of_the_identity(made, install, monkeypatch):
    install(made[1])
    with (
        launching("gfx942"),
        pytest.raises(MissError, match=r"FN: &served_kernels:\w+#\w+ -> &served_kernels:unspecialised#"),
    ):
        kernels.fixed[(1,)](FP32, None, tl.bfloat16, "a", kernels.unspecialised, (2,))


def test_a_tuning_key_that_was_not_recorded_is_an_explained_miss(made, install):
    installation = install(made[1])
    with launching("gfx942"), pytest.raises(MissError, match=r"no configuration is known for the tuning key \(128, "):
        kernels.tuned[(1,)](FP32, 128)
    assert installation.counts.untuned == {"served_kernels.tuned": 1}


def test_a_tuning_key_that_was_not_recorded_takes_the_usual_configuration(made, install):
    installation = install(made[1], untuned="usual")
    with launching("gfx942") as device:
        kernels.tuned[(1,)](FP32, 128)
    assert kernels.tuned.best_config.kwargs == {"B": 32}
    assert installation.counts.hits == {"served_kernels.tuned": 1}
    assert len(device.signatures) == 1, "a launch, and no benchmark"


def test_kernels_that_met_a_device_before_are_served(made, install):
    with launching("gfx942"):
        kernels.scale[(1,)](FP32, FP32, 16, BLOCK=64)
        installation = install(made[1])
        kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)
        assert installation.counts.hits == {"served_kernels.scale": 1}
        installation.remove()
        kernels.scale[(1,)](FP32, FP32, 1, BLOCK=64)
    assert installation.counts.hits == {"served_kernels.scale": 1}


def test_what_another_wrapped_meanwhile_lets_everything_pass(made, install):
    import triton.compiler.compiler as compiler

    real = compiler.compile
    installation = install(made[1])
    inner = compiler.compile

    def outer(*args, **kwargs):
        return inner(*args, **kwargs)

    compiler.compile = outer
    try:
        installation.remove()
        with launching("gfx942"):
            kernels.scale[(1,)](FP32, FP32, 17, BLOCK=128)
        assert not installation.counts.misses
        again = install(made[1])
        with launching("gfx942"):
            kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)
        assert again.counts.hits, "the wrapper that was left behind is in nobody's way"
        again.remove()
    finally:
        compiler.compile = real


def test_a_direct_compile_is_served_too(made, install):
    import triton
    from triton.backends.compiler import GPUTarget

    installation = install(made[1])
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    aligned = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    source = triton.compiler.ASTSource(kernels.scale, signature, {"BLOCK": 64}, {(0,): aligned, (1,): aligned})
    with launching("gfx942"):
        kernel = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4})
    assert type(kernel).__name__ == "PrebuiltKernel"
    assert installation.counts.hits == {"served_kernels.scale": 1}


def test_preload_loads_every_variant_once(made, install, monkeypatch):
    from triton import knobs

    # A kernel whose module is None, as on this device, is loaded again for every launch that a hook is to hear of.
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", None)
    install_ = install(made[1])
    with launching("gfx942") as device:
        loaded = []
        device.utils.load_binary = lambda *args: loaded.append(args[0]) or (None, 0, 0, 0, 1024)
        assert install_.preload(kernels.scale) == len(loaded) == 7
        assert install_.preload(kernels.tuned) == 2
        before = len(loaded)
        kernels.scale[(1,)](FP32, FP32, 17, BLOCK=64)
        assert len(loaded) == before
        with pytest.raises(MissError, match="no bundle has this kernel"):
            install_.preload(kernels.twice)


def test_what_is_served_computes_what_the_kernel_says(made):
    numpy = pytest.importorskip("numpy")
    x = numpy.arange(100, dtype=numpy.float32)
    out = numpy.zeros_like(x)
    bundle = aotkern.load(made[1][0], device="emulator:gfx942")
    bundle["served_kernels.scale"][(2,)](x, out, 100, BLOCK=64, num_warps=4)
    assert numpy.array_equal(out, 2 * x)


def test_widening_serves_what_was_not_seen(install, tmp_path):
    target = TARGETS[:1]
    trace = recorded(lambda: kernels.scale[(1,)](FP32, FP32, 16, BLOCK=64), target)
    (path,) = built(trace, tmp_path, target, widen=True)
    classes = [key.partition("(")[2].partition(",BLOCK")[0] for key in manifest_keys(path)]
    assert classes == [
        "x:*fp32,out:*fp32,n:i32",
        "x:*fp32:D,out:*fp32:D,n:i32",
        "x:*fp32:DS,out:*fp32:DS,n:i32",
        "x:*fp32:DS,out:*fp32:DS,n:i32:D",
    ]
    kernels.forget()
    installation = install(path)
    with launching("gfx942") as device:
        for n in (1, 16, 17, 48):
            kernels.scale[(1,)](FP32, FP32, n, BLOCK=64)
        kernels.scale[(1,)](PaperTensor("float32", 4100, 2**31), FP32, 1, BLOCK=64)
        with pytest.raises(MissError, match="out of its range"):
            kernels.scale[(1,)](FP32, FP32, 2**31, BLOCK=64)
    assert installation.counts.hits == {"served_kernels.scale": 4}
    assert [signature["n"] for signature in device.signatures] == ["i32"] * 5, "1 is a parameter of the general binary"


def test_arguments_of_install_are_checked(made, tmp_path):
    with pytest.raises(InputError, match="on_miss in error, warn, jit"):
        aotkern.install(made[1], on_miss="ignore")
    with pytest.raises(InputError, match="none found"):
        aotkern.install("no_such_bundle")
    lock = tmp_path / "lock.json"
    Lock.of([Bundle.open(made[1][0])]).write(lock)
    with pytest.raises(IntegrityError, match="a bundle in the lock file"):
        aotkern.install(made[1], locked=lock)
