"""From a call to a launch, on the null driver."""

from __future__ import annotations

import struct
import threading

import pytest
from bundles import Spec, make, opened

from aotkern.arguments import Pointer
from aotkern.drivers.null import NullDriver
from aotkern.errors import CaptureError, DriverError, InputError, IntegrityError, MissError, TargetError
from aotkern.loader.loaded import LoadedBundle, MissedCall
from aotkern.loader.modules import check_image
from aotkern.loader.observe import Hooks
from aotkern.target import Target

X, OUT = Pointer(0x10000, "fp32", 4096), Pointer(0x20000, "fp32", 4096)
DIVISIBLE = "scale[hip:gfx942](x:*fp32:DS,out:*fp32:DS,n:i32:D,factor:fp32,BLOCK=128){num_warps=4}"
GENERAL = DIVISIBLE.replace("n:i32:D", "n:i32")


def with_driver(data, driver, **changes) -> LoadedBundle:
    values = {"device": None, "on_miss": "error", "fallback": None, "hooks": Hooks(), **changes}
    return LoadedBundle(opened(data), driver, **values)


def test_call_becomes_a_launch(loaded, null):
    loaded["scale"][(3,)](X, OUT, 384, 0.5)
    (launch,) = null.launches
    assert (launch.grid, launch.threads, launch.shared, launch.stream) == ((3, 1, 1), 256, 0, 0)
    assert launch.arguments == struct.pack("<QQifQQ", 0x10000, 0x20000, 384, 0.5, 0, 0)
    assert launch.function.symbol == "scale"
    assert launch.is_plain
    assert null.loads == [(0, "scale")]


