"""The declaration lines are Python that expands to the variants they were made from."""

from __future__ import annotations

import pytest

from aotkern import spec
from aotkern.audit.jit.declare import declaration
from aotkern.spec import Kernel, Parameter, Space, VariantKey, expand
from aotkern.target import Target

GFX942 = Target.parse("gfx942")


def arguments(*texts: str):
    return [VariantKey.parse(f"k[hip:gfx942]({text})").arguments for text in texts]


class Function:
    __name__ = "k"


@pytest.mark.parametrize(
    "texts",
    [
        ["x:*fp32:DS,n:i32,B=64"],
        ["x:*fp32:DS,n=1,B=64", "x:*fp32:S,n:i32:D,B=128", "x:*fp32,n:i32,B=64"],
        ["x:*fp32:DS,n:i32,B=64", "x=None,n:i32,B=64", "x:*fp16:DS,n:i32,B=64"],
        ["x:*u8:D,n(=1,:i32:D,:fp32),B=64", "x:*u8:D,n(:i32,:i32,:fp32),B=64"],
        ['x:*i32:DS,n:u1,B="text"', "x:*i32:DS,n:fp32,B=nan", "x:*i32:DS,n:i64:D,B=(1,2)", "x:*i32:DS,n:i64:D,B=True"],
    ],
)
def test_declared_variants_include_those_that_were_compiled(texts):
    variants = arguments(*texts)
    source = declaration("hip:gfx942", variants, frozenset({"B"}))
    spaces = eval(f"({source})", {name: getattr(spec, name) for name in spec.__all__})
    assert all(isinstance(space, Space) for space in spaces)
    parameters = (Parameter("x"), Parameter("n"), Parameter("B", constexpr=True))
    made = {key.arguments for key in expand(Kernel(Function(), *spaces), parameters, GFX942)}
    assert made >= set(variants)


def test_a_constant_of_many_values_is_declared_as_a_run_time_argument():
    source = declaration("hip:gfx942", arguments(*(f"B={n}" for n in range(40))), frozenset({"B"}))
    assert source == 'Space(("hip:gfx942",), {"B": Int(classes=("any",))}),'
