"""What is served is what the JIT makes, or a miss that says so: programs that are made up, on every back end.

Each case records a call, builds it and then makes several that differ in something: a constant of another type, another
function of the same name, an edited helper, an option, a variable, a knob. `make fuzz` tries thousands.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from differential import Call, World, check
from fuzzed import CALLS, EDITS, OPTIONS, SETTINGS

from aotkern import closure
from aotkern.spec import Constant, Runtime
from aotkern.target import Target
from aotkern.triton_bridge import knobs, shelf

TARGETS = tuple(map(Target.parse, ("gfx942", "gfx950", "cuda:90")))
CASES = int(os.environ.get("AOTKERN_FUZZ_CASES", "30"))
"""Cases for each target; each is one program with up to five calls."""
SEED = int(os.environ.get("AOTKERN_FUZZ_SEED", "20261130"))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def found_with(world, call, other):
    """What is found wrong when one call is recorded and another is served."""
    with pytest.raises(AssertionError) as error:
        check(world, call, TARGETS[2], (other,))
    return str(error.value)


PRODUCT = Call("product", ("P('float32')",) * 3 + ("32",))
IEEE = replace(PRODUCT, settings=("TRITON_F32_DEFAULT=ieee",))


@pytest.mark.parametrize(("call", "other"), [(PRODUCT, IEEE), (IEEE, PRODUCT)], ids=["set later", "set before"])
def test_a_setting_that_nobody_reads_would_be_found(world, monkeypatch, call, other):
    monkeypatch.setattr(knobs, "settings", lambda *_: {})
    assert "other bytes than the JIT's" in found_with(world, call, other)


def test_a_named_tuple_that_is_taken_for_a_tuple_would_be_found(world, monkeypatch):
    of = Constant.of.__func__
    plain = classmethod(
        lambda cls, value, where="": of(cls, tuple(value) if isinstance(value, tuple) else value, where)
    )
    monkeypatch.setattr(Constant, "of", plain)
    call = Call("constant", ("P('float32')", "(1, 2)"))
    assert "other bytes than the JIT's" in found_with(
        world, call, replace(call, arguments=("P('float32')", "K.Pair(1, 2)"))
    )


def test_functions_that_are_known_by_name_alone_would_be_found(world, monkeypatch):
    monkeypatch.setattr(closure, "identity", lambda _: "0" * 16)
    module = {"act": "fuzz_one"}
    monkeypatch.setattr(closure, "function_module", lambda found: module.get(found.__name__, "fuzz_kernels"))
    call = Call("applied", ("P('float32')", "P('float32')", "one.act", "one.act"))
    other = replace(call, arguments=("P('float32')", "P('float32')", "one.act", "two.act"))
    assert "other bytes than the JIT's" in found_with(world, call, other)


def test_an_attribute_that_is_read_coarsely_would_be_found(world, monkeypatch):
    monkeypatch.setattr(shelf, "_hardest", lambda parameter, spec: hardest(parameter, specialised_as_aligned(spec)))
    call = Call("told", ("P('float32')", "17", "17"))
    found = found_with(world, call, replace(call, arguments=("P('float32', 4100)", "17", "17")))
    assert "is served by" in found


hardest = shelf._hardest


def specialised_as_aligned(spec):
    """The class of an argument, if every address were aligned."""
    return replace(spec, divisible=True) if isinstance(spec, Runtime) and spec.is_pointer else spec


def some(choices, most):
    """A few of some texts, in order, no two of one name."""
    picked = st.lists(st.sampled_from(choices), max_size=most, unique_by=lambda text: text.partition("=")[0])
    return st.just(()) | picked.map(tuple)


@st.composite
def first_calls(draw):
    kernel = draw(st.sampled_from(sorted(CALLS)))
    arguments = tuple(draw(st.sampled_from(choices)) for choices in CALLS[kernel])
    held = draw(some(SETTINGS, 2))
    if kernel == "loose":
        held = (*held, "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1")
    return Call(kernel, arguments, draw(some(OPTIONS, 2)), held, draw(st.just(()) | st.tuples(st.sampled_from(EDITS))))


@st.composite
def changed(draw, call):
    """The same call with one thing changed."""
    what = draw(st.sampled_from(("argument", "argument", "options", "settings", "edits")))
    if what == "argument":
        choices = CALLS[call.kernel]
        at = draw(st.integers(0, len(choices) - 1))
        given = (*call.arguments[:at], draw(st.sampled_from(choices[at])), *call.arguments[at + 1 :])
        return replace(call, arguments=given)
    if what == "options":
        return replace(call, options=draw(some(OPTIONS, 2)))
    if what == "settings":
        return replace(call, settings=draw(some(SETTINGS, 2)))
    return replace(call, edits=draw(st.tuples(st.sampled_from(EDITS))))


@st.composite
def cases(draw):
    call = draw(first_calls())
    return call, tuple(draw(st.lists(changed(call), min_size=2, max_size=4)))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_hit_has_the_bytes_of_the_jit(world, target):
    totals: Counter[str] = Counter()

    @seed(SEED)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(case=cases())
    def run(case):
        call, calls = case
        outcome = check(world, call, target, calls)
        totals.update(built=outcome.built, hits=outcome.hits, misses=len(outcome.misses), failed=outcome.failed)

    run()
    assert totals["built"] * 3 >= CASES, f"too few programs can be built to prove anything: {totals}"
    assert totals["hits"] > totals["built"], f"nothing but what was recorded is served: {totals}"
    assert totals["misses"] * 5 >= totals["built"], f"hardly anything is a miss: {totals}"
