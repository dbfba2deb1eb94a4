"""Builds on a real cluster: a scheduler and workers in separate processes, some of which die or are others."""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("triton")
pytest.importorskip("distributed")

from making import GFX942, GFX950, HEAD, SCALE, SINGLE, built, edited, packed, request, written

from aotkern.build import dask_executor, toolchain
from aotkern.build.builder import compile_targets, publish
from aotkern.build.registry import Source
from aotkern.build.store import Store
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError, MissingToolError, RemoteError
from aotkern.spec import VariantKey
from aotkern.trace import GENERATED, Recorded, Trace

pytest_plugins = ("clusters",)

MANY = edited(SINGLE, ('"V": 1.0', '"V": Constexpr(*map(float, range(12)))'))
"""Twelve variants on gfx942."""

DEADLY = (
    HEAD
    + """
import os
import signal
import time


def symbol(specialization):
    kind = specialization.constants["V"]
    if kind == "kill the Dask worker":
        os.kill(os.getppid(), signal.SIGKILL)
    if kind == "die":
        os._exit(7)
    if kind in ("sleep", "kill the Dask worker"):
        time.sleep(60)
    return "store"


@triton.jit(repr=symbol)
def store(x, V: tl.constexpr):
    tl.store(x, 1.0)


X = {"x": Pointer("fp32", "any")}
KINDS = Constexpr("live", "kill the Dask worker", "die", "sleep", "live on")
KERNELS = (Kernel(store, Space(("gfx942",), {**X, "V": KINDS}, options={"num_warps": 1})),)
"""
)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """`MANY` as a local build packs it."""
    return packed(built(written(tmp_path_factory.mktemp("many"), MANY)).targets[GFX942])


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """What a build remembers of the toolchain's digest, so that one build of this module hashes it, and not each."""
    path = tmp_path_factory.mktemp("described") / "toolchain"
    toolchain.describe(path)
    return path


@pytest.fixture
def store(described, tmp_path):
    """A store without entries; that of the command line, too."""
    store = Store(tmp_path / "store")
    store.prepare()
    shutil.copy(described, store.memo)
    return store.cache


def clustered(cluster, source, *targets, **more):
    return request(source, *targets, executor="dask", scheduler=cluster.address, **more)


def offspring(pid: int) -> set[int]:
    """The aotkern workers that this process started."""
    try:
        found = [Path(f"/proc/{pid}/task/{thread}/children").read_text() for thread in os.listdir(f"/proc/{pid}/task")]
        children = {int(child) for text in found for child in text.split()}
        return {child for child in children if b"aotkern.build.worker" in Path(f"/proc/{child}/cmdline").read_bytes()}
    except FileNotFoundError:
        return set()


def alive(pids) -> set[int]:
    def state(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "gone"

    return {pid for pid in pids if state(pid) not in ("gone", "Z")}


def eventually(holds, seconds=20.0) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_a_cluster_gives_the_bytes_of_a_local_build_and_fills_the_store(
    aotkern, cluster, sample, store, tmp_path, started
):
    steps = []
    result = compile_targets(clustered(cluster, sample.source, GFX942, GFX950, store=store), steps.append)
    assert not result.failures
    assert {target: packed(build) for target, build in result.targets.items()} == {
        target: sample.bundle(target).data for target in (GFX942, GFX950)
    }
    assert [(step.done, step.total) for step in steps] == [(n, 5) for n in range(1, 6)]
    assert min(step.seconds for step in steps) > 0
    assert len(started) == 2  # one plans, one hashes the toolchain
    publish(result.targets[GFX942], tmp_path, "scale", {})
    there = ("--executor", "dask", "--scheduler", cluster.address)
    again = aotkern("build", sample.source.path, "-o", tmp_path, *there, "--json").json("build")
    assert (again["compiled"], again["reused"]) == (0, 5)
    assert len(started) == 3  # what a bundle that is there holds was read meanwhile, and nothing was left to do


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(cluster, tmp_path, many, store):
    source = written(tmp_path, MANY)
    with cluster.client() as client:
        victim = cluster.named(client, "one", "two")["one"].pid
    killed: set[int] = set()

    def tell(step):
        if step.done == 2:
            killed.update(offspring(victim))
            os.kill(victim, signal.SIGKILL)

    result = compile_targets(clustered(cluster, source, store=store), tell)
    assert not result.failures
    assert packed(result.targets[GFX942]) == many
    assert not alive([victim])
    assert killed
    assert eventually(lambda: not alive(killed)), "aotkern workers outlive their Dask worker"


def test_what_a_killed_driver_had_is_in_the_store(cluster, tmp_path, many, store):
    source = written(tmp_path, MANY)

    def tell(step):
        if step.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_targets(clustered(cluster, source, store=store), tell)
    with cluster.client() as client:
        workers = [worker.pid for worker in cluster.named(client, "one", "two").values()]
        # Nothing is left behind: no task, no worker process of ours, no folder.
        left = lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))  # noqa: E731
        assert eventually(lambda: left() == 0)
        assert eventually(lambda: not [child for pid in workers for child in offspring(pid)])
    assert eventually(lambda: not list(cluster.folder.glob("*/dask-scratch-space/*/aotkern-*")))
    result = compile_targets(clustered(cluster, source, store=store))
    assert result.reused >= 5
    assert not result.failures
    assert packed(result.targets[GFX942]) == many


