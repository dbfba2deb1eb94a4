import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.errors import InputError
from aotkern.spec import Constant, DtypeName, FunctionName

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text()
    | st.builds(DtypeName, st.sampled_from(["fp16", "fp8e4nv"]))
    | st.builds(FunctionName, st.just("outer.inner"))
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


@given(VALUES)
def test_text_and_value_are_inverses(value):
    constant = Constant.of(value)
    assert Constant.parse(constant.text) == constant
    assert Constant.of(constant.value) == constant


def test_constants_that_python_calls_equal_stay_apart():
    values = (0, 0.0, -0.0, False, 1, True, 1.0, "0", None, float("nan"))
    assert len({Constant.of(value) for value in values}) == len(values)


def test_nan_finds_itself_and_minus_zero_keeps_its_sign():
    assert Constant.of(float("nan")) == Constant.of(-float("nan"))
    assert math.copysign(1, Constant.of(-0.0).value) == -1


def test_a_tuple_stays_a_tuple():
    assert Constant.parse("(1,(2.5,),())").value == (1, (2.5,), ())


@pytest.mark.parametrize(
    "text", ["", "1 ", "01", "1e5", "(1)", "(1,2,)", '"a', "none", "@", "__import__('os')", "+1", "(" * 90]
)
def test_other_spellings_are_refused(text):
    with pytest.raises(InputError, match="expected"):
        Constant.parse(text)


@pytest.mark.parametrize("value", [object(), [1], {1}, b"x", 1j])
def test_values_that_no_file_can_hold_are_refused_with_their_type(value):
    with pytest.raises(InputError, match=type(value).__name__):
        Constant.of(value)
