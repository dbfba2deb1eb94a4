"""Dispatch by itself: assumptions, order, reasons."""

from __future__ import annotations

import math

import pytest

from aotkern.arguments import Pointer
from aotkern.dispatch import Choice, Miss, Refusal, Rule, Table, Variant, choose
from aotkern.errors import InputError
from aotkern.spec import Constant, Parameter, VariantKey


def table(parameters: str, *arguments: str, target: str = "hip:gfx942", options: tuple[dict, ...] = ()) -> Table:
    """A table of kernel `k`: names (`B!` is a constexpr, `n/i64` annotated), then the arguments of each variant."""
    names = parameters.split()
    made = [
        Parameter(name.rstrip("!").partition("/")[0], name.endswith("!"), type=name.partition("/")[2]) for name in names
    ]
    variants = []
    for index, text in enumerate(arguments):
        given = {key: Constant.of(value) for key, value in options[index].items()} if options else {}
        variants.append(Variant(VariantKey.parse(f"k[{target}]({text})"), given))
    return Table.make("k", made, variants)


def chosen(found: Table, *values, **options) -> str:
    outcome = choose(found, values, {key: Constant.of(value) for key, value in options.items()})
    assert isinstance(outcome, Choice), str(outcome)
    return str(found.variants[outcome.index].key).partition("(")[2][:-1]


def missed(found: Table, *values, **options) -> tuple[Refusal, ...]:
    outcome = choose(found, values, {key: Constant.of(value) for key, value in options.items()})
    assert isinstance(outcome, Miss)
    return outcome.refused[0][1]


INTEGERS = table("n", "n=1", "n:i32:D", "n:i32", "n:i64:D", "n:i64", "n:u64")


@pytest.mark.parametrize(
    ("value", "variant"),
    [
        (1, "n=1"),
        (2, "n:i32"),
        (16, "n:i32:D"),
        (0, "n:i32:D"),
        (-16, "n:i32:D"),
        (-1, "n:i32"),
        (2**31 - 1, "n:i32"),
        (2**31, "n:i64:D"),
        (2**31 + 1, "n:i64"),
        (-(2**31), "n:i32:D"),
        (-(2**31) - 1, "n:i64"),
        (2**63, "n:u64"),
        (2**64 - 1, "n:u64"),
    ],
)
def test_integer_takes_the_variant_of_its_class_and_width(value, variant):
    assert chosen(INTEGERS, value) == variant


def test_integer_beyond_every_type_is_a_miss():
    assert missed(INTEGERS, 2**64)[0].rule is Rule.RANGE


def test_narrow_variant_never_serves_a_wide_value():
    (reason,) = missed(table("n", "n:i32"), 2**31)
    assert (reason.rule, str(reason)) == (Rule.RANGE, "n: i32 -> out of its range (n=2147483648)")


def test_wide_variant_serves_a_narrow_value_but_only_without_a_narrow_one():
    assert chosen(table("n", "n:i64"), 5) == "n:i64"
    assert chosen(table("n", "n:i64:D", "n:i32"), 16) == "n:i32"


def test_general_variant_serves_every_class():
    found = table("n", "n:i32:D", "n:i32")
    assert [chosen(found, value) for value in (1, 2, 3, 16, 17, 32, 48)] == [
        "n:i32", "n:i32", "n:i32", "n:i32:D", "n:i32", "n:i32:D", "n:i32:D"
    ]  # fmt: skip


def test_miss_names_argument_value_and_class():
    assert str(missed(table("n", "n:i32:D"), 37)[0]) == "n: i32 multiple of 16 -> other (n=37)"


@pytest.mark.parametrize(
    ("built", "given"),
    [
        ("fp16", "bf16"),
        ("bf16", "fp16"),
        ("i32", "fp32"),
        ("fp32", "i32"),
        ("i32", "u32"),
        ("fp8e4nv", "fp8e4b8"),
        ("fp8e4b8", "fp8e4nv"),
        ("fp8e5", "fp8e5b16"),
        ("u8", "i8"),
        ("u8", "fp8e4nv"),
        ("u8", "u1"),
        ("i64", "fp64"),
    ],
)
def test_element_types_of_one_size_are_never_mixed(built, given):
    (reason,) = missed(table("x", f"x:*{built}"), Pointer(4096, given, 64))
    assert (reason.rule, reason.built, reason.given) == (Rule.ELEMENT, built, given)


def test_const_pointer_takes_the_same_element():
    assert chosen(table("x", "x:*kfp32"), Pointer(4096, "fp32", 64)) == "x:*kfp32"


def test_bool_tensor_has_two_spellings():
    assert chosen(table("x", "x:*i1"), Pointer(4096, "u1", 64)) == "x:*i1"


POINTERS = table("x", "x:*fp32:DS", "x:*fp32:D", "x:*fp32:S", "x:*fp32")


@pytest.mark.parametrize(
    ("address", "storage", "variant"),
    [
        (4096, 2**31 - 1, "x:*fp32:DS"),
        (4096, 2**31, "x:*fp32:D"),
        (4096, None, "x:*fp32:D"),
        (4100, 64, "x:*fp32:S"),
        (4104, 2**40, "x:*fp32"),
        (0, 0, "x:*fp32:DS"),
    ],
)
def test_pointer_takes_the_variant_of_its_class(address, storage, variant):
    assert chosen(POINTERS, Pointer(address, "fp32", storage)) == variant


def test_small_storage_variant_never_serves_a_large_storage():
    (reason,) = missed(table("x", "x:*fp32:DS"), Pointer(4096, "fp32", 2**31))
    assert str(reason) == "x: storage of at most 2 GiB - 1 -> storage over 2 GiB (2147483648 bytes)"