def test_arguments_by_name_default_and_option(loaded, null):
    loaded["scale"][lambda bound: bound["n"] // bound["BLOCK"]](X, OUT, factor=2.0, n=256, BLOCK=128, num_warps=4)
    assert null.launches[0].grid == (2, 1, 1)
    with pytest.raises(MissError, match="num_warps: 4 -> 8"):
        loaded["scale"][1](X, OUT, 256, 2.0, num_warps=8)
    with pytest.raises(InputError, match="num_wraps"):
        loaded["scale"][1](X, OUT, 256, 2.0, num_wraps=8)


def test_launches_and_loads_are_counted_by_variant(loaded):
    kernel = loaded["scale"]
    for n in (16, 17, 32):
        kernel[1](X, OUT, n, 1.0)
    found = loaded.counters()
    assert found.dispatched == {DIVISIBLE: 2, GENERAL: 1}
    assert found.loaded == {DIVISIBLE: 1, GENERAL: 1}
    objects = {entry.object for entry in loaded.manifest.variants if entry.text in (DIVISIBLE, GENERAL)}
    assert (found.launches, found.modules, found.missed, found.empty) == (3, len(objects), {}, {})
    assert found.bytes == sum(loaded.manifest.object(digest).size for digest in objects)


@pytest.mark.parametrize("grid", [(0,), (0, 1), (4, 0, 1), lambda bound: (bound["n"] // 128,)])
def test_empty_grid_launches_and_loads_nothing(loaded, null, grid):
    events = []
    loaded.hooks.enter.append(events.append)
    loaded["scale"][grid](Pointer(0, "fp32", 0), Pointer(0, "fp32", 0), 0, 1.0)
    assert (null.launches, null.loads, events) == ([], [], [])
    assert loaded.counters().empty == {"scale": 1}
    assert loaded.counters().launches == 0


def test_miss_is_an_error_that_names_the_nearest_variant(loaded, null):
    with pytest.raises(MissError) as caught:
        loaded["scale"][1](Pointer(0x10004, "fp32", 4096), OUT, 37, 1.0)
    assert caught.value.kernel == "scale"
    assert caught.value.nearest == GENERAL
    assert [problem.where for problem in caught.value.problems] == ["scale: x"]
    assert len(str(caught.value).splitlines()) == 3
    assert null.loads == null.launches == []
    assert loaded.counters().missed == {"scale": 1}


def test_miss_may_be_served_by_a_fallback_after_a_warning(data, null):
    calls = []

    class Jit:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: calls.append((grid, args, kwargs))

    bundle = with_driver(data, null, on_miss="warn", fallback={"scale": Jit()})
    with pytest.warns(RuntimeWarning, match="nearest: scale"):
        bundle["scale"][(7,)](X, OUT, 37, factor=1)
    assert calls == [((7,), (X, OUT, 37), {"factor": 1})]
    assert bundle.counters().missed == {"scale": 1}
    assert null.launches == []


def test_miss_may_be_handed_to_a_function(data, null):
    seen: list[MissedCall] = []

    def handler(call: MissedCall) -> str:
        seen.append(call)
        return "done"

    bundle = with_driver(data, null, on_miss=handler)
    assert bundle["scale"][2](X, OUT, 37, factor=1) == "done"
    assert (seen[0].kernel, seen[0].grid, seen[0].kwargs) == ("scale", 2, {"factor": 1})
    assert len(seen[0].miss.table()) == 5


@pytest.mark.parametrize(("on_miss", "fallback"), [("warn", None), ("error", {}), ("ignore", None)])
def test_miss_policy_that_would_lose_a_call_is_refused(data, null, on_miss, fallback):
    with pytest.raises(InputError):
        with_driver(data, null, on_miss=on_miss, fallback=fallback)


def test_one_load_for_each_device(loaded, null):
    kernel = loaded["scale"]
    for device in (0, 1, 0):
        kernel[1](Pointer(0x10000, "fp32", 64, device), Pointer(0x20000, "fp32", 64, device), 16, 1.0)
    assert null.loads == [(0, "scale"), (1, "scale")]
    assert [launch.function.device for launch in null.launches] == [0, 1, 0]
    assert null.launches[0].function is null.launches[2].function
    assert loaded.counters().loaded == {DIVISIBLE: 2}


def test_tensors_on_two_devices_are_refused(loaded, null):
    with pytest.raises(InputError, match="devices 0, 1"):
        loaded["scale"][1](Pointer(16, "fp32", 64, 0), Pointer(16, "fp32", 64, 1), 16, 1.0)
    assert null.launches == []


def test_device_of_another_kind_is_refused(loaded):
    with pytest.raises(TargetError, match="built for gfx942, the device is gfx950"):
        loaded["scale"][1](Pointer(16, "fp32", 64, 2), Pointer(16, "fp32", 64, 2), 16, 1.0)
    with pytest.raises(TargetError):
        loaded.preload(device=2)


def test_bundle_for_one_device_refuses_tensors_of_another(data, null):
    bundle = with_driver(data, null, device=1)
    bundle["scale"][1](X, OUT, 16, 1.0)
    assert null.launches[0].function.device == 1
    with pytest.raises(InputError, match="tensors on device 1"):
        bundle["scale"][1](Pointer(16, "fp32", 64, 0), OUT, 16, 1.0)


def test_first_use_during_capture_is_an_error_before_the_stream_is_touched(loaded, null):
    null.captured.add(0x7000)
    with pytest.raises(CaptureError, match=r"preload\('scale'\)"):
        loaded["scale"][1](X, OUT, 16, 1.0, stream=0x7000)
    assert null.loads == null.launches == []
    loaded.preload("scale")
    loaded["scale"][1](X, OUT, 16, 1.0, stream=0x7000)
    assert [launch.stream for launch in null.launches] == [0x7000]


def test_nothing_is_unloaded_when_the_bundle_is_dropped(data, null):
    bundle = with_driver(data, null)
    bundle.preload()
    null.captured.add(0x7000)
    bundle["scale"][1](X, OUT, 16, 1.0, stream=0x7000)
    del bundle
    assert null.unloads == []


def test_preload_reports_what_it_did(loaded, null):
    report = loaded.preload()
    assert (report.variants, report.modules) == (5, len({entry.object for entry in loaded.manifest.variants}))
    assert report.bytes == sum(entry.size for entry in loaded.manifest.objects)
    again = loaded.preload("scale")
    assert (again.variants, again.modules, again.bytes) == (5, 0, 0)
    assert len(null.loads) == report.modules
    with pytest.raises(InputError, match="one of scale"):
        loaded.preload("other")


def test_failed_load_is_tried_again(data, null, monkeypatch):
    bundle = with_driver(data, null)
    load, failures = NullDriver.load, [DriverError("null", "load", 2, "out of memory", "here", "")]

    def failing(self, *args):
        if failures:
            raise failures.pop()
        return load(self, *args)

    monkeypatch.setattr(NullDriver, "load", failing)
    with pytest.raises(DriverError, match="out of memory"):
        bundle["scale"][1](X, OUT, 16, 1.0)
    assert bundle.counters().modules == 0
    bundle["scale"][1](X, OUT, 16, 1.0)
    assert bundle.counters().modules == 1


def test_first_use_from_many_threads_loads_once(loaded, null):
    barrier = threading.Barrier(16)

    def work():
        barrier.wait()
        for _ in range(20):
            loaded["scale"][1](X, OUT, 16, 1.0)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert null.loads == [(0, "scale")]
    assert len(null.launches) == loaded.counters().launches == 320


def test_hooks_see_every_launch_and_can_be_removed(loaded):
    entered, left, loads = [], [], []
    loaded.hooks.enter.append(entered.append)
    loaded.hooks.exit.append(left.append)
    loaded.hooks.load.append(loads.append)
    for _ in range(100):
        loaded["scale"][(4, 2)](X, OUT, 16, 1.0, stream=0x7000)
    assert len(entered) == len(left) == 100
    event = entered[0]
    assert (event.kernel, event.variant, event.device) == ("scale", DIVISIBLE, 0)
    assert (event.stream, event.grid) == (0x7000, (4, 2, 1))
    assert [(item.kernel, item.variant, item.device) for item in loads] == [("scale", DIVISIBLE, 0)]
    loaded.hooks.enter.clear()
    loaded["scale"][1](X, OUT, 16, 1.0)
    assert (len(entered), len(left)) == (100, 101)


@pytest.mark.parametrize("stream", [7, 4095, -1, True, "side", 1.5, object()])
def test_what_is_no_stream_handle_is_refused(loaded, null, stream):
    with pytest.raises(InputError, match="scale: stream"):
        loaded["scale"][1](X, OUT, 16, 1.0, stream=stream)
    assert null.launches == []


def test_streams_of_other_libraries_are_taken(loaded, null):
    class Torch:
        cuda_stream = 0x7000

    class Cupy:
        ptr = 0x8000

    class Protocol:
        def __cuda_stream__(self):
            return (0, 0x9000)

    for stream in (Torch(), Cupy(), Protocol(), 2, 0xA000):
        loaded["scale"][1](X, OUT, 16, 1.0, stream=stream)
    assert [launch.stream for launch in null.launches] == [0x7000, 0x8000, 0x9000, 2, 0xA000]


def test_torch_tensors_on_the_host_serve_a_driver_that_reads_them(loaded, null):
    torch = pytest.importorskip("torch")
    x, out = torch.zeros(64), torch.zeros(64)
    loaded["scale"][1](x, out, 64, 2.0)
    assert null.launches[0].arguments[:16] == struct.pack("<QQ", x.data_ptr(), out.data_ptr())


def test_grid_over_the_limit_is_refused(loaded, null):
    with pytest.raises(InputError, match="at most 65535 workgroups, found 65536"):
        loaded["scale"][(1, 65536)](X, OUT, 16, 1.0)
    loaded["scale"][(2**16, 2**15)](X, OUT, 16, 1.0)
    assert null.launches[-1].grid == (2**16, 2**15, 1)


def test_unknown_kernel_lists_those_there_are(loaded):
    with pytest.raises(InputError, match="one of scale"):
        loaded["gather"]
    assert list(loaded) == ["scale"]
    assert "scale" in loaded
    assert "gather" not in loaded


LAUNCH = {
    "num_ctas": 2,
    "cooperative": True,
    "pdl": True,
    "global_scratch": 24,
    "global_scratch_align": 512,
    "profile_scratch": 8,
}


def test_manifest_decides_scratch_clusters_and_flags(compile_kernel):
    null = NullDriver((Target.parse("cuda:90"),))
    spec = Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128", launch=LAUNCH)
    bundle = with_driver(make(compile_kernel, "cuda:90", (spec,)), null)
    bundle["scale"][(3, 5)](X, OUT, 17, 1.0)
    (launch,) = null.launches
    assert (launch.cluster, launch.cooperative, launch.overlap, launch.is_plain) == (2, True, True, False)
    assert launch.offsets == (0, 8, 16, 20, 24, 32)
    global_scratch, profile_scratch = struct.unpack_from("<QQ", launch.arguments, 24)
    assert global_scratch % 512 == 0
    assert profile_scratch % 256 == 0
    assert null.allocations == {}  # given back in stream order


def test_scratch_is_sized_for_the_whole_grid_in_64_bits(compile_kernel, monkeypatch):
    null = NullDriver((Target.parse("gfx942"),))
    sizes = []
    allocate = NullDriver.allocate
    monkeypatch.setattr(
        NullDriver, "allocate", lambda self, d, size, s: sizes.append(size) or allocate(self, d, size, s)
    )
    spec = Spec(SPEC, launch={"global_scratch": 4096, "global_scratch_align": 128})
    with_driver(make(compile_kernel, "gfx942", (spec,)), null)["scale"][(2**20, 2)](X, OUT, 17, 1.0)
    assert sizes == [2**20 * 2 * 4096]


SPEC = "x:*fp32:DS,out:*fp32:DS,n:i32,factor:fp32,BLOCK=128"


def test_scratch_is_given_back_when_the_launch_fails(compile_kernel, monkeypatch):
    null = NullDriver((Target.parse("gfx942"),))
    bundle = with_driver(make(compile_kernel, "gfx942", (Spec(SPEC, launch={"global_scratch": 16}),)), null)

    def failing(self, launch):
        raise DriverError("null", "launch", 719, "failed", "here", "")

    monkeypatch.setattr(NullDriver, "launch", failing)
    with pytest.raises(DriverError):
        bundle["scale"][1](X, OUT, 17, 1.0)
    assert null.allocations == {}
    assert bundle.counters().launches == 0


def test_shared_memory_over_the_limit_names_both_numbers(compile_kernel, null):
    bundle = with_driver(make(compile_kernel, "gfx942", (Spec(SPEC, launch={"shared": 98_304}),)), null)
    with pytest.raises(InputError, match="at most 65536 bytes on device 0, found 98304"):
        bundle["scale"][1](X, OUT, 17, 1.0)


def test_code_for_another_chip_is_refused_before_the_driver_sees_it(data, compile_kernel):
    bundle = opened(data)
    (entry, *_) = bundle.manifest.objects
    image = bytearray(bundle.object(entry.digest))
    check_image(entry, bytes(image), "object")
    image[48] = 0x4F  # gfx950
    with pytest.raises(IntegrityError, match="e_flags"):
        check_image(entry, bytes(image), "object")
    with pytest.raises(IntegrityError, match="an ELF file"):
        check_image(entry, b"", "object")
