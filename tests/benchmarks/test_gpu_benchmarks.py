"""What of the GPU benchmarks needs no GPU: the plain torch contender, the served workload, the comparison of results."""

from __future__ import annotations

import pytest

from aotkern.target import Target

torch = pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.fixture
def matrix(monkeypatch):
    """The decode matrix on the CPU, with small caches."""
    from benchmarks import h200_decode

    monkeypatch.setattr(h200_decode, "DEVICE", "cpu")
    monkeypatch.setattr(h200_decode, "MAIN_SLOTS", 512)
    return h200_decode


def test_plain_torch_computes_what_the_reference_computes(matrix):
    from benchmarks import kernels

    inputs = matrix.Caches(1024).inputs(matrix.Shape(2, 4096), 0, with_sink=False, invalid=False)
    expected = matrix.attend(inputs)
    kernels.check(kernels.in_torch(inputs)(), expected, "torch")
    with pytest.raises(SystemExit, match="relative L2 error"):
        kernels.check(expected * 1.02, expected, "wrong")


def test_bytes_that_a_call_must_read(matrix):
    from benchmarks import kernels

    assert kernels.bytes_read(matrix.Shape(64, 1_000_000)) == 64 * (128 + 7812) * 584


def test_every_launch_of_the_served_workload_is_declared_for_an_h200():
    from aotkern.audit.coverage.catalogue import Catalogue
    from aotkern.audit.replay.arms import BundleArm
    from aotkern.build import registry
    from aotkern.spec import expand
    from benchmarks import serving
    from kernels.replayed import open_server

    target = Target.parse("cuda:90")
    declared = {
        kernel.declaration.name: (kernel.parameters, expand(kernel.declaration, kernel.parameters, target))
        for kernel in registry.load([registry.Source.parse("kernels")])
    }
    rows = {name: row for name, row in declared.items() if row[1]}
    load = serving.workload(quick=True)
    arm = load.arm("bundle")
    launcher = BundleArm(Catalogue.of_keys("declared", target, rows))
    server = open_server(launcher, "meta", arm.settings)
    for number in load.limits.captured_rows:
        server.capture(number)
    phases = set()
    for phase, step in serving.served(load):
        phases.add(phase)
        server.step(step)
    assert phases == {serving.WARMUP, serving.SCORED}
    assert not launcher.gaps
    assert len(launcher.found) > 8


def run(**tensors):
    import hashlib

    return {
        "tensors": tensors,
        "digests": {name: hashlib.sha256(value.numpy().tobytes()).hexdigest() for name, value in tensors.items()},
    }


def test_results_that_differ_from_the_jits_end_the_comparison():
    from benchmarks.unchanged import judged

    cold, close, far = (run(x=torch.tensor([value])) for value in (1.0, 1.0001, 1.1))
    ways = {"JIT, cold": cold, "JIT, warm cache": cold}
    assert judged({**ways, "prebuilt": cold}, same=True) == (1, 1)
    assert judged({**ways, "prebuilt": close}, same=False) == (1, 0)
    assert judged({**ways, "JIT, warm cache": close, "prebuilt": close}, same=True) == (1, 0)
    for other, same in ((close, True), (far, False)):
        with pytest.raises(SystemExit, match="computed something else: x"):
            judged({**ways, "prebuilt": other}, same=same)
    with pytest.raises(SystemExit, match="the runs have different results"):
        judged({**ways, "prebuilt": run(y=torch.tensor([1.0]))}, same=True)
