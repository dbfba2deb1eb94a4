"""The C extension under calls that no friendly program makes: errors as in Python, never a crash."""

from __future__ import annotations

import gc
import random
import sys
import threading
from functools import partial

import pytest
from stub_tensors import StubTensor
from test_native import c_launches, load, tensors

from aotkern.errors import AotkernError, DriverError
from aotkern.loader.observe import Hooks


@pytest.fixture
def bundle(hip, data, monkeypatch, extension):
    loaded = load(hip, data, monkeypatch, extension)
    loaded["scale"][1](*tensors(), 16, 1.0)  # the first call goes through Python, which tells C of the variant
    return loaded


@pytest.fixture(params=["python", "native"])
def either(request, hip, data, monkeypatch):
    module = request.getfixturevalue("extension") if request.param == "native" else None
    loaded = load(hip, data, monkeypatch, module)
    loaded["scale"][1](*tensors(), 16, 1.0)
    return loaded


@pytest.mark.parametrize("key", [b"x", 1, None, 1.5, ("x",), True, object()])
def test_keywords_that_are_no_strings_are_a_type_error(either, key):
    for call in (
        partial(either["scale"][1], *tensors(), 16, 1.0),
        partial(either["scale"][1], *tensors()),
        partial(either["scale"][0], *tensors(), 16, 1.0),
        partial(either["scale"][1], *range(9)),
        either["scale"][1],
    ):
        with pytest.raises(TypeError, match="keywords must be strings"):
            call(**{key: 1})


def test_keyword_of_a_string_subclass_is_its_text(either):
    class Name(str):
        __slots__ = ()

    either["scale"][1](*tensors(), 16, **{Name("factor"): 1.0})
    assert either.counters().launches == 2


def test_types_are_made_by_the_kernel_alone(bundle):
    kind = type(bundle["scale"][1])
    for make in (kind, partial(kind.__new__, kind), partial(object.__new__, kind)):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(TypeError):
        type("Sub", (kind,), {})
    for changed in (kind, type(bundle["scale"]._native._kernel)):
        with pytest.raises(TypeError):
            changed.__call__ = print


def test_half_made_kernel_is_found_by_nobody(extension):
    def kernels():
        return {id(item) for item in gc.get_objects() if type(item) is extension.Kernel}

    before, seen = kernels(), []

    class Number:
        def __index__(self):
            seen.append(kernels() - before)
            return 0

    rows = (("x", False, None, ((Number(), 0, 0, 0, 0, None, b"\1" + bytes(7)),)),)
    extension.Kernel(print, print, print, [], [], 10, rows, (), (b"\1" + bytes(7),))
    assert seen == [set()]


def test_grid_function_may_take_the_keywords_away(bundle, hip):
    x, out = tensors()
    seen = []

    def grid(bound):
        for found in gc.get_referrers(bound["n"]):
            if isinstance(found, dict) and found is not bound and "factor" in found and "n" in found:
                found.clear()
                seen.append(found)
        gc.collect()
        return (2,)

    def fresh(text: str) -> float:  # an object that only the dictionary of keywords holds
        return float(text)

    for _ in range(20):
        bundle["scale"][grid](x, out, n=16 * 10**6 + 16 * len(seen), factor=fresh("0.5"))
    assert c_launches(bundle) > 0
    assert all("5" in line for line in hip.log if line.startswith("launch"))


def test_keywords_of_a_partial_may_change_meanwhile(bundle):
    x, out = tensors()
    call = None

    def grid(bound):
        call.keywords.clear()
        gc.collect()
        return (1,)

    for index in range(20):
        call = partial(bundle["scale"][grid], x, out, n=16 * 10**6 + index, factor=float("0.5"))
        call()


def test_storage_that_runs_code_may_take_the_keywords_away(bundle, monkeypatch):
    x, out = tensors()
    call = None
    original = StubTensor.untyped_storage

    def storage(self):
        if call is not None:
            call.keywords.clear()
        return original(self)

    monkeypatch.setattr(StubTensor, "untyped_storage", storage)
    for index in range(10):
        call = partial(
            bundle["scale"][1],
            n=16 * 10**6 + index,
            factor=float("0.5"),
            out=StubTensor(0x20000),
            x=StubTensor(0x10000),
        )
        call()


def test_grid_function_runs_once_for_each_call(either):
    calls = []

    def grid(bound):
        calls.append(sorted(bound))
        return (2,)

    either["scale"][grid](StubTensor(0x10000, "float16"), StubTensor(0x20000, "float16"), 17, 1.0)  # not loaded yet
    either["scale"][grid](*tensors(), 17, 1.0)
    either["scale"][grid](*tensors(), 17, 1.0)
    assert calls == [["BLOCK", "factor", "n", "out", "x"]] * 3


