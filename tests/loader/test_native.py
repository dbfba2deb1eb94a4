"""The C extension against the Python way: the same launches, the same errors, for generated calls."""

from __future__ import annotations

import gc
import itertools
import threading
from collections import Counter

import pytest
from bundles import SCALE, Spec, compile_key, make, opened, pack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stub_tensors import CPU, PINNED, ROCM, StubTensor

from aotkern.drivers.hip import open_driver
from aotkern.errors import AotkernError, CaptureError, DriverError, MissError
from aotkern.loader import native
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.settings import Settings
from aotkern.spec import Parameter, VariantKey

SPECS = (
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32:D,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32,out:*fp32,n:i64,factor:fp32,BLOCK=128"),
    Spec("x:*fp16:DS,out:*fp16:DS,n:i32,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:DS,out:*fp32:DS,n=1,factor:fp32,BLOCK=128"),
    Spec("x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=64"),
)

LADDER = (
    "x:*fp32:DS,out:*fp32:DS,n:i32:D",
    "x:*fp32:D,out:*fp32:DS,n:i32:D",
    "x:*fp32:D,out:*fp32:D,n:i32",
    "x:*fp32,out:*fp32,n:i32:D",
)
"""Assumptions about each argument that differ in what is held of its value alone, which C sums up; not for all values
does one of them hold."""


def ladder(compile_kernel, blocks: tuple[int, ...]) -> bytes:
    """A bundle of these for each value of BLOCK, which all have the code for 128."""
    rows = []
    for arguments in LADDER:
        keys = [f"scale[hip:gfx942]({arguments},factor:fp32,BLOCK={block}){{num_warps=4}}" for block in (128, *blocks)]
        first, *others = (VariantKey.parse(key) for key in keys)
        compiled = compile_key(compile_kernel, "scale", first)
        rows += [(key, compiled, {}) for key in others]
    return pack("gfx942", rows, {"scale": SCALE})


@pytest.fixture(scope="session")
def data(compile_kernel) -> bytes:
    return make(compile_kernel, "gfx942", SPECS)


@pytest.fixture(scope="session")
def tables(compile_kernel, data) -> dict[str, bytes]:
    """A table of each sort that C looks into in another way; the wide one's bit sets are of two words."""
    return {
        "mixed": data,
        "ladder": ladder(compile_kernel, (64, 128)),
        "wide": ladder(compile_kernel, (64, 128, *range(1, 17))),
    }


def load(hip, data, monkeypatch, module, **changes) -> LoadedBundle:
    monkeypatch.setattr(native, "_extension", lambda: module)
    values = {"device": None, "on_miss": "error", "fallback": None, "hooks": Hooks(), **changes}
    bundle = LoadedBundle(opened(data), open_driver(Settings(hip_library=hip.path)), **values)
    for name in bundle:
        bundle[name]
    return bundle


def tensors(device: int = 0):
    return StubTensor(0x10000, device=device), StubTensor(0x20000, device=device)


@pytest.fixture
def bundle(hip, data, monkeypatch, extension) -> LoadedBundle:
    return load(hip, data, monkeypatch, extension)


def c_launches(bundle) -> int:
    return sum(bundle["scale"].counted()[0].values())


def test_second_call_is_launched_by_the_extension(bundle, hip):
    for _ in range(3):
        bundle["scale"][(3,)](*tensors(), 384, 0.5)
    assert c_launches(bundle) == 2
    assert bundle.counters().launches == 3
    launches = [line for line in hip.log if line.startswith("launch")]
    assert launches[0] == launches[1] == launches[2]