@pytest.fixture
def strict(cluster) -> Iterator[None]:
    """The scheduler gives a task up whose worker died once."""

    def allow(count, dask_scheduler):
        before, dask_scheduler.allowed_failures = dask_scheduler.allowed_failures, count
        return before

    with cluster.client() as client:
        before = client.run_on_scheduler(allow, 0)
        yield
        client.run_on_scheduler(allow, before)


def test_variants_that_kill_or_hang_their_workers_fail_alone(cluster, strict, tmp_path, store):
    result = compile_targets(clustered(cluster, written(tmp_path, DEADLY), seconds=3.0, store=store))
    reasons = {error.key.partition('V="')[2].partition('"')[0]: error.reason for error in result.failures}
    assert reasons.pop("die") == "the worker died (exit code 7); tried 3 times"
    assert reasons.pop("sleep") == "no answer within 3 s"
    reason = reasons.pop("kill the Dask worker")
    assert reason.startswith("1 Dask workers died of it, the last tcp://127.0.0.1:")
    assert reasons == {}
    assert len(result.seconds) == 2


@pytest.fixture
def vanishing(monkeypatch):
    """Sources are moved away as soon as the build is planned: workers cannot find them where they were."""
    moved = []
    plan = dask_executor.DaskExecutor.plan

    def planned(self, *arguments):
        result = plan(self, *arguments)
        result[1]()  # the worker that hashes the toolchain imports the sources, too
        for folder in moved:
            folder.rename(folder.with_name(f"{folder.name} elsewhere"))
        return result

    monkeypatch.setattr(dask_executor.DaskExecutor, "plan", planned)
    return moved.append


def test_the_sources_travel_with_what_they_import(cluster, sample, tmp_path, vanishing, store):
    head, _, kernel = SCALE.partition("\n@triton.jit\ndef scale(")
    folder = tmp_path / "project"
    written(folder / "pkg", "", "__init__.py")
    written(folder / "pkg", head, "helpers.py")
    inner = f"{HEAD}from .helpers import FACTOR, _scaled\n\n@triton.jit\ndef scale({kernel}"
    source = written(folder / "pkg", inner, "ops.py")
    vanishing(folder)
    result = compile_targets(clustered(cluster, source, GFX942, store=store))
    assert not result.failures
    # The same source in one file: what a variant is made from does not say where it stands.
    assert packed(result.targets[GFX942]) == sample.bundle(GFX942).data


def test_kernels_of_another_source_there_are_refused(cluster, tmp_path, monkeypatch, store):
    # What the cluster has differs from what was planned: here, because the source is edited in between.
    source = written(tmp_path, SINGLE)
    pack = dask_executor.shipping.packed

    def late(sources):
        source.path.write_text(edited(SINGLE, ("tl.store(x, V)", "tl.store(x, V + 1)")))
        return pack(sources)

    monkeypatch.setattr(dask_executor.shipping, "packed", late)
    monkeypatch.setattr(dask_executor, "NO_FIT_SECONDS", 1.0)
    with pytest.raises(RemoteError, match=r"kernel source store: sha256:\w+ where the build was planned, sha256:\w+"):
        compile_targets(clustered(cluster, source, store=store))


def traced(modules: dict[str, str], sources: Mapping[str, Digest]) -> bytes:
    """A trace of one variant of the kernel `store` of each module, some of which stand in it as text."""
    rows = []
    for module, text in modules.items():
        key = VariantKey.parse(f"{module}.store[hip:gfx942](x:*fp32:D,V=1.0){{num_warps=1}}")
        rows.append(Recorded(key, module, sources.get(key.kernel, Digest.of(b"")), constexprs=("V",), text=text))
    return Trace.of(rows).to_bytes()


HELPED = """import traced_here.helpers as helpers
import triton
import triton.language as tl

@triton.jit
def store(x, V: tl.constexpr):
    tl.store(x, helpers.twice(V))
"""