def test_unaligned_pointer_never_gets_the_aligned_variant():
    (reason,) = missed(table("x", "x:*fp32:D"), Pointer(4100, "fp32", 64))
    assert (reason.rule, str(reason)) == (
        Rule.ALIGNMENT,
        "x: 16-byte aligned -> not 16-byte aligned (address 0x1004)",
    )


@pytest.mark.parametrize("value", [0, 0.0, False, -0.0, math.nan, 1, True, 1.0, "a", None, (1, 16), (1.0, 16)])
def test_constants_that_compare_equal_are_kept_apart(value):
    texts = ["0", "0.0", "False", "-0.0", "nan", "1", "True", "1.0", '"a"', "None", "(1,16)", "(1.0,16)"]
    found = table("V!", *(f"V={text}" for text in texts))
    assert chosen(found, Constant.of(value)) == f"V={Constant.of(value)}"


@pytest.mark.parametrize(
    ("built", "value"),
    [("i32", 1.0), ("fp32", 1), ("u1", 1), ("i32", True), ("fp32", None), ("i32", (1,)), ("*fp32", 4096)],
)
def test_python_types_are_not_converted_without_an_annotation(built, value):
    assert missed(table("v", f"v:{built}"), value)[0].rule is Rule.KIND


@pytest.mark.parametrize(
    ("type_", "value"), [("i64", 1), ("i64", True), ("fp32", 3), ("fp16", True), ("u1", 1), ("u8", 255)]
)
def test_annotation_fixes_the_type(type_, value):
    assert chosen(table(f"v/{type_}", f"v:{type_}"), value) == f"v:{type_}"


def test_annotated_value_still_has_to_fit():
    assert missed(table("v/u8", "v:u8"), 256)[0].rule is Rule.RANGE
    assert missed(table("v/i32", "v:i32"), 1.5)[0].rule is Rule.KIND


def test_tuples_match_item_by_item():
    found = table("t", "t(=1,:i32:D,(:fp32,=7))", "t(:i32,:i32,(:fp32,=7))")
    assert chosen(found, (1, 16, (0.5, 7))) == "t(=1,:i32:D,(:fp32,=7))"
    assert chosen(found, (2, 3, (0.5, 7))) == "t(:i32,:i32,(:fp32,=7))"
    assert missed(found, (2, 3, (0.5, 8)))[0] == Refusal("t[2][1]", Rule.CONSTANT, "7", "8")
    assert missed(found, (2, 3))[0].rule is Rule.KIND


def test_more_assumptions_win_and_then_the_earlier_parameter():
    found = table("x n", "x:*fp32:D,n:i32", "x:*fp32,n:i32:D", "x:*fp32,n:i32", target="cuda:90")
    assert chosen(found, Pointer(4096, "fp32"), 16) == "x:*fp32:D,n:i32"
    assert chosen(found, Pointer(4100, "fp32"), 16) == "x:*fp32,n:i32:D"
    assert chosen(found, Pointer(4100, "fp32"), 17) == "x:*fp32,n:i32"


def test_options_are_named_or_the_choice_is_refused():
    found = table("n", "n:i32", "n:i32", options=({"num_warps": 4, "num_stages": 1}, {"num_warps": 8, "num_stages": 1}))
    assert choose(found, (3,), {"num_warps": Constant.of(8)}) != choose(found, (3,), {"num_warps": Constant.of(4)})
    assert choose(found, (3,), {}) == choose(found, (3,), {"num_warps": Constant.of(4)})  # a plain call: the defaults
    without = table("n", "n:i32", "n:i32", options=({"num_warps": 2}, {"num_warps": 8}))
    (reason,) = missed(without, 3)
    assert str(reason) == "num_warps: 2 or 8 -> not given"
    assert missed(found, 3, num_warps=2)[0] == Refusal("num_warps", Rule.OPTION, "4", "2")
    with pytest.raises(InputError, match="num_wraps"):
        choose(found, (3,), {"num_wraps": Constant.of(4)})


def test_variants_that_differ_in_nothing_effective_are_one():
    found = table("n", "n:i32", "n:i32", options=({"num_warps": 4}, {"num_warps": 4}))
    assert chosen(found, 3) == "n:i32"


def test_every_candidate_is_explained_and_the_nearest_comes_first():
    found = table(
        "x n B!",
        "x:*fp32:D,n:i32:D,B=64",
        "x:*fp32:D,n:i32,B=128",
        "x:*fp16:D,n:i32,B=64",
        "x:*fp32,n=1,B=64",
        "x=None,n:i32,B=64",
        target="cuda:90",
    )
    miss = choose(found, (Pointer(4100, "fp32"), 37, Constant.of(64)), {})
    assert isinstance(miss, Miss)
    reasons = dict(miss.table())
    assert len(reasons) == 5
    assert [reason.partition(":")[0] for reason in reasons.values()] == ["x", "x", "n", "x", "x"]
    assert str(miss.nearest) == "k[cuda:90](x:*fp32:D,n:i32:D,B=64)"
    assert len(str(miss).splitlines()) == 3


def test_kernel_without_variants_is_a_miss():
    miss = choose(Table.make("k", (), ()), (), {})
    assert isinstance(miss, Miss)
    assert miss.nearest is None
    assert str(miss) == "k: no variant was built"


def test_order_does_not_depend_on_the_order_of_the_input():
    texts = ["n=1", "n:i32:D", "n:i32", "n:i64:D", "n:i64", "n:u64"]
    forward, backward = table("n", *texts), table("n", *reversed(texts))
    assert [v.key for v in forward.variants] == [v.key for v in backward.variants]
    assert [texts[position] for position in forward.positions] == [
        list(reversed(texts))[position] for position in backward.positions
    ]
