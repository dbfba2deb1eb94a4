"""Programs that are recorded, built and run: what a recording must not change, and what it must say."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from making import Command, aotkern  # noqa: F401 - a fixture

import aotkern as product
from aotkern.bundle import Bundle
from aotkern.canonical import dumps
from aotkern.digest import Digest
from aotkern.errors import MissError
from aotkern.spec import VariantKey
from aotkern.target import Target
from aotkern.trace import GENERATED, VERSION, Recorded, Trace, Unbuildable, merge
from aotkern.triton_bridge import written
from aotkern.triton_bridge.paper import PaperTensor, paper_device
from aotkern.triton_bridge.recording import record

pytest.importorskip("triton")

HEAD = "import os\nimport triton\nimport triton.language as tl\n\n\n"
I32, F32 = PaperTensor("int32"), PaperTensor("float32")


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """Modules of a test are imported from its own folder, and forgotten after it."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and name.startswith("prog_"):
            del sys.modules[name]


@pytest.fixture
def program(tmp_path, monkeypatch) -> Callable[..., ModuleType]:
    """Write and import a module of kernels; again, as another process would."""

    def made(text: str, name: str = "prog_kern") -> ModuleType:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(HEAD + text)
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return made


def build(command: Command, folder: Path, trace: Trace, *arguments: str, code: int = 0) -> dict:
    """The document of a build of a trace, into `folder/out`."""
    (folder / "t.jsonl").write_bytes(trace.to_bytes())
    places = ("--path", folder / "program", "-o", folder / "out", "-j1", "--json")
    return command("build", "--from", folder / "t.jsonl", *places, *arguments).json("build", code)


def served(folder: Path, on_miss="error"):
    return product.install(folder / "out", on_miss=on_miss)


def as_last_is_fastest(device) -> None:
    """A benchmark of the program's own, which no paper device made up."""
    times = itertools.count(10**6, -1)
    device.get_benchmarker = lambda: lambda call, quantiles=None: (call(), [float(next(times))] * 3)[1]


REFUSED = """
def helper(n):
    return n + int(os.environ.get("PROG_SECRET", "3"))


@triton.constexpr_function
def computed():
    return helper(1)


@triton.jit
def kernel(o):
    tl.store(o, computed())
"""


def attempts(module: ModuleType) -> list[str]:
    """What a program sees that asks twice for a kernel, and what Triton keeps of it."""
    seen = []
    with paper_device(Target.parse("gfx942")):
        for _ in range(2):
            try:
                seen.append(type(module.kernel[(1,)](I32)).__name__)
            except Exception as error:
                seen.append(type(error).__name__)
    return [*seen, str(module.kernel.hash), str(module.computed.hash)]


def test_a_kernel_that_triton_refuses_is_refused_when_it_is_recorded(program):
    alone = attempts(program(REFUSED))
    with record() as found:
        recorded = attempts(program(REFUSED))
    assert recorded == alone
    assert alone[0] == "RuntimeError"
    (row,) = (row for row in found[0].unbuildable if row.kind == "compile")
    assert row.kernel == "prog_kern.kernel"
    assert row.reason == "it did not compile when it was recorded: RuntimeError"
    assert row.target == "hip:gfx942"


VARIED = """
import enum
import logging

logger = logging.getLogger("prog")
PLACE = os.environ.get("PROG_SECRET", "")
COUNT = tl.constexpr(len(PLACE))


class Thing:
    def __repr__(self):
        return f"<Thing at {hex(id(self))} of {PLACE}>"


class Mode(enum.Enum):
    SECRET = "secret"


@triton.constexpr_function
def place():
    return len(PLACE)


def total(x):
    logger.debug("%s", x)


@triton.jit
def plain(o, F: tl.constexpr):
    total = tl.load(o)
    tl.store(o, total + COUNT + place())


@triton.autotune([triton.Config({"B": 16, "M": Mode.SECRET}), triton.Config({"B": 32, "M": Thing()})], key=["n"])
@triton.jit
def tuned(o, n, B: tl.constexpr, M: tl.constexpr):
    tl.store(o + tl.arange(0, B), n)


def outer():
    @triton.jit
    def inner(o):
        tl.store(o, 1)

    return inner
"""


