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


def test_a_comparison_is_made_and_counted_once(matrix, monkeypatch):
    """Each has inputs, a reading and a way of calling of its own; results that do not hold are counted."""
    from benchmarks import decode as benchmark
    from kernels.launchers import Platform

    made = []
    wrong = iter([1.1])

    def decoded(launcher, platform, q, main, extra, *, sink=None, trust_extra=False):
        lists = main.rows.indices.numpy().tobytes()
        made.append((q.float().numpy().tobytes(), lists, sink is None, trust_extra, "eager"))
        inputs = matrix.Inputs(q, main, extra, sink, caches.dense)
        return matrix.attend(inputs) * next(wrong, 1.0)

    class Graph:
        def __init__(self, launcher, platform, first, rows, *, trust):
            self.trust, self.plan = trust, matrix.choose_splits(
                platform, matrix.checked_call(platform, first.q, first.main, first.extra), adaptive=True
            )  # fmt: skip

        def replay(self, inputs):
            lists = inputs.main.rows.indices.numpy().tobytes()
            made.append((inputs.q.float().numpy().tobytes(), lists, inputs.sink is None, self.trust, "graph"))
            return matrix.attend(inputs)

    monkeypatch.setattr(matrix, "decode", decoded)
    monkeypatch.setattr(matrix, "Captured", Graph)
    caches = matrix.Caches(1024)
    outcomes = {}
    for design, each in (("gfx942", 24), ("gfx950", 48)):
        made.clear()
        platform = Platform(design, fnuz_main=False, compute_units=132)
        outcomes[design] = [matrix.run_shape(None, platform, caches, matrix.Shape(1, 4096))]
        assert len(made) == len(set(made)) == outcomes[design][0].compared == each
    assert [outcomes[design][0].failed for design in outcomes] == [1, 0]
    assert [outcomes[design][0].pairs for design in outcomes] == [0, 24]
    assert outcomes["gfx950"][0].identical == 24
    found = {bar.what: (bar.measured, bar.met) for bar in benchmark.bars(outcomes)}
    assert found["gfx942's design against float64: comparisons that do not hold"] == (1, False)
    assert found["gfx950's design against float64: comparisons that do not hold"] == (0, True)
    assert found["gfx950's design: readings that differ in a bit"] == (0, True)
    assert benchmark.summary(outcomes).cell("gfx942", "hold").median == 23


def timed_shapes(**slower):
    """Samples of two shapes: everyone takes 10 us, but for factors of those that are named."""
    from benchmarks import kernels

    names = {name: name.replace(" ", "_") for name in kernels.CONTENDERS}
    one = {name: (10.0 * slower.get(short, 1.0),) * kernels.ROUNDS for name, short in names.items()}
    return {"one": dict.fromkeys(kernels.CONTENDERS, (10.0,) * kernels.ROUNDS), "two": one}


def test_every_form_and_the_quickest_of_each_design_have_a_bar():
    from benchmarks import kernels

    samples = timed_shapes(gfx950_eager=1.2, gfx942_fitted_graph=0.5, gfx950_graph=0.8)
    compared = kernels.ratios_table(samples, {"one": 5.0, "two": 70.0})
    found = {bar.what: bar for bar in kernels.bars(compared)}
    worst = "gfx950 design over gfx942 design, {}, worst shape"
    assert found[worst.format("eager")].measured == 1.2
    assert found[worst.format("eager")].why == "1 of 2 shapes above"
    assert found[worst.format("graph")].measured == 1.0
    assert found[worst.format("graph")].met
    assert found[worst.format("quickest form of each")].measured == 1.6  # 8 us over 5 us
    assert found["of the copy bandwidth at 64 rows, 1M positions"].measured == 70
    assert kernels.times_table(samples).cell("two", "gfx942 fitted graph").median == 5


def test_the_rounds_of_the_kernels_are_whole_cycles():
    from aotkern.bench.timing import turns
    from benchmarks import kernels, launch

    assert kernels.ROUNDS % len(turns(len(kernels.CONTENDERS))) == 0
    assert launch.ROUNDS % len(turns(8)) == 0


def test_no_reason_in_words_stands_beside_a_measured_bar():
    """What is said beside a figure is made from the figures of the same run."""
    import ast
    from pathlib import Path

    folder = Path(__file__).parents[2] / "benchmarks"
    for path in sorted(folder.glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Bar":
                said = [*call.args[5:], *(word.value for word in call.keywords if word.arg == "why")]
                assert not any(isinstance(value, ast.Constant) and value.value for value in said), (path, call.lineno)
                names = {value.id for value in said if isinstance(value, ast.Name)}
                assert not {name for name in names if name.isupper()}, (path, call.lineno)


def test_a_cold_start_counts_every_step_up_to_the_first_launch():
    from benchmarks import cold_start

    steps = cold_start.STEPS[cold_start.OURS]
    assert steps[2:] == ("open and verify", "preload", "arrange for choosing")
    assert cold_start.after_context((100.0, 50.0, 1.0, 2.0, 4.0)) == 7
    assert cold_start.STEPS["bare"][2:] == ("load",)