def test_a_trace_is_built_on_a_cluster_with_text_of_generated_kernels(
    aotkern, cluster, tmp_path, monkeypatch, vanishing
):
    folder = tmp_path / "project"
    written(folder / "traced_here", "", "__init__.py")
    written(folder / "traced_here", SINGLE, "ops.py")
    helper = "import triton\n\n@triton.jit\ndef twice(value):\n    return value * 2\n"
    written(folder / "traced_here", helper, "helpers.py")
    modules = {"traced_here.ops": "", f"{GENERATED}{Digest.of(HELPED.encode()).hex[:12]}": HELPED}
    trace = tmp_path / "t.jsonl"
    trace.write_bytes(traced(modules, {}))
    monkeypatch.syspath_prepend(str(folder))
    local = built(Source("trace", trace, allow_stale=True, generated=True)).targets[GFX942].manifest
    trace.write_bytes(traced(modules, {kernel.name: kernel.source for kernel in local.kernels}))
    vanishing(folder)
    there = ("--executor", "dask", "--scheduler", cluster.address)
    answer = aotkern(
        "build", "--from", trace, "--generated", "-t", "gfx942", "--no-cache", *there, "-o", tmp_path, "--json"
    )
    assert answer.json("build")["compiled"] == 2
    assert Bundle.open(tmp_path / "t.gfx942.aotk").manifest == local


def test_a_version_of_triton_that_was_not_tested_is_refused_before_anything_travels(
    cluster, tmp_path, monkeypatch, store
):
    import triton

    there = other_triton(tmp_path / "triton", "__init__.py", (f"'{triton.__version__}'", "'9.9.9'"))
    monkeypatch.syspath_prepend(str(there))
    monkeypatch.setattr(dask_executor.shipping, "packed", pytest.fail)
    with pytest.raises(InputError, match=r"hip:gfx942: expected a version of Triton that was tested .* Triton 9\.9\.9"):
        compile_targets(clustered(cluster, written(tmp_path, SINGLE), store=store))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1"])
def test_a_scheduler_that_is_not_there_is_named_soon(aotkern, sample, tmp_path, monkeypatch, address):
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 1.0)
    started = time.monotonic()
    answer = aotkern("build", sample.source.path, "-o", tmp_path, "--executor", "dask", "--scheduler", address)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith(
        f"aotkern: scheduler {address}: expected a Dask scheduler that answers within 1 s, found "
    )
    assert time.monotonic() - started < 10


def test_a_cluster_without_workers_and_a_scheduler_that_goes_away_are_told(
    tmp_path_factory, tmp_path, monkeypatch, store
):
    from clusters import Cluster

    monkeypatch.setattr(dask_executor, "NO_WORKER_SECONDS", 1.0)
    made = Cluster(tmp_path_factory.mktemp("gone"))
    source = written(tmp_path, MANY)
    try:
        with pytest.raises(RemoteError, match="expected a worker that can compile for this build, found none for 1 s"):
            compile_targets(clustered(made, source, store=store))
        made.add("one")
        with made.client() as client:
            made.named(client, "one")
        with pytest.raises(RemoteError, match=f"scheduler {made.address}: expected .* until the build ends"):
            compile_targets(clustered(made, source, store=store), lambda step: made.scheduler.kill())
    finally:
        made.end()


