"""Streams, threads, graphs, processes and devices."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from aotkern.errors import CaptureError, InputError


def add(bundle, x, out, **kwargs) -> None:
    bundle["masked_add"][(16,)](x, x, out, 4096, BLOCK=256, **kwargs)


@pytest.fixture
def tensors(torch):
    return torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")


def test_launch_goes_into_the_current_stream(torch, bundle, tensors):
    x, out = tensors
    bundle.preload()  # loading a module waits for the device
    side = torch.cuda.Stream()
    for _ in range(3):
        out.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # about a tenth of a second
            add(bundle, x, out)
            done = side.record_event()
        assert not done.query()  # the launch waits behind the sleep in its stream
        assert torch.cuda.current_stream().query()
        done.synchronize()
        assert torch.equal(out, 2 * x)


def test_stream_can_be_named(torch, bundle, tensors):
    x, out = tensors
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream, side):
        out.zero_()
        torch.cuda.synchronize()
        add(bundle, x, out, stream=stream)
        side.synchronize()
        assert torch.equal(out, 2 * x)
    with pytest.raises(InputError, match="stream"):
        add(bundle, x, out, stream=side.stream_id + 5 if side.stream_id < 4000 else 77)


def test_first_launch_of_a_thread(torch, bundle, tensors):
    x, out = tensors
    add(bundle, x, out)
    bundle["only_scalars"][1](3, 0.5)
    errors = []

    def work():
        try:
            for _ in range(3):
                bundle["only_scalars"][1](3, 0.5)
                add(bundle, x, out)
        except Exception as error:
            errors.append(error)

    out.zero_()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert errors == []
    assert torch.equal(out, 2 * x)


def test_many_threads(torch, bundle):
    totals = [torch.zeros(2, dtype=torch.int32, device="cuda") for _ in range(8)]
    bundle["count"][4](torch.zeros(2, dtype=torch.int32, device="cuda"), 1)

    def work(out):
        for _ in range(200):
            bundle["count"][4](out, 1)

    threads = [threading.Thread(target=work, args=(out,)) for out in totals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert [out.tolist() for out in totals] == [[800, 200]] * 8
    assert bundle.counters().launches == 1601


def test_graph_replays_what_was_preloaded(torch, bundle, tensors):
    x, out = tensors
    bundle.preload("masked_add", "described")
    graph = torch.cuda.CUDAGraph()
    wide, doubled = torch.randn((128, 32), device="cuda"), torch.zeros((128, 32), device="cuda")
    with torch.cuda.graph(graph):
        add(bundle, x, out)
        bundle["described"][(4,)](wide, doubled, 128, 32, BLOCK=32)
    for _ in range(3):
        out.zero_(), doubled.zero_(), x.normal_(), wide.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, 2 * x)
        assert torch.equal(doubled, 2 * wide)


def test_first_use_in_a_capture_is_an_error_and_leaves_the_capture_good(torch, path, tensors):
    import aotkern

    x, out = tensors
    fresh = aotkern.load(path)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(CaptureError, match="preload"):
            add(fresh, x, out)
        out.copy_(x)
    out.zero_()
    graph.replay()
    assert torch.equal(out, x)


def test_dropping_the_bundle_inside_a_capture(torch, path, tensors):
    import aotkern

    x, out = tensors
    doomed = aotkern.load(path)
    doomed.preload("masked_add")
    add(doomed, x, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(doomed, x, out)
        del doomed
        gc.collect()
        out.mul_(1)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)


def test_spawned_process_needs_no_set_up(torch, path):
    code = f"""
import torch, aotkern
bundle = aotkern.load({str(path)!r})
x = torch.randn((4096 * 32, 32), device="cuda")
out = torch.zeros_like(x)
bundle["described"][(4096,)](x, out, 4096 * 32, 32, BLOCK=32)
assert torch.equal(out, 2 * x)
import sys
assert "triton" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def two_devices(torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")


def test_tensors_decide_the_device_and_the_current_one_is_restored(torch, bundle, two_devices):
    for index in (1, 0, 1, 1):
        x = torch.randn(4096, device=f"cuda:{index}")
        out = torch.zeros_like(x)
        add(bundle, x, out)
        assert torch.cuda.current_device() == 0
        torch.cuda.synchronize(index)
        assert torch.equal(out, 2 * x)
    (loaded,) = bundle.counters().loaded.values()
    assert loaded == 2


def test_stream_of_the_other_device(torch, bundle, two_devices):
    x = torch.randn(4096, device="cuda:1")
    out = torch.zeros_like(x)
    side = torch.cuda.Stream(device="cuda:1")
    torch.cuda.synchronize(1)
    with torch.cuda.stream(side):
        pass
    for _ in range(2):
        out.zero_()
        torch.cuda.synchronize(1)
        add(bundle, x, out, stream=side)
        side.synchronize()
        assert torch.equal(out, 2 * x)


def test_tensors_on_two_devices_are_refused(torch, bundle, two_devices):
    x, out = torch.randn(4096, device="cuda:0"), torch.zeros(4096, device="cuda:1")
    for _ in range(2):
        with pytest.raises(InputError, match="devices 0, 1"):
            add(bundle, x, out)


def test_shared_memory_is_asked_for_on_each_device(torch, bundle, two_devices):
    for index in (0, 1):
        device = f"cuda:{index}"
        a = torch.randn((128, 1024), device=device, dtype=torch.float16)
        b = torch.randn((1024, 128), device=device, dtype=torch.float16)
        out = torch.zeros((128, 128), device=device)
        bundle["multiply"][1](a, b, out, M=128, N=128, K=128, STAGES=3)
        torch.cuda.synchronize(index)
        assert torch.allclose(out, a.float() @ b.float(), atol=2e-1, rtol=1e-2)
