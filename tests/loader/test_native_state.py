"""What the C extension keeps from call to call: nothing of it may outlive what it was true of."""

from __future__ import annotations

import gc
import re
import threading
import weakref

import pytest
from stub_tensors import StubTensor
from test_native import c_launches, load, tensors

from aotkern.errors import InputError


@pytest.fixture
def bundle(hip, data, monkeypatch, extension):
    loaded = load(hip, data, monkeypatch, extension)
    loaded["scale"][1](*tensors(), 16, 1.0)  # the first call goes through Python, which tells C of the variant
    return loaded


def launched(hip, what: str = "grid") -> list[str]:
    """The grids, or something else, of all launches but the first."""
    return [re.search(rf"{what}=(\S+)", line)[1] for line in hip.log if line.startswith("launch")][1:]


def test_grids_alternate(bundle, hip):
    one, two = (1,), (2, 3)
    for grid in (one, two, one, one, 4, 4, lambda bound: (bound["n"] // 4,), one, (1, 1, 7), two):
        bundle["scale"][grid](*tensors(), 16, 1.0)
    assert launched(hip) == ["1,1,1", "2,3,1", "1,1,1", "1,1,1", "4,1,1", "4,1,1", "4,1,1", "1,1,1", "1,1,7", "2,3,1"]
    assert c_launches(bundle) == 10


def test_grids_that_are_bound_at_once_stay_apart(bundle, hip):
    for _ in range(2):
        calls = [bundle["scale"][(index + 1,)] for index in range(3)]
        for call in calls:
            call(*tensors(), 16, 1.0)
        del calls[1]
        calls.append(bundle["scale"][(9,)])
        for call in calls:
            call(*tensors(), 16, 1.0)
        del call, calls
    assert launched(hip) == [f"{x},1,1" for x in (1, 2, 3, 1, 3, 9)] * 2


def test_list_is_read_anew_each_time(bundle, hip):
    grid = [2]
    bundle["scale"][grid](*tensors(), 16, 1.0)
    grid[0] = 5
    bundle["scale"][grid](*tensors(), 16, 1.0)
    assert launched(hip) == ["2,1,1", "5,1,1"]


def test_grid_that_is_more_than_numbers_is_let_go(bundle, hip):
    gone = []

    class Shape(tuple):
        def __del__(self) -> None:
            gone.append(tuple(self))

    bundle["scale"][Shape((3,))](*tensors(), 16, 1.0)
    assert gone == [(3,)]

    def function(bound):
        return (6,)

    seen = weakref.ref(function)
    bundle["scale"][function](*tensors(), 16, 1.0)
    del function
    assert seen() is None
    assert launched(hip) == ["3,1,1", "6,1,1"]


def test_grid_that_launches_as_it_goes(bundle, hip):
    class Last:
        def __call__(self, bound):
            return (2,)

        def __del__(self) -> None:
            bundle["scale"][(8,)](*tensors(), 16, 1.0)

    for _ in range(3):
        bundle["scale"][Last()](*tensors(), 16, 1.0)
    assert launched(hip) == ["2,1,1", "8,1,1"] * 3


def test_bound_grid_outlives_its_bundle(hip, data, monkeypatch, extension):
    bundle = load(hip, data, monkeypatch, extension)
    bundle["scale"][(2,)](*tensors(), 16, 1.0)
    call = bundle["scale"][(2,)]
    bundle["scale"][(3,)](*tensors(), 16, 1.0)  # and leaves a spare one with the kernel
    del bundle
    gc.collect()
    call(*tensors(), 16, 1.0)
    assert launched(hip) == ["3,1,1", "2,1,1"]
    del call
    gc.collect()
    assert [item for item in gc.get_objects() if type(item) in (extension.Kernel,)] == []


def test_tensors_are_read_anew_each_time(bundle, hip):
    x, out = tensors()
    call = bundle["scale"][(2,)]
    call(x, out, 16, 1.0)
    x.address = 0x30000  # a storage was set or resized
    call(x, out, 16, 1.0)
    x.dtype = out.dtype = "float16"
    for _ in range(2):
        call(x, out, 17, 1.0)
    x.index, x.device = 1, StubTensor(0, device=1).device
    with pytest.raises(InputError, match="one device"):
        call(x, out, 17, 1.0)
    first, second, third, fourth = launched(hip, "args")
    assert "00000300" not in first
    assert "00000300" in second
    assert third == fourth
    assert sorted(bundle.counters().dispatched.values()) == [2, 3]


def test_element_type_is_asked_for_each_time(bundle):
    x, out = tensors()
    call = bundle["scale"][(2,)]
    call(x, out, 16, 1.0)
    assert c_launches(bundle) == 1
    reads = StubTensor.reads
    call(x, out, 16, 1.0)
    assert StubTensor.reads == reads + 2


def fresh(text: str) -> str:
    """An equal string at another address, which no intern table knows."""
    return "".join([text[:1], text[1:]])


def test_names_that_are_not_interned_are_names_too(bundle, hip):
    x, out = tensors()
    for name, other in (("factor", "num_warps"), (fresh("factor"), fresh("num_warps"))):
        bundle["scale"][(2,)](x, out, **{fresh("n"): 16, name: 1.0, other: 4, fresh("stream"): 0x7000})
    assert c_launches(bundle) == 2
    assert launched(hip, "stream") == ["0x7000", "0x7000"]


@pytest.mark.parametrize("name", ["x", "n", "factor", fresh("x"), fresh("factor")])
def test_argument_that_is_given_twice_is_refused(bundle, name):
    with pytest.raises(InputError, match=name):
        bundle["scale"][(2,)](*tensors(), 16, 1.0, **{name: 1})
    assert c_launches(bundle) == 0


def test_hooks_that_come_between_two_calls_of_one_bound_grid(bundle):
    events = []
    call = bundle["scale"][(2,)]
    call(*tensors(), 16, 1.0)
    bundle.hooks.exit.append(events.append)
    call(*tensors(), 16, 1.0)
    bundle["scale"][(2,)](*tensors(), 16, 1.0)
    bundle.hooks.exit.clear()
    call(*tensors(), 16, 1.0)
    assert [event.grid for event in events] == [(2, 1, 1)] * 2
    assert (c_launches(bundle), bundle.counters().launches) == (2, 5)


def test_threads_with_different_grids(bundle):
    """Told by the counters, since the lines of the fake driver's log run into one another."""

    def work(*grids) -> None:
        for _ in range(40):
            for grid in grids:
                bundle["scale"][grid](*tensors(), 16, 1.0)

    sorts = [((0,),), ((3,),), ((1, 0),), (lambda bound: (bound["n"],),), ((2,), (0,)), (5, lambda bound: 0)]
    threads = [threading.Thread(target=work, args=grids) for grids in sorts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bundle["scale"].counted()[1] == 160
    assert c_launches(bundle) == 160


def test_slots_may_come_in_any_order(extension, hip, data, monkeypatch):
    """The buffer is written in ascending order, eight bytes at a time, whatever order the slots are offered in."""
    from aotkern.loader import native

    class Shuffled:
        """The extension's kernel, that is offered its slots last to first."""

        def __init__(self, *args) -> None:
            self.kernel = extension.Kernel(*args)
            self.bind, self.counted = self.kernel.bind, self.kernel.counted

        def offer(self, *args) -> None:
            self.kernel.offer(*args[:6], args[6][::-1], *args[7:])

    module = type("Module", (), {"Kernel": Shuffled})
    bundle = load(hip, data, monkeypatch, module)
    assert native._extension() is module
    for _ in range(2):
        bundle["scale"][1](*tensors(), 17, 0.1)
    assert c_launches(bundle) == 1
    first, second = (line for line in hip.log if line.startswith("launch"))
    assert first == second
