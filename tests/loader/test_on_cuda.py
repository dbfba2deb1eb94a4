"""The loader on the CUDA driver, over a libcuda without a GPU: contexts, devices, threads, attributes.

Every test runs twice: with everything in Python, and with the C extension.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from bundles import Spec, make, opened
from stub_tensors import CUDA, StubTensor

from aotkern.drivers.cuda import SIGNATURES, open_driver
from aotkern.errors import CaptureError, DriverError, InputError, TargetError
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.settings import Settings

pytestmark = pytest.mark.usefixtures("engine")
ARGUMENTS = "x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128"


class FakeCuda:
    """The test's own controls over the fake library."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, ctypes.CDLL(str(path))
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_capture.argtypes = (ctypes.c_size_t, ctypes.c_int)

    def reset(self, devices: int = 1) -> None:
        self.library.fake_reset(devices)

    def make_current(self, device: int) -> None:
        context = ctypes.c_void_p()
        self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self.library.cuCtxPushCurrent_v2(context)

    def events(self, *kinds: str) -> list[str]:
        lines = self.library.fake_log().decode().splitlines()
        return [line for line in lines if not kinds or line.startswith(kinds)]


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> FakeCuda:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake libcuda with")
    out = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = Path(__file__).parents[1] / "drivers" / "fake_cuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, source], check=True)
    return FakeCuda(out)


@pytest.fixture
def cuda(library) -> FakeCuda:
    library.reset()
    return library


def load(cuda, data) -> LoadedBundle:
    return LoadedBundle(opened(data), open_driver(Settings(cuda_library=cuda.path)), None, "error", None, Hooks())


@pytest.fixture(scope="session")
def data(compile_kernel) -> bytes:
    return make(compile_kernel, "cuda:90", (Spec(ARGUMENTS),))


def tensors(device: int = 0):
    return tuple(StubTensor(address, device=device, kind=CUDA) for address in (0x10000, 0x20000))


def test_launches_carry_buffer_shape_and_stream(cuda, data):
    bundle = load(cuda, data)
    cuda.make_current(0)
    for _ in range(3):
        bundle["scale"][(3, 2)](*tensors(), 37, 0.5, stream=0x7000)
    buffer = struct.pack("<QQifQQ", 0x10000, 0x20000, 37, 0.5, 0, 0).hex()
    line = f"launch device=0 kernel=scale grid=3,2,1 block=128 shared=0 stream=0x7000 args={buffer}"
    assert cuda.events("launch") == [line] * 3
    assert bundle.counters().launches == 3


def test_thread_without_a_context_gets_one_for_the_call(cuda, data):
    bundle = load(cuda, data)
    cuda.make_current(0)
    bundle["scale"][1](*tensors(), 37, 0.5)
    errors = []

    def work():
        try:
            for _ in range(2):
                bundle["scale"][1](*tensors(), 37, 0.5)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
    assert len(cuda.events("launch")) == 3
    assert len(cuda.events("pop")) == len(cuda.events("push")) - 1  # the first is the test's own


def test_tensors_decide_the_device_and_the_context_is_restored(cuda, data):
    cuda.reset(2)
    bundle = load(cuda, data)
    cuda.make_current(0)
    for device in (1, 0, 1, 0):
        bundle["scale"][1](*tensors(device), 37, 0.5)
        assert bundle.driver.current_device() == 0
    launches = [line.split(" kernel")[0] for line in cuda.events("launch")]
    assert launches == ["launch device=1", "launch device=0"] * 2
    assert cuda.events("load") == ["load device=1", "load device=0"]
    assert cuda.events("retain 1") == ["retain 1"]


def test_preloading_makes_the_device_current_once(cuda, compile_kernel):
    cuda.reset(2)
    specs = tuple(Spec(f"x:*fp32,out:*fp32,n:i32,factor:fp32,BLOCK={block}") for block in (64, 128, 256))
    bundle = load(cuda, make(compile_kernel, "cuda:90", specs))
    cuda.make_current(0)
    assert bundle.preload(device=1).modules == 3
    assert cuda.events("load", "push", "pop")[-5:] == ["push 1", *["load device=1"] * 3, "pop"]
    assert bundle.preload(device=1).modules == 0
    assert bundle.driver.current_device() == 0


@pytest.mark.parametrize(
    ("shared", "static", "asked"),
    [(0, 0, []), (49_151, 0, []), (49_152, 0, [49_152]), (40_000, 10_000, [40_000]), (232_448, 0, [232_448])],
)
def test_shared_memory_is_asked_for_once_on_each_device(cuda, compile_kernel, shared, static, asked):
    cuda.reset(2)
    cuda.library.fake_static_shared(static)
    bundle = load(cuda, make(compile_kernel, "cuda:90", (Spec(ARGUMENTS, launch={"shared": shared}),)))
    for device in (0, 1, 0, 1):
        bundle["scale"][1](*tensors(device), 37, 0.5)
    expected = [f"attribute 8={size} device={device}" for device in (0, 1) for size in asked]
    assert cuda.events("attribute") == expected
    assert len(cuda.events("launch")) == 4