def test_a_trace_holds_no_repr_address_path_or_value_of_the_environment(program, monkeypatch, tmp_path):
    monkeypatch.setenv("PROG_SECRET", "hunter2-and-more")
    module = program(VARIED)
    refused = program(REFUSED, "prog_refused")
    with record() as found, paper_device(Target.parse("gfx942")):
        module.plain[(1,)](I32, 1)
        for value in (lambda: 1, module.Thing(), os.environ):
            with pytest.raises(Exception):  # noqa: B017, PT011 - or nothing would be refused
                module.plain[(1,)](I32, value)
                raise ValueError
        module.tuned[(1,)](I32, 1000)
        module.outer()[(1,)](I32)
        with pytest.raises(RuntimeError):
            refused.kernel[(1,)](I32)
    text = found[0].to_bytes().decode()
    assert len(found[0].recorded) >= 1
    assert len(found[0].unbuildable) >= 4
    for secret in ("0x", "hunter2", str(tmp_path), "/", "<", "environ({"):
        assert secret not in text.replace("<locals>", ""), [line for line in text.splitlines() if secret in line]


PARTIAL = """
class Wrapped:
    def __init__(self, inside):
        self.inside = inside

    def __getitem__(self, grid):
        return self.inside[grid]


def hidden(function):
    table = {"inside": function}

    class Hidden:
        def __class_getitem__(cls, grid):
            return table["inside"][grid]

    return Hidden


@triton.jit
def good(x):
    tl.store(x, 1)


@triton.jit
def probe(x, B: tl.constexpr):
    tl.static_assert(B < 64, "not supported here")
    tl.store(x, B)


@Wrapped
@triton.jit
def decorated(x):
    tl.store(x, 3)


@triton.jit
def _plain(x):
    tl.store(x, 4)


renamed = _plain
del _plain


def body(x):
    tl.store(x, 5)


base = triton.jit(body)


@hidden
@triton.jit
def lost(x):
    tl.store(x, 6)
"""
NAMES = ("good", "decorated", "renamed", "base", "lost")


def run_partial(module: ModuleType, names=NAMES) -> None:
    with paper_device(Target.parse("gfx942")):
        with pytest.raises(Exception, match="not supported here"):
            module.probe[(1,)](I32, 128)
        for name in names:
            getattr(module, name)[(1,)](I32)


def test_what_cannot_be_built_is_named_when_it_is_recorded_and_the_rest_is_built(program, aotkern, tmp_path):  # noqa: F811
    with record() as found:
        run_partial(program(PARTIAL))
    assert {(row.kernel, row.kind) for row in found[0].unbuildable} == {
        ("prog_kern.probe", "compile"),
        ("prog_kern.lost", "unnamed"),
    }
    refused = build(aotkern, tmp_path, found[0], "--strict", code=1)
    assert refused["bundles"] == []
    assert not (tmp_path / "out").exists()
    document = build(aotkern, tmp_path, found[0], code=1)
    assert [(row["target"], row["variants"]) for row in document["bundles"]] == [("hip:gfx942", 4)]
    assert {(row["what"], row["kind"]) for row in document["left_out"]} == {
        ("prog_kern.probe", "compile"),
        ("prog_kern.lost", "unnamed"),
    }
    complete = build(aotkern, tmp_path, found[0], "--exclude", "*.probe", "--exclude", "*.lost")
    assert (complete["verdict"], complete["left_out"]) == ("clean", [])
    module = program(PARTIAL)
    installation = served(tmp_path)
    try:
        with paper_device(Target.parse("gfx942")):
            for name in NAMES[:4]:
                assert type(getattr(module, name)[(1,)](I32)).__name__ == "PrebuiltKernel"
    finally:
        installation.remove()


def test_a_module_that_is_gone_and_an_edited_kernel_cost_only_themselves(program, aotkern, tmp_path):  # noqa: F811
    kernels = "@triton.jit\ndef one(x):\n    tl.store(x, 1)\n\n\n@triton.jit\ndef two(x):\n    tl.store(x, 2)\n"
    gone = program(kernels, "prog_gone")
    module = program(kernels)
    with record() as found, paper_device(Target.parse("gfx942")):
        for kernel in (module.one, module.two, gone.one):
            kernel[(1,)](I32)
    (tmp_path / "program" / "prog_gone.py").write_text("import no_such_module_anywhere\n")
    program(kernels.replace("tl.store(x, 2)", "tl.store(x, 3)"))
    document = build(aotkern, tmp_path, found[0], code=1)
    assert {(row["what"], row["kind"]) for row in document["left_out"]} == {
        ("prog_gone.one", "import"),
        ("prog_kern.two", "stale"),
    }
    assert [row["variants"] for row in document["bundles"]] == [1]


