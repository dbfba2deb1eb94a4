import enum
import math
import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.errors import InputError
from aotkern.spec import Constant, DtypeName, FunctionName, Member, Named, Record, Wrapped
from aotkern.spec.constant import named

OF = Named("pkg.mod", "Outer.Inner", "0123456789abcdef")
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False)
    | st.sampled_from([math.nan, -math.nan])
    | st.text()
    | st.builds(DtypeName, st.sampled_from(["fp16", "fp8e4nv"]))
    | st.just(FunctionName("pkg.mod", "outer.inner", "0123456789abcdef"))
)


def holders(inner):
    """What holds constants."""
    items = st.lists(inner, max_size=3).map(tuple)
    return (
        items
        | st.builds(Member, st.just(OF), st.just("FAST"), inner)
        | items.map(lambda held: Record(OF, tuple(f"f{at}" for at in range(len(held))), held))
        | items.map(lambda held: Record(OF, (), held))
        | inner.map(Wrapped)
    )


VALUES = st.recursive(LEAVES, holders, max_leaves=8)


@given(VALUES)
def test_text_and_value_are_inverses(value):
    constant = Constant.of(value)
    assert Constant.parse(constant.text) == constant
    assert Constant.of(constant.value) == constant


class Mode(enum.IntEnum):
    OFF = 0
    ON = 1
    ALSO_ON = 1


class Other(enum.IntEnum):
    ON = 1


class Perm(enum.Flag):
    R = 1
    W = 2


class Pair(NamedTuple):
    a: int
    b: int


class Bare(tuple):
    __slots__ = ()


class Number(int):
    pass


class Text(str):
    __slots__ = ()


class Real(float):
    pass


class Marked(tuple):
    pass


def test_constants_that_python_calls_equal_stay_apart():
    values = (0, 0.0, -0.0, False, Mode.OFF, 1, True, 1.0, Mode.ON, Other.ON, "0", None, math.nan, -math.nan)
    assert len({Constant.of(value) for value in values}) == len(values)
    pairs = ((1, 2), (True, 2), (1.0, 2), Pair(1, 2), Bare((1, 2)), (Mode.ON, 2), ((1, 2),))
    assert len({Constant.of(value) for value in pairs}) == len(pairs)


def test_an_alias_of_a_member_is_the_member():
    assert Constant.of(Mode.ALSO_ON) == Constant.of(Mode.ON)


def test_a_class_is_known_by_its_module_its_name_and_what_it_is_made_of():
    text = Constant.of((Pair(1, 2), Mode.ON)).text
    assert text.startswith(f"(%{__name__}:Pair#")
    assert text.partition("),")[2].startswith(f"!{__name__}:Mode#")
    kinds = named(Constant(text).value)
    assert [(kind.module, kind.name) for kind in kinds] == [(__name__, "Pair"), (__name__, "Mode")]
    other = enum.IntEnum("Mode", {"OFF": 0, "ON": 1, "NEW": 2}, module=__name__, qualname="Mode")
    assert Constant.of(other.ON) != Constant.of(Mode.ON)


def test_what_is_nested_too_deep_is_refused_on_both_ways():
    deep, wide = (), ((1,),) * 60
    for _ in range(49):
        deep = (deep,)
    assert Constant.parse(Constant.of(deep).text).value == deep
    assert Constant.parse(Constant.of(wide).text).value == wide
    with pytest.raises(InputError, match="nested at most 50 deep"):
        Constant.of((deep,))
    with pytest.raises(InputError, match="nested at most 50 deep"):
        Constant.parse("(" * 51 + ",)" * 50 + ")")


def test_an_integer_that_cannot_be_read_back_is_refused():
    assert Constant.parse(Constant.of(-(10**78)).text).value == -(10**78)
    for value in (10**79, -(10**79), 1 << 100_000):
        with pytest.raises(InputError, match="an integer of at most 79 digits"):
            Constant.of(value)


def test_nan_finds_itself_and_keeps_its_sign_as_zero_does():
    assert Constant.of(math.nan) == Constant.of(math.nan) != Constant.of(-math.nan)
    for value in (-0.0, -math.nan):
        assert math.copysign(1, Constant.of(value).value) == -1
    (odd,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))
    with pytest.raises(InputError, match="a NaN with the bits 0x7ff8000000000001"):
        Constant.of(odd)


def test_a_tuple_stays_a_tuple():
    assert Constant.parse("(1,(2.5,),())").value == (1, (2.5,), ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 ",
        "01",
        "1e5",
        "(1)",
        "(1,2,)",
        '"a',
        "none",
        "@",
        "__import__('os')",
        "+1",
        "(" * 90,
        "&act",
        "!m:E#0123456789abcdef.A",
    ],
)
def test_other_spellings_are_refused(text):
    with pytest.raises(InputError, match="expected"):
        Constant.parse(text)


def local():
    class Inner(enum.Enum):
        A = 1

    return Inner.A


STRANGE = [object(), [1], {1}, b"x", 1j, Number(1), Text("a"), Real(1.0), Perm.R | Perm.W]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_values_that_no_file_can_hold_are_refused_with_their_type(value):
    for held in (value, (1, value)):
        with pytest.raises(InputError, match=type(value).__name__):
            Constant.of(held)


def test_what_cannot_be_imported_or_has_more_than_its_items_is_refused():
    with pytest.raises(InputError, match="imported by name"):
        Constant.of(local())
    marked = Marked((1,))
    marked.note = 1
    with pytest.raises(InputError, match="Marked"):
        Constant.of(marked)