addresses = st.sampled_from([0, 0x10000, 0x10004, 0x10008, 0x20000])
stubs = st.builds(
    StubTensor,
    addresses,
    st.sampled_from(["float32", "float32", "float16", "int32", "bfloat16"]),
    st.sampled_from([0, 4096, 2**31 - 1, 2**31]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([ROCM, ROCM, ROCM, PINNED, CPU]),
)
integers = st.sampled_from([0, 1, 2, 16, 17, -16, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, True])
calls = st.fixed_dictionaries(
    {
        "x": st.one_of(stubs, stubs, stubs, st.none()),
        "out": stubs,
        "n": st.one_of(integers, integers, st.just(0.5), st.just("16")),
        "factor": st.one_of(st.floats(), st.just(1), st.just(True)),
    },
    optional={
        "BLOCK": st.sampled_from([64, 128, 256, 128.0, True, "128", None]),
        "num_warps": st.sampled_from([4, 8, 4.0]),
        "stream": st.sampled_from([0, 0x7000, 7, -1, None]),
        "unknown": st.just(1),
    },
)
grids = st.sampled_from(
    [3, (3,), (3, 2), (1, 2, 3), (0,), (2, 0), [4, 4], (2**24,), (1, 65536), (2**64,), (), "x", 1.5]
)


def attempt(bundle, grid, call) -> object:
    """What a call comes to: nothing, or the text of its error."""
    try:
        return bundle["scale"][grid](**call)
    except AotkernError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("sort", ["mixed", "ladder", "wide"])
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(grid=grids, call=calls)
def test_both_ways_launch_the_same(fake_library, tables, extension, sort, grid, call):
    logs, outcomes, counted = [], [], []
    with pytest.MonkeyPatch.context() as patch:
        for module in (None, extension):
            fake_library.reset("gfx942", "gfx942")
            bundle = load(fake_library, tables[sort], patch, module)
            bundle.preload(device=0)
            bundle.preload(device=1)
            first = attempt(bundle, grid, call)
            assert attempt(bundle, grid, call) == first
            outcomes.append(first)
            logs.append(fake_library.log)
            counted.append(bundle.counters())
    assert outcomes[0] == outcomes[1]
    assert logs[0] == logs[1]
    first, second = counted
    for name in ("dispatched", "missed", "empty", "launches"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.parametrize(("sort", "blocks"), [("ladder", (128,)), ("wide", (64, 128, 1, 9, 16))])
def test_each_class_of_values_gets_the_same_variant(fake_library, tables, extension, sort, blocks):
    def stub(address: int, storage: int, dtype: str) -> StubTensor:
        return StubTensor(address, dtype, storage)

    cells = list(itertools.product((0x10000, 0x10004), (4096, 2**31), ("float32", "float16")))
    values = (16, 17, -16, 2**31 - 16, 2**31, -(2**31) - 16, True)
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (None, extension):
            fake_library.reset("gfx942")
            bundle = load(fake_library, tables[sort], patch, module)
            for _, block, x, out, n in itertools.product(range(2), blocks, cells, cells[::2], values):
                before = Counter(bundle.counters().dispatched)
                call = {"x": stub(*x), "out": stub(*out), "n": n, "factor": 1.0, "BLOCK": block}
                said = attempt(bundle, 1, call)
                counted.append((said, Counter(bundle.counters().dispatched) - before))
            assert module is None or c_launches(bundle) > 30 * len(blocks)
    half = len(counted) // 2
    assert counted[:half] == counted[half:]
    assert len({str(dispatched) for _, dispatched in counted}) == len(LADDER) * len(blocks) + 1


@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp32", "fp64", "i8", "u64", "u1"])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.one_of(st.floats(), st.integers(0, 1), st.booleans(), st.floats(-1e-4, 1e-4), st.floats(-7e4, 7e4)))
def test_scalars_have_the_same_bits(fake_library, compile_kernel, extension, kind, value):
    is_float = kind[0] in "fb"
    value = float(value) if is_float else bool(value) if kind == "u1" else int(bool(value))
    fake_library.reset("gfx942")
    parameters = (Parameter("x"), Parameter("s", type=kind))
    data = make(compile_kernel, "gfx942", (Spec(f"x:*fp32:D,s:{kind}"),), "store_scalar", parameters)
    with pytest.MonkeyPatch.context() as patch:
        for module in (None, extension):
            bundle = load(fake_library, data, patch, module)
            for _ in range(2):
                bundle["store_scalar"][1](StubTensor(0x10000), value)
            assert module is None or sum(bundle["store_scalar"].counted()[0].values()) == 1
    buffers = {line.partition("args=")[2] for line in fake_library.log if line.startswith("launch")}
    assert len(buffers) == 1


def test_options_are_chosen_in_c(hip, compile_kernel, monkeypatch, extension):
    arguments = "x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"
    specs = tuple(Spec(arguments, {"num_warps": warps}, {"num_warps": warps}) for warps in (4, 8))
    bundle = load(hip, make(compile_kernel, "gfx942", specs), monkeypatch, extension)
    for warps in (4, 8, 4, 8):
        bundle["scale"][1](*tensors(), 17, 1.0, num_warps=warps)
    assert c_launches(bundle) == 2
    assert [line.split("block=")[1].split()[0] for line in hip.log if line.startswith("launch")] == [
        "256", "512", "256", "512"
    ]  # fmt: skip
    bundle["scale"][1](*tensors(), 17, 1.0)  # a plain call means Triton's default
    assert "block=256" in hip.log[-1]
    only = load(
        hip,
        make(compile_kernel, "gfx942", (Spec(arguments, {"num_warps": 2}, {"num_warps": 2}), specs[1])),
        monkeypatch,
        extension,
    )
    with pytest.raises(MissError, match="num_warps: 2 or 8 -> not given"):
        only["scale"][1](*tensors(), 17, 1.0)


def test_hooks_come_and_go(bundle):
    events = []
    bundle["scale"][1](*tensors(), 16, 1.0)
    bundle.hooks.enter.append(events.append)
    for _ in range(100):
        bundle["scale"][1](*tensors(), 16, 1.0)
    bundle.hooks.enter.clear()
    bundle["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 100
    assert (c_launches(bundle), bundle.counters().launches) == (1, 102)


def test_other_current_device_goes_through_python_and_is_restored(hip, data, monkeypatch, extension):
    hip.reset("gfx942", "gfx942")
    bundle = load(hip, data, monkeypatch, extension)
    for device in (1, 1, 0, 0):
        bundle["scale"][1](*tensors(device), 16, 1.0)
    assert c_launches(bundle) == 1  # the last: only then is the tensors' device the current one
    assert bundle.driver.current_device() == 0
    assert [line[:15] for line in hip.log if line.startswith("launch")] == ["launch device=1"] * 2 + [
        "launch device=0"
    ] * 2


def test_current_stream_comes_from_the_tensors(bundle, hip, monkeypatch):
    bundle["scale"][1](*tensors(), 16, 1.0)
    monkeypatch.setattr(StubTensor, "current_stream", 0x9000)
    bundle["scale"][1](*tensors(), 16, 1.0)
    assert "stream=0x9000" in hip.log[-1]
    bundle["scale"][1](*tensors(), 16, 1.0, stream=0xA000)
    assert "stream=0xa000" in hip.log[-1]
    assert c_launches(bundle) == 2


def test_driver_error_keeps_its_code(bundle, hip):
    bundle["scale"][1](*tensors(), 16, 1.0)
    hip.fail("hipModuleLaunchKernel", 719)
    with pytest.raises(DriverError) as caught:
        bundle["scale"][1](*tensors(), 16, 1.0)
    assert (caught.value.operation, caught.value.code) == ("hipModuleLaunchKernel", 719)
    assert "scale on device 0" in caught.value.context
    bundle["scale"][1](*tensors(), 16, 1.0)
    assert (c_launches(bundle), bundle.counters().launches) == (1, 2)


def test_capture_of_a_variant_that_is_not_loaded(bundle, hip):
    bundle["scale"][1](*tensors(), 16, 1.0)
    hip.capture(0x7000)
    bundle["scale"][1](*tensors(), 16, 1.0, stream=0x7000)
    with pytest.raises(CaptureError):
        bundle["scale"][1](StubTensor(0x10000, "float16"), StubTensor(0x20000, "float16"), 17, 1.0, stream=0x7000)


def test_error_of_the_grid_function_is_the_callers(bundle):
    bundle["scale"][1](*tensors(), 16, 1.0)
    with pytest.raises(ZeroDivisionError):
        bundle["scale"][lambda bound: bound["n"] // 0](*tensors(), 16, 1.0)
    bundle["scale"][lambda bound: (bound["n"] // 8, bound["BLOCK"] // 64)](*tensors(), 16, 1.0)
    assert c_launches(bundle) == 1


def test_storage_is_only_asked_for_where_it_matters(compile_kernel, hip, monkeypatch, extension):
    monkeypatch.delattr(StubTensor, "untyped_storage")
    spec = Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128")
    bundle = load(hip, make(compile_kernel, "gfx942", (spec,)), monkeypatch, extension)
    for _ in range(2):
        bundle["scale"][1](*tensors(), 16, 1.0)
    assert c_launches(bundle) == 1


def test_many_threads(bundle, hip):
    bundle["scale"][1](*tensors(), 16, 1.0)

    def work():
        for _ in range(50):
            bundle["scale"][1](*tensors(), 16, 1.0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (c_launches(bundle), bundle.counters().launches) == (400, 401)


def test_dropped_bundle_is_collected_with_its_extension_side(hip, data, monkeypatch, extension):
    bundle = load(hip, data, monkeypatch, extension)
    bundle["scale"][1](*tensors(), 16, 1.0)
    del bundle
    gc.collect()
    assert [item for item in gc.get_objects() if type(item) is extension.Kernel] == []
    assert not any(line.startswith("unload") for line in hip.log)


def test_calls_leak_no_references(bundle):
    import sys

    x, out = tensors()
    call = bundle["scale"][1]
    for _ in range(3):
        call(x, out, 16, 1.0)
    before = (sys.getrefcount(x), sys.getrefcount(call), sys.getrefcount(None))
    for _ in range(1000):
        call(x, out, 16, 1.0, num_warps=4)
    after = (sys.getrefcount(x), sys.getrefcount(call), sys.getrefcount(None))
    assert before[:2] == after[:2]
    assert abs(after[2] - before[2]) < 100


def test_tensors_of_torch_have_the_interface(extension):
    torch = pytest.importorskip("torch")
    from aotkern.arguments import exchange_capsule

    assert exchange_capsule(torch.Tensor) is not None
    assert exchange_capsule(torch.nn.Parameter) is not None
    assert exchange_capsule(type("Fake", (torch.Tensor,), {})) is None
    assert exchange_capsule(int) is None


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": (("x", False, None, ((0, 0, 0, 0, 0, None, b"short"),)),)},
        {"parameters": ((1, False, None, ()),)},
        {"families": ()},
        {"families": (b"short",)},
        {"enter": ()},
    ],
)
def test_malformed_table_is_refused(extension, change):
    values = {"enter": [], "exit": [], "device": 10, "parameters": (), "options": (), "families": (b"\1" + bytes(7),)}
    values.update(change)
    functions = (print, print, print)
    with pytest.raises((TypeError, ValueError)):
        extension.Kernel(*functions, *values.values())


def test_slot_outside_the_buffer_is_refused(extension):
    kernel = extension.Kernel(print, print, print, [], [], 10, (("x", False, None, ()),), (), (b"\1" + bytes(7),))
    for slot in ((0, 60, 8, 0), (1, 0, 8, 0), (0, -1, 8, 0), (0, 0, 9, 0)):
        with pytest.raises(ValueError, match="outside the buffer"):
            kernel.offer(0, 0, 1, 64, 0, (1, 1, 1), (slot,), 64, 1, 1, 1, 3)
    with pytest.raises(ValueError, match="no such variant"):
        kernel.offer(1, 0, 1, 64, 0, (1, 1, 1), (), 64, 1, 1, 1, 3)