def test_options_that_a_target_does_not_have_cost_only_that_variant(program, aotkern, tmp_path):  # noqa: F811
    module = program("@triton.jit\ndef one(n):\n    tl.device_assert(n > 0)\n")
    with record() as found, paper_device(Target.parse("cuda:90")):
        module.one[(1,)](16)
        module.one[(1,)](16, num_ctas=2)
    document = build(aotkern, tmp_path, found[0], "-t", "gfx942", code=1)
    (left,) = document["left_out"]
    assert "num_ctas=2" in left["what"]
    assert [row["variants"] for row in document["bundles"]] == [1]
    assert any("built from what was recorded on cuda:90" in note for note in document["notes"])


MACHINE = """
DEVICE = triton.runtime.driver.active.get_current_target().arch
ACTIVE = [name for name, one in triton.backends.backends.items() if one.driver.is_active()]
assert len(ACTIVE) == 1, ACTIVE
FAST: tl.constexpr = tl.constexpr(os.environ.get("PROG_FAST", "0") == "1")
LIMIT = 224.0 if DEVICE == "gfx942" else 448.0
PRECISION: tl.constexpr = tl.constexpr("tf32" if DEVICE == 90 else "ieee")


@triton.jit
def flag(o):
    if FAST:
        tl.store(o, 1)
    else:
        tl.store(o, 2)


@triton.jit
def quantised(x, FP8_MAX: tl.constexpr = LIMIT):
    tl.store(x, tl.load(x) * FP8_MAX)


@triton.jit
def precise(o):
    if PRECISION == "tf32":
        tl.store(o, 3)
    else:
        tl.store(o, 4)


@triton.jit
def clamped(x, limit: tl.constexpr = LIMIT):
    return x * limit


@triton.jit
def calls(x):
    tl.store(x, clamped(tl.load(x)))
"""


def run_machine(program, target: str) -> None:
    with paper_device(Target.parse(target)):
        module = program(MACHINE)
        module.flag[(1,)](I32)
        module.quantised[(1,)](F32)
        module.precise[(1,)](I32)
        module.calls[(1,)](F32)