def test_grid_function_that_returns_a_function_is_refused(either):
    with pytest.raises(AotkernError, match="scale: grid"):
        either["scale"][lambda bound: lambda: 1](*tensors(), 16, 1.0)


def test_lists_of_hooks_may_be_put_in_place(either):
    events = []
    mine = [events.append]
    either.hooks.enter = mine
    for _ in range(3):
        either["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 3
    mine.clear()
    either["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 3
    mine.append(events.append)
    either["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 4
    either.hooks.enter = ()
    either.hooks.exit = (events.append,)
    either["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 5
    either.hooks.exit = []
    either["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 5


def test_hooks_that_were_given_are_seen(hip, data, monkeypatch, extension):
    events = []
    bundle = load(hip, data, monkeypatch, extension, hooks=Hooks(enter=[events.append]))
    for _ in range(3):
        bundle["scale"][1](*tensors(), 16, 1.0)
    assert len(events) == 3


def test_load_hook_that_raises_costs_one_load(either, hip):
    def refuse(event):
        raise RuntimeError("no")

    either.hooks.load.append(refuse)
    other = StubTensor(0x10000, "float16"), StubTensor(0x20000, "float16")
    with pytest.raises(RuntimeError, match="no"):
        either["scale"][1](*other, 17, 1.0)
    for _ in range(4):
        either["scale"][1](*other, 17, 1.0)
    assert sum(line.startswith("load") for line in hip.log) == 2
    assert either.counters().modules == 2


def test_load_hook_may_call_the_bundle(either):
    called = []

    def again(event):
        if not called:
            called.append(event)
            either["scale"][1](*tensors(), 17, 1.0)
            either.preload()

    either.hooks.load.append(again)
    halves = StubTensor(0x10000, "float16"), StubTensor(0x20000, "float16")
    worker = threading.Thread(target=lambda: either["scale"][1](*halves, 17, 1.0), daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()
    assert len(called) == 1


HOSTILE = (
    None, True, 0, 1, 16, -16, 2**31, 2**63, 2**64, -(2**63) - 1, 0.5, float("nan"), float("inf"), "x", "", b"x", (), (1,),
    [], [1], {}, object(), int, print, lambda *_: 1, lambda *_: [2], lambda *_: 1 / 0, 1j, range(3),
)  # fmt: skip
NAMES = ("x", "out", "n", "factor", "BLOCK", "num_warps", "stream", "unknown", "", "x\0", "\ud800", b"x", 1, None)


def hostile_calls(seed: int, count: int):
    """Calls of anything with anything, now and then nearly right ones."""
    rng = random.Random(seed)
    values = [*HOSTILE, *tensors(), StubTensor(0x10004), StubTensor(0x10000, "float16", 2**31), StubTensor(1, device=1)]
    for _ in range(count):
        args = [*tensors(), 16, 1.0] if rng.random() < 0.5 else []
        for _ in range(rng.randrange(3)):
            if args:
                args[rng.randrange(len(args))] = rng.choice(values)
            else:
                args.append(rng.choice(values))
        kwargs = {rng.choice(NAMES): rng.choice(values) for _ in range(rng.choice((0, 0, 1, 2, 5)))}
        yield rng.choice((1, (1,), rng.choice(values))), args, kwargs


@pytest.mark.parametrize("seed", range(3))
def test_hostile_calls_end_in_errors_and_leave_the_kernel_good(either, seed):
    outcomes = set()
    for grid, args, kwargs in hostile_calls(seed, 1500):
        try:
            either["scale"][grid](*args, **kwargs)
            outcomes.add("launched")
        except Exception as error:
            outcomes.add(type(error).__name__)
    assert {"launched", "InputError", "MissError", "TypeError"} <= outcomes
    assert "SystemError" not in outcomes
    before = either.counters().launches
    either["scale"][1](*tensors(), 16, 1.0)
    assert either.counters().launches == before + 1


def test_threads_that_launch_while_hooks_change_and_the_driver_fails(bundle, hip):  # noqa: C901
    stop, wrong = threading.Event(), []
    interval = sys.getswitchinterval()

    def work():
        x, out = tensors()
        while not stop.is_set():
            try:
                bundle["scale"][lambda bound: (1,)](x, out, n=16, factor=1.0)
            except DriverError as error:
                if error.code != 719:
                    wrong.append(error)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for index in range(200):
            bundle.hooks.enter = [id] if index % 2 else []
            bundle.hooks.exit.append(id)
            bundle.hooks.exit.clear()
            if index % 20 == 0:
                hip.fail("hipModuleLaunchKernel", 719)
            bundle["scale"][1](StubTensor(0x10000, "float16"), StubTensor(0x20000, "float16"), 17, 1.0, stream=0)
    except DriverError as error:
        wrong += [] if error.code == 719 else [error]
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert not wrong
    assert bundle.counters().launches > 100
