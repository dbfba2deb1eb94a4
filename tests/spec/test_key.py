import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotkern.errors import InputError
from aotkern.spec import Constant, Fixed, Group, Runtime, VariantKey
from aotkern.spec.key import ELEMENT_TYPES, SCALAR_TYPES
from aotkern.target import Target

CONSTANTS = (st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans() | st.none()).map(
    Constant.of
)
SCALARS = st.builds(Runtime, st.sampled_from(SCALAR_TYPES), st.booleans())
POINTERS = st.builds(
    Runtime, st.sampled_from(["*" + t for t in ELEMENT_TYPES] + ["*kfp32"]), st.booleans(), st.booleans()
)
SPECS = st.recursive(
    SCALARS | POINTERS | CONSTANTS.map(Fixed),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: Group(tuple(items))),
    max_leaves=5,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TARGETS = st.sampled_from(["hip:gfx942", "hip:gfx950:sramecc+:xnack-", "cuda:90"]).map(Target.parse)
KEYS = st.builds(
    VariantKey,
    NAMES | st.just("module.add"),
    TARGETS,
    st.lists(st.tuples(NAMES, SPECS), max_size=5).map(tuple),
    st.dictionaries(NAMES, CONSTANTS, max_size=3).map(lambda d: tuple(sorted(d.items()))),
)


@given(KEYS)
def test_parse_and_str_are_inverses(key):
    assert VariantKey.parse(str(key)) == key


def test_parameters_are_the_runtime_leaves_in_order():
    key = VariantKey.parse("k[hip:gfx942](x:*fp32:DS,t(=1,:i32,(:i64:D)),B=16,n:u1)")
    assert [(path, leaf.type) for path, leaf in key.parameters] == [
        ((0,), "*fp32"),
        ((1, 1), "i32"),
        ((1, 2, 0), "i64"),
        ((3,), "u1"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "k[hip:gfx942]",
        "k[hip:gfx942](",
        "k[hip:gfx900](x:i32)",
        "k[gfx942](x:i32)",
        "k[hip:gfx942](x:i33)",
        "k[hip:gfx942](x:i32:S)",
        "k[hip:gfx942](x:*fp32:SD)",
        "k[hip:gfx942](x:fp8e4nv)",
        "k[hip:gfx942](x:i32){b=1,a=2}",
        "k[hip:gfx942](x:i32){}",
        "k[hip:gfx942](x:i32) ",
        "k[hip:gfx942](x" + "(" * 200,
    ],
)
def test_what_is_not_a_key_is_refused_with_its_place(text):
    with pytest.raises(InputError, match=r"expected .* found"):
        VariantKey.parse(text, "manifest.json: variants[3]")


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_one_clear_error(text):
    text = "k[hip:gfx942]" + text
    try:
        key = VariantKey.parse(text)
    except InputError:
        return
    assert str(key) == text