def test_constants_of_the_recording_machine_are_bound_where_it_is_built(program, aotkern, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("PROG_FAST", "1")
    with record() as found:
        for target in ("gfx942", "cuda:90"):
            run_machine(program, target)
    monkeypatch.delenv("PROG_FAST")
    document = build(aotkern, tmp_path, found[0])
    assert [row["target"] for row in document["bundles"]] == ["cuda:90", "hip:gfx942"]
    assert "prog_kern.FAST: True when recorded, False here; built as it was recorded" in document["notes"]
    monkeypatch.setenv("PROG_FAST", "1")
    installation = served(tmp_path)
    try:
        for target in ("gfx942", "cuda:90"):
            run_machine(program, target)
        assert sum(installation.counts.hits.values()) == 8
    finally:
        installation.remove()


def test_each_kernel_is_compiled_with_the_values_that_were_recorded_with_it(program, aotkern, tmp_path, monkeypatch):  # noqa: F811
    other = MACHINE.replace("def flag(", "def other(")

    def recorded(value: str, name: str, text: str) -> Trace:
        monkeypatch.setenv("PROG_FAST", value)
        with record() as found, paper_device(Target.parse("gfx942")):
            getattr(program(text, "prog_both"), name)[(1,)](I32)
        return found[0]

    both = MACHINE + other.partition("@triton.jit")[1] + other.partition("@triton.jit")[2].partition("@triton.jit")[0]
    traces = [recorded("1", "flag", both), recorded("0", "other", both)]
    codes = []
    for trace in (*traces, merge(traces)):
        build(aotkern, tmp_path, trace)
        manifest = Bundle.open(tmp_path / "out" / "t.gfx942.aotk").manifest
        codes.append({variant.kernel: str(variant.object) for variant in manifest.variants})
    assert codes[2] == {**codes[0], **codes[1]}


def test_a_value_that_cannot_be_bound_is_named_and_not_called_stale(program, aotkern, tmp_path):  # noqa: F811
    with record() as found:
        run_machine(program, "gfx942")
    path = tmp_path / "program" / "prog_kern.py"
    path.write_text(path.read_text().replace("LIMIT = 224.0 if", "LIMIT = 225.0 if"))
    document = build(aotkern, tmp_path, found[0], code=1)
    (left,) = document["left_out"]
    assert (left["what"], left["kind"]) == ("prog_kern.calls", "values")
    assert left["reason"] == "it reads prog_kern.clamped(limit): 224.0 when recorded, 225.0 here"


TUNERS = """
import enum
from triton.runtime.autotuner import Autotuner

C = triton.Config


class Opt(enum.Enum):
    Y = 1


def own(configs, args, **kwargs):
    return [C({"B": 16}), C({"B": 32})]


@triton.jit
def shared(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i, mask=i < n)


first = triton.autotune([C({"B": 16}), C({"B": 32})], key=["n"])(shared)
second = triton.autotune([C({"B": 16}), C({"B": 64}, num_stages=3)], key=["n"])(shared)


@triton.autotune([C({"B": 128}), C({"B": 256})], key=["n"], prune_configs_by={"early_config_prune": own})
@triton.jit
def pruned(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i + 1, mask=i < n)


@triton.autotune([C({"B": 128, "E": Opt.Y}), C({"B": 64, "E": None})], key=["n"])
@triton.jit
def valued(x, n, B: tl.constexpr, E: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i + 2, mask=i < n)


class Own(Autotuner):
    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        found = self.prune_configs(kwargs)
        times = {config: self._bench(*args, config=config, **kwargs) for config in found}
        best = min(times, key=times.get)
        return self.fn.run(*args, **kwargs, **best.all_kwargs())


@triton.jit
def inner(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i + 3, mask=i < n)


owned = Own(inner, inner.arg_names, [C({"B": 16}), C({"B": 32})], ["n"], None, None)
"""
TUNED = ("first", "second", "pruned", "valued", "owned")


def test_autotuners_are_known_by_what_they_are(program, aotkern, tmp_path):  # noqa: F811
    def run(target: str) -> list[str]:
        module = program(TUNERS)
        with paper_device(Target.parse(target)) as device:
            as_last_is_fastest(device)
            return [type(getattr(module, name)[(1,)](I32, 1000)).__name__ for name in TUNED]

    with record() as found:
        run("cuda:90")
    assert not found[0].unbuildable
    assert sorted((row.kernel.rpartition(".")[2], dict(row.config)["B"]) for row in found[0].chosen) == [
        ("inner", "32"),
        ("pruned", "32"),
        ("shared", "32"),
        ("shared", "64"),
        ("valued", "64"),
    ]
    document = build(aotkern, tmp_path, found[0], "-t", "cuda:90", "-t", "gfx942")
    # No candidate is built that was not chosen; on AMD each pointer has two storage classes.
    assert {row["target"]: row["variants"] for row in document["bundles"]} == {"cuda:90": 5, "hip:gfx942": 10}
    assert "hip:gfx942: 5 choices of autotuners are borrowed from cuda:90" in document["notes"]
    installation = served(tmp_path)
    try:
        # Another back end has another default of num_stages than the configurations name.
        for target in ("cuda:90", "gfx942"):
            assert run(target) == ["PrebuiltKernel"] * 5
        assert sum(installation.counts.tuned.values()) == 10
    finally:
        installation.remove()
    shown = aotkern("show", tmp_path / "out" / "t.gfx942.aotk")
    assert "tuning  5 choices of autotuners (5 borrowed from cuda:90)" in shown.out


PAPER = """
@triton.autotune([triton.Config({"B": b}) for b in (32768, 16, 64)], key=["n"])
@triton.jit
def tuned(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, i, mask=i < n)


@triton.jit
def plain(x):
    tl.store(x, 1)
"""


def test_a_choice_on_paper_is_marked_and_left_out_unless_somebody_takes_it(program, aotkern, tmp_path):  # noqa: F811
    def run() -> None:
        module = program(PAPER)
        with paper_device(Target.parse("gfx942")):
            module.plain[(1,)](I32)
            module.tuned[(1,)](I32, 1000)

    with record() as found:
        run()
    (choice,) = found[0].chosen
    assert choice.paper
    document = build(aotkern, tmp_path, found[0], code=1)
    (left,) = document["left_out"]
    assert (left["what"], left["kind"]) == ("prog_kern.tuned", "untuned")
    assert "chose on paper" in left["reason"]
    assert "tuning" not in aotkern("show", tmp_path / "out" / "t.gfx942.aotk").out
    installation = served(tmp_path)
    try:
        with pytest.raises(MissError, match="no configuration is known for the tuning key"):
            run()
    finally:
        installation.remove()
    taken = build(aotkern, tmp_path, found[0], "--paper-choices")
    assert any("1 choices of autotuners were made on paper" in note for note in taken["notes"])
    assert (
        "tuning  1 choices of autotuners (1 made on paper)" in aotkern("show", tmp_path / "out" / "t.gfx942.aotk").out
    )
    installation = served(tmp_path)
    try:
        run()
        assert installation.counts.tuned == {"prog_kern.tuned": 1}
    finally:
        installation.remove()


LARGE = """
@triton.autotune([triton.Config({"B": b}, num_warps=4) for b in (256, 32)], key=["n"])
@triton.jit
def tuned(x, n, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(x + i, tl.dot(tl.load(x + i), tl.load(x + i + n)))
"""


def test_a_candidate_that_the_real_device_could_not_launch_is_none_on_paper(program):
    module = program(LARGE)
    with record() as found, paper_device(Target.parse("gfx942")):
        module.tuned[(1,)](PaperTensor("float32", storage=1 << 22), 1000)
    ((_, size), *_) = [pair for pair in found[0].chosen[0].config if pair[0] == "B"]
    assert size == "32"


def test_a_device_on_paper_has_the_limits_of_the_real_one():
    from triton.runtime.driver import driver

    for name, lds, units in (("gfx942", 65536, 304), ("gfx950", 163840, 256), ("cuda:90", 232448, 132)):
        with paper_device(Target.parse(name)):
            found = driver.active.utils.get_device_properties(0)
            assert (found["max_shared_mem"], found["multiprocessor_count"]) == (lds, units)


def trap(folder: Path) -> tuple[Path, Path]:
    """A trace whose text leaves a mark when it is executed."""
    mark = folder / "executed"
    text = f"open({str(mark)!r}, 'w').write('x')\n"
    name = f"{GENERATED}{Digest.of(text.encode()).hex[:12]}"
    key = VariantKey.parse(f"{name}.kernel[hip:gfx942](x:*fp32:DS)")
    row = Recorded(key, name, Digest.of(b"source"), text=text, triton="3.9.0")
    path = folder / "trap.jsonl"
    path.write_bytes(Trace.of([row]).to_bytes())
    return path, mark


@pytest.mark.parametrize(
    "command",
    [
        ("build", "TRAP", "-t", "gfx942", "-o", "OUT"),
        ("build", "--from", "TRAP", "-t", "gfx942", "-o", "OUT"),
        ("audit", "identity", "-t", "gfx942", "--baseline-ref", "HEAD", "TRAP"),
        ("audit", "reproducible", "TRAP"),
    ],
    ids=["build", "build from", "identity", "reproducible"],
)
def test_the_text_of_a_trace_runs_only_where_somebody_asks_for_it(aotkern, tmp_path, command):  # noqa: F811
    path, mark = trap(tmp_path)
    places = {"TRAP": path, "OUT": tmp_path / "out"}
    answer = aotkern(*(places.get(part, part) for part in command))
    assert answer.code == 2
    assert not mark.exists()


def test_a_function_in_a_wrapper_of_another_module_is_written_down(program):
    program(
        "class Wrapper:\n    def __init__(self, fn):\n        self.fn = fn\n\n\n"
        "@Wrapper\n@triton.jit\ndef add(a, b):\n    return a + b\n",
        "prog_ops",
    )
    text = (
        HEAD + "from prog_ops import add\n\nadd = add.fn\n\n\n@triton.jit\ndef kernel(x):\n    tl.store(x, add(1, 2))\n"
    )
    module = ModuleType("prog_made")
    sys.modules["prog_made"] = module
    place = Path(sys.modules["prog_ops"].__file__).with_name("prog_made.py")
    place.write_text(text)
    exec(compile(text, str(place), "exec"), vars(module))
    name, found = written.write(module.kernel)
    assert {"from prog_ops import add as add", "add = add.fn"} < set(found.splitlines())
    again: dict = {}
    (place.with_name(f"{name}.py")).write_text(found)
    exec(compile(found, str(place.with_name(f"{name}.py")), "exec"), again)
    assert again["kernel"].fn.__name__ == "kernel"


def test_the_module_of_a_program_is_its_file_in_spawned_processes_too(tmp_path):
    from aotkern.closure import MAIN
    from aotkern.triton_bridge import specialised

    place = tmp_path / "prog_main.py"
    place.write_text(HEAD + "@triton.jit\ndef kernel(x):\n    tl.store(x, 1)\n")
    for name in MAIN:
        scope = {"__name__": name, "__file__": str(place)}
        exec(compile(place.read_text(), str(place), "exec"), scope)
        assert specialised.module_of(scope["kernel"]) == "prog_main"
        assert not written.is_generated(scope["kernel"])


def test_reasons_come_through_a_trace():
    row = Unbuildable("m.k", "hip:gfx942", "it was left out", "compile")
    assert Trace.parse(Trace.of([row]).to_bytes(), "t").unbuildable == (row,)
    older = {"unbuildable": "m.k", "target": "hip:gfx942", "reason": "old"}
    head = dumps({"format": "aotkern.trace", "version": VERSION})
    (found,) = Trace.parse(f"{head}\n{json.dumps(older)}\n".encode(), "t").unbuildable
    assert found.kind == "unsupported"
