"""Dispatch against Triton's own binder: among fully declared variants it must choose Triton's specialisation."""

from __future__ import annotations

import inspect
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotkern.arguments import read
from aotkern.dispatch import Choice, Table, Variant, choose
from aotkern.spec import ArgumentSpec, Constant, Fixed, Group, Parameter, Runtime, VariantKey
from aotkern.target import Target

triton = pytest.importorskip("triton")

from triton.backends import backends  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.jit import JITFunction, create_function_from_signature  # noqa: E402

TRITON_TARGETS = {"hip:gfx942": GPUTarget("hip", "gfx942", 64), "cuda:90": GPUTarget("cuda", 90, 32)}


class Stub:
    """A tensor that exists on paper only, with what Triton and aotkern ask of one."""

    def __init__(self, address: int, dtype: str, storage: int) -> None:
        self.address, self.dtype, self.storage = address, dtype, storage

    def data_ptr(self) -> int:
        return self.address

    def ptr_range(self) -> int:
        return self.storage


def kernel(x, n, plain, wide, flag, scale, pair, B):  # the signature is all that is used
    pass


# Annotations by hand: `from __future__ import annotations` would turn them into strings that Triton takes for names.
kernel.__annotations__ = {"wide": triton.language.int64, "B": triton.language.constexpr}
PARAMETERS = tuple(
    Parameter(name, constexpr=name == "B", specialised=name != "plain", type="i64" if name == "wide" else "")
    for name in inspect.signature(kernel).parameters
)
INTEGERS: tuple[ArgumentSpec, ...] = (
    Fixed(Constant.of(1)),
    *(Runtime(kind, divisible) for kind in ("i32", "i64", "u64") for divisible in (True, False)),
)


def declared(text: str) -> Table:
    """Every specialisation that Triton could ask for of `kernel`, for a few element types and constants."""
    target = Target.parse(text)
    smalls = (True, False) if text.startswith("hip") else (False,)
    pointers = [Runtime(f"*{e}", d, s) for e in ("fp16", "fp32") for d in (True, False) for s in smalls]
    axes: list[list[ArgumentSpec]] = [
        [*pointers, Fixed(Constant.of(None))],
        list(INTEGERS),
        [Runtime(kind) for kind in ("i32", "i64", "u64")],
        [Runtime("i64", True), Runtime("i64")],
        [Runtime("u1")],
        [Runtime("fp32")],
        [Group((Fixed(Constant.of(1)), Runtime("fp32"))), Group((Runtime("i32"), Runtime("fp32")))],
        [Fixed(Constant.of(value)) for value in (0, 0.0, -0.0, float("nan"), False)],
    ]
    names = [parameter.name for parameter in PARAMETERS]
    keys = (VariantKey("kernel", target, tuple(zip(names, specs, strict=True))) for specs in itertools.product(*axes))
    return Table.make("kernel", PARAMETERS, [Variant(key, {}) for key in keys])


TABLES = {text: declared(text) for text in TRITON_TARGETS}


def binder(text: str):
    backend = backends["amd" if text.startswith("hip") else "nvidia"].compiler(TRITON_TARGETS[text])
    function = JITFunction(kernel, do_not_specialize=["plain"])
    return create_function_from_signature(function.signature, function.params, backend)


BINDERS = {text: binder(text) for text in TRITON_TARGETS}


def as_spec(kind, attribute, value) -> ArgumentSpec:
    """What Triton's binder says of one argument, in the words of a variant key."""
    if isinstance(kind, tuple):
        return Group(tuple(as_spec(*item) for item in zip(kind, attribute, value, strict=True)))
    if kind == "constexpr":
        return Fixed(Constant.of(value))
    letters = attribute if isinstance(attribute, str) else ""
    return Runtime(kind, "D" in letters, "S" in letters)


interesting = st.one_of(
    st.sampled_from([0, 1, 2, 15, 16, 17, -1, -16, 2**31 - 16, 2**31 - 1, 2**31, 2**31 + 8, -(2**31), -(2**31) - 16]),
    st.sampled_from([2**63 - 16, 2**63 - 1, 2**63, 2**63 + 16, 2**64 - 1]),
    st.integers(-(2**63), 2**64 - 1),
)
tensors = st.builds(
    Stub,
    st.sampled_from([0, 4096, 4100, 4104, 4112]),
    st.sampled_from(["fp16", "fp32"]).map({"fp16": "float16", "fp32": "float32"}.get),
    st.sampled_from([0, 64, 2**31 - 1, 2**31, 2**40]),
)
calls = st.fixed_dictionaries(
    {
        "x": st.one_of(tensors, st.none()),
        "n": interesting,
        "plain": interesting,
        "wide": st.integers(-(2**63), 2**63 - 1),
        "flag": st.booleans(),
        "scale": st.floats(width=32),
        "pair": st.tuples(st.sampled_from([1, 2, 3, 17]), st.just(0.5)),
        "B": st.sampled_from([0, 0.0, -0.0, float("nan"), False]),
    }
)


@pytest.mark.parametrize("text", TRITON_TARGETS)
@settings(max_examples=150)
@given(call=calls)
def test_the_choice_is_tritons_own_specialisation(text, call):
    if call["wide"] == 1:  # Triton keys an annotated 1 by itself, but compiles the run-time parameter
        call = {**call, "wide": 3}
    _, specialisation, _ = BINDERS[text](**call)
    raw = [call[parameter.name] for parameter in PARAMETERS]
    specs = [as_spec(*pair, value) for pair, value in zip(specialisation, raw, strict=True)]
    table = TABLES[text]
    values = [read(parameter, value, parameter.name) for parameter, value in zip(PARAMETERS, raw, strict=True)]
    outcome = choose(table, values, {})
    assert isinstance(outcome, Choice), str(outcome)
    assert [str(spec) for _, spec in table.variants[outcome.index].key.arguments] == [str(spec) for spec in specs]


def test_the_binder_sees_what_the_stub_says():
    _, specialisation, _ = BINDERS["hip:gfx942"](Stub(4096, "float32", 2**31), 3, 3, 3, True, 0.5, (1, 0.5), 0)
    assert specialisation[0] == ("*fp32", "D")
    assert specialisation[1] == ("i32", "")