def test_shared_memory_over_the_limit_names_both_numbers_and_leaves_nothing_loaded(cuda, compile_kernel):
    cuda.library.fake_static_shared(1024)
    bundle = load(cuda, make(compile_kernel, "cuda:90", (Spec(ARGUMENTS, launch={"shared": 232_448}),)))
    with pytest.raises(InputError, match="at most 231424 bytes on device 0, found 232448"):
        bundle["scale"][1](*tensors(), 37, 0.5)
    assert cuda.events("load", "unload") == ["load device=0", "unload"]


def test_clusters_cooperation_and_overlap_are_launch_attributes(cuda, compile_kernel):
    flags = {"num_ctas": 2, "cooperative": True, "pdl": True}
    bundle = load(cuda, make(compile_kernel, "cuda:90", (Spec(ARGUMENTS, launch=flags),)))
    for _ in range(2):
        bundle["scale"][(5, 3)](*tensors(), 37, 0.5)
    for line in cuda.events("extended"):
        assert "grid=10,3,1" in line
        assert line.split("args=")[1].split()[1:] == ["2=1", "6=1", "4=2", "5=1"]
    assert len(cuda.events("extended")) == 2
    with pytest.raises(InputError, match="cooperative grid: expected at most 264 workgroups, found 266"):
        bundle["scale"][133](*tensors(), 37, 0.5)


def test_scratch_is_taken_and_given_back_in_stream_order(cuda, compile_kernel):
    spec = Spec(ARGUMENTS, launch={"global_scratch": 256, "global_scratch_align": 128})
    bundle = load(cuda, make(compile_kernel, "cuda:90", (spec,)))
    bundle["scale"][(4, 2)](*tensors(), 37, 0.5, stream=0x7000)
    events = [line.split(" kernel=")[0] for line in cuda.events("malloc", "launch", "free")]
    assert events == ["malloc device=0 size=2048 stream=0x7000", "launch device=0", "free device=0 stream=0x7000"]


def test_capture(cuda, data):
    bundle = load(cuda, data)
    cuda.library.fake_capture(0x7000, 1)
    with pytest.raises(CaptureError):
        bundle["scale"][1](*tensors(), 37, 0.5, stream=0x7000)
    assert cuda.events("load", "launch") == []
    bundle["scale"][1](*tensors(), 37, 0.5, stream=0x8000)
    bundle["scale"][1](*tensors(), 37, 0.5, stream=0x7000)
    assert len(cuda.events("launch")) == 2


def test_failed_launch_keeps_its_code(cuda, data):
    bundle = load(cuda, data)
    cuda.make_current(0)
    bundle["scale"][1](*tensors(), 37, 0.5)
    cuda.library.fake_fail(b"cuLaunchKernel", 719)
    with pytest.raises(
        DriverError, match=r"cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED \(719\), scale on device 0"
    ):
        bundle["scale"][1](*tensors(), 37, 0.5)
    assert bundle.counters().launches == 1


def use_everything(cuda, compile_kernel) -> None:
    flags = {"cooperative": True, "num_ctas": 16, "global_scratch": 8, "shared": 65_536}
    bundle = load(cuda, make(compile_kernel, "cuda:90", (Spec(ARGUMENTS, launch=flags),)))
    bundle.driver.current_device()
    bundle["scale"][1](*tensors(), 37, 0.5)
    plain = load(cuda, make(compile_kernel, "cuda:90", (Spec(ARGUMENTS),)))
    plain["scale"][1](*tensors(), 37, 0.5)
    (function,) = bundle.modules._functions.values()
    bundle.driver.unload(function)


@pytest.mark.parametrize("operation", SIGNATURES)
def test_every_entry_point_is_checked(cuda, compile_kernel, operation):
    cuda.make_current(0)
    if operation.startswith("cuCtxP"):
        cuda.reset()  # only a thread without a context pushes and pops one
    cuda.library.fake_fail(operation.encode(), 999)
    with pytest.raises(DriverError) as caught:
        use_everything(cuda, compile_kernel)
    assert (caught.value.operation, caught.value.code) == (operation, 999)


def test_code_for_another_capability_is_refused(cuda, compile_kernel):
    bundle = load(cuda, make(compile_kernel, "cuda:80", (Spec(ARGUMENTS),)))
    with pytest.raises(TargetError, match="built for 80, the device is 90"):
        bundle["scale"][1](*tensors(), 37, 0.5)
