"""The loader on the HIP driver, over a libamdhip64 without a GPU that reads the code objects it is given.

Every test runs twice: with everything in Python, and with the C extension.
"""

from __future__ import annotations

import re
import struct

import pytest
from bundles import opened
from stub_tensors import StubTensor

from aotkern.arguments import Pointer
from aotkern.drivers.hip import open_driver
from aotkern.errors import CaptureError, DriverError, InputError, TargetError
from aotkern.loader.loaded import LoadedBundle
from aotkern.loader.observe import Hooks
from aotkern.settings import Settings

pytestmark = pytest.mark.usefixtures("engine")


def load(hip, data) -> LoadedBundle:
    return LoadedBundle(opened(data), open_driver(Settings(hip_library=hip.path)), None, "error", None, Hooks())


def pointers(device: int = 0) -> tuple[StubTensor, StubTensor]:
    return StubTensor(0x10000, device=device), StubTensor(0x20000, device=device)


def events(hip) -> list[str]:
    return [line.split()[0] for line in hip.log]


def test_arguments_reach_the_device_as_the_kernel_reads_them(hip, data):
    load(hip, data)["scale"][(3, 2)](*pointers(), 384, 0.5, stream=0x7000)
    buffer = struct.pack("<QQifQQ", 0x10000, 0x20000, 384, 0.5, 0, 0).hex()
    assert hip.log[-1] == f"launch device=0 kernel=scale grid=3,2,1 block=256 shared=0 stream=0x7000 args={buffer}"


@pytest.mark.parametrize("arch", ["gfx942", "gfx942:sramecc+:xnack-", "gfx942:xnack+:sramecc-"])
def test_code_built_for_any_features_runs_on_all(hip, data, arch):
    hip.reset(arch)
    bundle = load(hip, data)
    bundle["scale"][1](*pointers(), 16, 1.0)
    assert events(hip) == ["load", "launch"]


def test_two_kinds_in_one_host(hip, data):
    hip.reset("gfx950:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack-")
    bundle = load(hip, data)
    assert [device.index for device in bundle.fitting()] == [1, 2]
    for device in (1, 2, 1):
        bundle["scale"][1](*pointers(device), 16, 1.0)
    launches = [re.match(r"launch device=(\d)", line)[1] for line in hip.log if line.startswith("launch")]
    assert launches == ["1", "2", "1"]
    assert len([line for line in hip.log if line.startswith("load")]) == 2
    assert bundle.driver.current_device() == 0
    with pytest.raises(TargetError, match="built for gfx942, the device is gfx950"):
        bundle["scale"][1](*pointers(0), 16, 1.0)
    with pytest.raises(TargetError, match="gfx950"):
        # The current device, which is never silently replaced.
        bundle["scale"][1](Pointer(0x10000, "fp32", 4096), Pointer(0x20000, "fp32", 4096), 16, 1.0)


def test_nothing_happens_before_the_error_of_a_first_use_in_a_capture(hip, data):
    bundle = load(hip, data)
    hip.capture(0x7000)
    with pytest.raises(CaptureError):
        bundle["scale"][1](*pointers(), 16, 1.0, stream=0x7000)
    assert hip.log == []
    bundle["scale"][1](*pointers(), 16, 1.0, stream=0x8000)  # another stream may load meanwhile
    bundle["scale"][1](*pointers(), 16, 1.0, stream=0x7000)
    assert events(hip) == ["load", "launch", "launch"]


def test_driver_error_while_loading_is_named_and_tried_again(hip, data):
    bundle = load(hip, data)
    hip.fail("hipModuleLoadData", 2)
    with pytest.raises(DriverError) as caught:
        bundle["scale"][1](*pointers(), 16, 1.0)
    assert (caught.value.code, caught.value.name) == (2, "hipErrorOutOfMemory")
    assert "preload" in caught.value.advice
    bundle["scale"][1](*pointers(), 16, 1.0)
    assert events(hip) == ["load", "launch"]


def test_launch_error_is_not_counted_as_a_launch(hip, data):
    bundle = load(hip, data)
    bundle["scale"][1](*pointers(), 16, 1.0)
    hip.fail("hipModuleLaunchKernel", 719)
    with pytest.raises(DriverError, match=r"hipErrorLaunchFailure \(719\), scale on device 0"):
        bundle["scale"][1](*pointers(), 16, 1.0)
    assert bundle.counters().launches == 1


def test_host_tensor_is_refused(hip, data):
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="host memory"):
        load(hip, data)["scale"][1](torch.zeros(4), torch.zeros(4), 4, 1.0)
    assert hip.log == []


def test_grid_beyond_hips_limit_on_work_items_is_refused(hip, data):
    with pytest.raises(InputError, match="at most 4294967295 work-items"):
        load(hip, data)["scale"][2**24](*pointers(), 16, 1.0)
    assert "launch" not in events(hip)