def test_without_dask_its_extra_is_named(sample, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingToolError, match=r"for --executor dask: pip install 'aotkern\[dask\]'"):
        compile_targets(request(sample.source, executor="dask", scheduler="tcp://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--executor", "dask"), "--executor dask: expected --scheduler with the address of a Dask scheduler"),
        (("--scheduler", "tcp://x:1"), "--scheduler: expected --executor dask, found --executor local"),
        (("--executor", "dask", "--scheduler", "tcp://x:1", "-j2"), "--jobs: expected --executor local, found"),
        (("--executor", "dask", "--scheduler", "tcp://x:1", "--line-info"), "--line-info: expected --executor local"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_options_that_mean_nothing_together_are_refused(aotkern, sample, arguments, message):
    answer = aotkern("build", sample.source.path, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


def test_a_module_that_is_installed_does_not_travel(tmp_path, monkeypatch):
    written(tmp_path / "site-packages" / "installed_one", "", "__init__.py")
    written(tmp_path / "local_one", "", "__init__.py")
    written(tmp_path / "local_one" / "deep", "X = 1\n", "rows.py")
    for folder in (tmp_path, tmp_path / "site-packages"):
        monkeypatch.syspath_prepend(str(folder))
    shipment = dask_executor.shipping.packed([Source("installed_one"), Source("local_one.deep.rows"), Source("json")])
    assert set(shipment.files) == {"source1/local_one/__init__.py", "source1/local_one/deep/rows.py"}
    assert shipment.paths == ("source1",)


def test_of_a_generated_kernel_what_its_text_imports_travels(tmp_path, monkeypatch):
    written(tmp_path / "local_one", "", "__init__.py")
    text = "import json\nimport triton\nfrom local_one import deep as d\n"
    name = f"{GENERATED}{Digest.of(text.encode()).hex[:12]}"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # as in the process that generated it: it has no spec
    trace = tmp_path / "t.jsonl"
    trace.write_bytes(traced({name: text}, {}))
    shipment = dask_executor.shipping.packed([Source("trace", trace)])
    assert set(shipment.files) == {"source0/t.jsonl", "source0/local_one/local_one/__init__.py"}
    assert shipment.paths == ("source0/local_one",)


def other_triton(folder: Path, name: str, *changes: tuple[str, str], more: str = "") -> Path:
    """A folder with a Triton that differs from the installed one in one file."""
    import triton

    installed, copy = Path(triton.__file__).parent, folder / "triton"
    copy.mkdir(parents=True)
    for path in installed.iterdir():
        (copy / path.name).symlink_to(path)
    (copy / name).unlink()
    (copy / name).write_text(edited((installed / name).read_text(), *changes) + more)
    return folder


def other_aotkern(folder: Path) -> Path:
    package = Path(dask_executor.__file__).parents[1]
    shutil.copytree(package, folder / "aotkern", ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    (folder / "aotkern" / "canonical.py").open("a").write("# changed\n")
    return folder


@pytest.fixture(scope="module")
def others(cluster, tmp_path_factory) -> Iterator[dict[str, str]]:
    """Workers of the cluster that must not compile: addresses by name."""
    tmp_path = tmp_path_factory.mktemp("others")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "aotkern.py").write_text("raise ImportError('no aotkern here')\n")
    places = {
        "other toolchain": other_triton(tmp_path / "triton", "_utils.py", more="# patched\n"),
        "other aotkern": other_aotkern(tmp_path / "aotkern"),
        "no aotkern": tmp_path / "none",
    }
    processes = [process for name, place in places.items() for process in cluster.add(name, path=(place,))]
    try:
        with cluster.client() as client:
            yield {name: worker.address for name, worker in cluster.named(client, *places).items()}
    finally:
        cluster.end(*processes)


def test_a_worker_with_another_toolchain_or_aotkern_contributes_nothing(
    cluster, others, tmp_path, many, monkeypatch, store
):
    seen, outcomes = [], []
    came = dask_executor._Run._came

    def watched(self, future, key, outcome):
        outcomes.append(outcome)
        seen.append(dict(self._refused))
        came(self, future, key, outcome)

    monkeypatch.setattr(dask_executor._Run, "_came", watched)
    source = written(tmp_path, MANY)
    result = compile_targets(clustered(cluster, source, store=store))
    assert not result.failures
    assert packed(result.targets[GFX942]) == many
    assert not {outcome.worker for outcome in outcomes if outcome.answer} & set(others.values())
    assert seen[-1].keys() <= set(others.values())
    assert others["other toolchain"] in seen[-1]


REASONS = {
    "other toolchain": r"toolchain triton_digest: {} where the build was planned, sha256:\w{{64}} there",
    "other aotkern": r"aotkern: sha256:\w{{64}} where the build was planned, sha256:\w{{64}} there",
    "no aotkern": r"aotkern: sha256:\w{{64}} where the build was planned, ImportError\('no aotkern here'\) there",
}


def test_a_cluster_of_such_workers_is_refused_with_the_reasons(cluster, others, sample, tmp_path, monkeypatch, store):
    # As if the workers that fit had never come.
    from distributed import Client

    monkeypatch.setattr(dask_executor, "NO_FIT_SECONDS", 1.0)
    everything, theirs = Client.nthreads, set(others.values())

    def nthreads(self):
        return {worker: count for worker, count in everything(self).items() if worker in theirs}

    monkeypatch.setattr(Client, "nthreads", nthreads)
    with pytest.raises(RemoteError) as caught:
        compile_targets(clustered(cluster, written(tmp_path, SINGLE), store=store))
    message = str(caught.value)
    assert message.startswith(f"scheduler {cluster.address}: expected a worker that can compile for this build, found ")
    planned = sample.build(GFX942).manifest.toolchain["triton_digest"]
    for name, reason in REASONS.items():
        assert re.search(f"{others[name]}: {reason.format(planned)}(;|$)", message), message
