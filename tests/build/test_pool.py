"""Workers that hang, die, shout or are told to stop."""

import os
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("triton")

from making import GFX942, GFX950, HEAD, SCALE, SINGLE, edited, request, written

from aotkern.audit.findings import Verdict
from aotkern.build import environment, pool
from aotkern.build.builder import compile_targets
from aotkern.errors import BuildError, InputError, MachineError
from aotkern.report import built

TWO = (
    HEAD
    + """
@triton.jit
def store(x, V: tl.constexpr):
    tl.store(x, V)


@triton.jit
def endless(x):
    value = tl.load(x)
    for i in tl.static_range(100_000_000):
        value += i
    tl.store(x, value)


X = {"x": Pointer("fp32", "any")}
KERNELS = (
    Kernel(endless, Space(("gfx942",), X, options={"num_warps": 1})),
    Kernel(store, Space(("gfx942",), {**X, "V": Constexpr(1.0, 2.0)}, options={"num_warps": 1})),
)
"""
)
STORE = "store[hip:gfx942](x:*fp32:D,V=1.0){num_warps=1}"
ENDLESS = "endless[hip:gfx942](x:*fp32:D){num_warps=1}"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Scratch folders of workers in a place that can be looked at."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def children():
    """Processes that this one started and that still run."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def test_a_variant_that_takes_too_long_fails_with_its_key_and_the_others_are_built(tmp_path, temporary):
    before = children()
    result = compile_targets(request(written(tmp_path, TWO), seconds=3.0))
    assert [(error.key, error.reason) for error in result.failures] == [(ENDLESS, "no answer within 3 s")]
    assert len(result.seconds) == 2
    assert result.targets == {}
    assert children() == before
    assert list(temporary.iterdir()) == []


@pytest.fixture
def killing(monkeypatch):
    """Kill the worker as soon as it was asked to compile `ENDLESS`."""
    ask = pool.WorkerProcess.ask

    def fatal(self, question, seconds):
        if question.get("text") == ENDLESS:
            threading.Timer(0.3, os.kill, (self._process.pid, signal.SIGKILL)).start()
        return ask(self, question, seconds)

    monkeypatch.setattr(pool.WorkerProcess, "ask", fatal)


def test_a_worker_killed_while_it_compiles_costs_only_its_variant(tmp_path, temporary, killing):
    result = compile_targets(request(written(tmp_path, TWO)))
    (error,) = result.failures
    assert error.key == ENDLESS
    assert error.reason == "the worker died (signal SIGKILL); so did the one before it"
    assert len(result.seconds) == 2
    assert list(temporary.iterdir()) == []
    # The machine, and not the kernel, prevented it: nothing is said about the kernel.
    assert isinstance(error, MachineError)
    assert built.verdict(result) is Verdict.UNKNOWN
    result.failures.append(BuildError("other", "does not compile"))
    assert built.verdict(result) is Verdict.FINDINGS


def test_a_worker_that_is_killed_once_costs_nothing(tmp_path, monkeypatch):
    ask = pool.WorkerProcess.ask
    killed = []

    def fatal(self, question, seconds):
        if question.get("text") == STORE and not killed:
            killed.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)
        return ask(self, question, seconds)

    monkeypatch.setattr(pool.WorkerProcess, "ask", fatal)
    text = edited(TWO, ('    Kernel(endless, Space(("gfx942",), X, options={"num_warps": 1})),\n', ""))
    result = compile_targets(request(written(tmp_path, text)))
    assert (len(killed), result.failures) == (1, [])
    assert len(result.targets[GFX942].manifest.variants) == 2


@pytest.mark.parametrize("error", ["OSError(28, 'No space left on device')", "MemoryError()"])
def test_a_compiler_without_room_says_nothing_about_the_kernel(tmp_path, error):
    broken = "from triton.runtime.cache import FileCacheManager\n"
    broken += f"def put(*_, **__):\n    raise {error}\nFileCacheManager.put = put\nKERNELS = ("
    text = edited(TWO, ('    Kernel(endless, Space(("gfx942",), X, options={"num_warps": 1})),\n', ""))
    result = compile_targets(request(written(tmp_path, edited(text, ("KERNELS = (", broken)))))
    assert {type(failure) for failure in result.failures} == {MachineError}
    assert built.verdict(result) is Verdict.UNKNOWN


def test_what_a_dying_worker_printed_is_part_of_the_reason(tmp_path):
    text = edited(TWO, ("KERNELS = (", "import os\nos.write(2, b'last words')\nos._exit(7)\nKERNELS = ("))
    with pytest.raises(
        BuildError, match=r"kernel sources: the worker died \(exit code 7\); it last printed:\nlast words"
    ):
        compile_targets(request(written(tmp_path, text)))


def test_a_worker_that_closes_its_pipes_and_lives_on_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "_FAREWELL_SECONDS", 0.5)
    text = edited(TWO, ("KERNELS = (", "import os, time\nos.closerange(3, 64)\ntime.sleep(600)\nKERNELS = ("))
    before = children()
    with pytest.raises(BuildError, match="the worker died"):
        compile_targets(request(written(tmp_path, text)))
    assert children() == before


def test_a_source_that_prints_disturbs_nobody(tmp_path):
    noise = 'print(\'{"error": "x"}\', flush=True)\nimport os\nos.write(1, b"more\\n")\nos.write(2, b"more\\n")\n'
    text = edited(
        TWO,
        ("KERNELS = (", f"{noise}KERNELS = ("),
        ('Kernel(endless, Space(("gfx942"', 'Kernel(endless, Space(("gfx950"'),
    )
    result = compile_targets(request(written(tmp_path, text), GFX942))
    assert not result.failures
    assert len(result.targets[GFX942].manifest.variants) == 2


@pytest.mark.parametrize("text", ["KERNELS = 5\n", "KERNELS = ()\n", "1 / 0\n"])
def test_a_source_that_is_refused_leaves_no_process_behind(tmp_path, temporary, text):
    before = children()
    with pytest.raises(InputError):
        compile_targets(request(written(tmp_path, text)))
    assert children() == before
    assert list(temporary.iterdir()) == []


def test_a_declaration_that_is_refused_leaves_no_process_behind(tmp_path, temporary):
    before = children()
    with pytest.raises(InputError, match="a choice for this parameter"):
        compile_targets(request(written(tmp_path, edited(TWO, (', "V": Constexpr(1.0, 2.0)', "")))))
    assert children() == before
    assert list(temporary.iterdir()) == []


def test_an_interrupt_does_not_wait_for_what_is_being_compiled(tmp_path, temporary):
    # Ctrl-C reaches the parent only, whose threads wait for workers; the endless variant would end by its time-out.
    before, steps = children(), []
    main = threading.main_thread().ident
    threading.Timer(3.0, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        compile_targets(request(written(tmp_path, TWO), seconds=30.0), steps.append)
    assert steps == []
    assert children() == before
    assert list(temporary.iterdir()) == []


def test_a_fault_of_the_caller_ends_the_workers_too(tmp_path):
    def tell(_):
        raise ZeroDivisionError

    before = children()
    with pytest.raises(ZeroDivisionError):
        compile_targets(request(written(tmp_path, TWO), reverse=True, seconds=600.0), tell)
    assert children() == before


def test_a_toolchain_that_cannot_be_described_ends_the_build(tmp_path, temporary, monkeypatch):
    # Of two workers the second describes the toolchain; it dies over it while the first one plans.
    original = pool.WorkerProcess.ask

    def ask(self, request, seconds):
        if request["do"] == "describe":
            self.kill()
        return original(self, request, seconds)

    monkeypatch.setattr(pool.WorkerProcess, "ask", ask)
    source, before = written(tmp_path, SINGLE), children()
    for more in ({"jobs": 2}, {"jobs": 1}, {"jobs": 2, "store": tmp_path / "store"}):
        with pytest.raises(BuildError, match=r"kernel sources: the worker died \(signal SIGKILL\)"):
            compile_targets(request(source, GFX942, **more))
        assert children() == before
        assert not list(temporary.iterdir())


def setting(source):
    return pool.Setting((source,), environment.pinned(), {"PATH": os.environ["PATH"]}, {})


def test_a_plan_lists_equal_options_once(tmp_path):
    with pool.Pool(setting(written(tmp_path, SCALE)), 1) as workers:
        plan, toolchain = workers.plan([str(GFX942), str(GFX950)], (), 100, None)
    assert [row["arch"] for row in plan["options"]] == ['"gfx942"', '"gfx950"']
    places = [(key.partition("[")[2].partition("]")[0], place) for key, place in plan["variants"]]
    assert places == [(str(GFX942), 0)] * 2 + [(str(GFX950), 1)] * 3
    assert toolchain().keys() == {"triton", "amd_codegen", "triton_digest"}


class Watched(bytearray):
    """A buffer that counts the bytes that are searched in it."""

    searched = 0

    def find(self, what, start=0):
        self.searched += len(self) - start
        return super().find(what, start)


def test_no_byte_of_a_long_answer_is_searched_twice():
    reading, writing = os.pipe()
    answer = b"x" * (3 << 20) + b"\n"  # a plan; a pipe gives it in pieces of at most 64 KiB
    worker = object.__new__(pool.WorkerProcess)
    worker._answers, worker._buffer = reading, Watched()
    with os.fdopen(writing, "wb") as pipe:
        writer = threading.Thread(target=lambda: (pipe.write(answer), pipe.flush()))
        writer.start()
        line = worker._line(60.0)
        writer.join()
    os.close(reading)
    assert line == answer[:-1]
    assert worker._buffer == b""
    assert worker._buffer.searched == len(answer)


def test_a_worker_that_is_not_admitted_makes_room_for_another(tmp_path):
    asked = []

    def admit(worker):
        asked.append(worker)
        if len(asked) == 1:
            raise InputError.one("worker", "a good one", "a bad one")

    source = written(tmp_path, SINGLE)
    with pool.Pool(setting(source), 1, 0, tmp_path, admit) as workers:
        with pytest.raises(InputError, match="a bad one"):
            workers.compile_one("store[hip:gfx942](x:*fp32:D,V=1.0){num_warps=1}", 60.0)
        for _ in range(2):
            _, data = workers.compile_one("store[hip:gfx942](x:*fp32:D,V=1.0){num_warps=1}", 60.0)
        assert [path.parent.parent for path in tmp_path.glob("*/1/object")] == list(tmp_path.glob("aotkern-*"))
    assert data.startswith(b"\x7fELF")
    assert len(asked) == 2
    assert not list(tmp_path.glob("aotkern-*"))
