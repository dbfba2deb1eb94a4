"""Coverage is a proof: it agrees with asking dispatch about every single value."""

from __future__ import annotations

import itertools
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotkern import schemas
from aotkern.arguments import Pointer
from aotkern.audit.coverage import domain as domains
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.coverage.domain import Calls, Integers, Tensors, Values
from aotkern.audit.coverage.proof import prove
from aotkern.dispatch import Choice, choose
from aotkern.errors import InputError
from aotkern.report import coverage as text
from aotkern.spec import Constant, Parameter, VariantKey
from aotkern.target import Target

GFX942 = Target.parse("gfx942")
PARAMETERS = (Parameter("x"), Parameter("n"), Parameter("B", constexpr=True))


def catalogue(*arguments: str, parameters=PARAMETERS, options: str = "") -> Catalogue:
    keys = [VariantKey.parse(f"k[hip:gfx942]({text}){options}") for text in arguments]
    return Catalogue.of_keys("test", GFX942, {"k": (parameters, keys)})


def proved(found: Catalogue, **arguments):
    return prove(found, [Calls("k", arguments)], "domain").kernels[0]


ALIGNED = Tensors(("fp32",), aligned=(True,), small=(True,))


def test_a_range_falls_into_the_classes_that_the_variants_ask_about():
    found = catalogue("x:*fp32:DS,n:i32:D,B=64")
    kernel = proved(found, x=ALIGNED, n=Integers(1, 48), B=Values((Constant("64"),)))
    assert (kernel.calls, kernel.covered) == (2, 1)
    (gap,) = kernel.gaps
    assert gap.reasons == ("n: i32 multiple of 16 -> other (n=1)",)
    assert "n: no multiple of 16" in gap.example


def test_a_general_variant_covers_every_integer_of_its_type():
    found = catalogue("x:*fp32:DS,n:i32,B=64", "x:*fp32:DS,n:i32:D,B=64")
    assert proved(found, x=ALIGNED, n=Integers(-(2**31), 2**31 - 1), B=Values((Constant("64"),))).gaps == ()
    wide = proved(found, x=ALIGNED, n=Integers(0, 2**31 + 100), B=Values((Constant("64"),)))
    assert len(wide.gaps) == 2
    assert all("out of its range" in gap.reasons[0] for gap in wide.gaps)


def test_a_step_leaves_out_the_classes_that_it_never_meets():
    found = catalogue("x:*fp32:DS,n:i32:D,B=64")
    assert proved(found, x=ALIGNED, n=Integers(16, 4096, 16), B=Values((Constant("64"),))).gaps == ()
    assert proved(found, x=ALIGNED, n=Integers(16, 4096, 24), B=Values((Constant("64"),))).gaps


def test_storage_and_alignment_are_asked_about():
    found = catalogue("x:*fp32:DS,n:i32,B=64", "x:*fp32:D,n:i32,B=64")
    kernel = proved(found, x=Tensors(("fp32",)), n=Integers(1, 9), B=Values((Constant("64"),)))
    assert (kernel.calls, kernel.covered) == (4, 2)
    assert [gap.reasons[0].partition(" (")[0] for gap in kernel.gaps] == ["x: 16-byte aligned -> not 16-byte aligned"]
    assert 'alignment="both"' in kernel.gaps[0].advice[0]


@pytest.mark.parametrize(("numbers", "impossible"), [(Integers(unbounded=True), True), (Integers(60, 70), False)])
def test_a_constexpr_that_takes_endless_values_cannot_be_covered(numbers, impossible):
    kernel = proved(catalogue("x:*fp32:DS,n:i32,B=64"), x=ALIGNED, n=Integers(1, 9), B=numbers)
    assert (kernel.calls, kernel.covered) == (2, 1)
    (gap,) = kernel.gaps
    assert gap.impossible is impossible
    assert ("cannot be covered" in gap.advice[0]) is impossible


def test_a_kernel_that_was_not_built_covers_nothing():
    (kernel,) = prove(catalogue(), [Calls("other", {})], "domain").kernels
    assert (kernel.covered, kernel.gaps[0].reasons) == (0, ("no variant was built",))


def test_variants_that_differ_in_options_ask_for_the_option():
    one, two = (
        VariantKey.parse(f"k[hip:gfx942](x:*fp32:DS,n:i32,B=64){{num_warps={warps}}}").options for warps in (2, 8)
    )
    keys = [
        VariantKey("k", GFX942, VariantKey.parse("k[hip:gfx942](x:*fp32:DS,n:i32,B=64)").arguments, options)
        for options in (one, two)
    ]
    found = Catalogue.of_keys("test", GFX942, {"k": (PARAMETERS, keys)})
    arguments = {"x": ALIGNED, "n": Integers(1, 9), "B": Values((Constant("64"),))}
    assert "num_warps: 2 or 8 -> not given" in prove(found, [Calls("k", arguments)], "d").kernels[0].gaps[0].reasons
    assert prove(found, [Calls("k", arguments, {"num_warps": Constant("8")})], "d").verdict.exit_code == 0


def test_a_parameter_that_is_left_out_takes_its_default_and_others_are_refused():
    parameters = (Parameter("x"), Parameter("n"), Parameter("B", constexpr=True, default="64"))
    found = catalogue("x:*fp32:DS,n:i32,B=64", parameters=parameters)
    assert proved(found, x=ALIGNED, n=Integers(1, 9)).gaps == ()
    with pytest.raises(InputError) as caught:
        prove(found, [Calls("k", {"x": ALIGNED, "m": Integers(1, 2)})], "domain")
    assert len(caught.value.problems) == 2


SPECS = st.lists(
    st.tuples(
        st.sampled_from(["*fp32:DS", "*fp32:D", "*fp32:S", "*fp32", "*fp16:DS"]),
        st.sampled_from(["=1", ":i32", ":i32:D", ":i64", ":i64:D"]),
        st.sampled_from([1, 16, 17, 64]),
    ),
    max_size=8,
    unique=True,
)


@settings(max_examples=80)
@given(specs=SPECS, low=st.integers(-20, 40), width=st.integers(0, 40), step=st.integers(1, 20))
def test_the_proof_agrees_with_asking_about_every_value(specs, low, width, step):
    found = catalogue(*(f"x:{x},n{n},B={b}" for x, n, b in specs))
    numbers, blocks = Integers(low, low + width, step), Integers(1, 64, 1)
    kernel = proved(found, x=Tensors(("fp32", "fp16")), n=numbers, B=blocks)
    pointers = [
        Pointer(address, element, storage)
        for element, address, storage in itertools.product(("fp32", "fp16"), (4096, 4100), (100, 2**31))
    ]
    calls = itertools.product(pointers, range(low, low + width + 1, step), (1, 16, 17, 64, 2))
    answers = [isinstance(choose(found.tables["k"], call, {}), Choice) for call in calls]
    assert (kernel.covered == kernel.calls) == all(answers)
    assert (kernel.covered == 0) == (not any(answers))
    assert sum(gap.calls for gap in kernel.gaps) + kernel.covered == kernel.calls


TEXT = """
version = 1
[[call]]
kernel = "k"
options = { num_warps = 4 }
[call.arguments]
x = { tensor = "fp32", aligned = true, storage = "small" }
n = { from = 1, to = 48, step = 3 }
B = { values = [64, 128] }
s = { tuple = [{ float = true }, { none = true }, { bool = true }] }
t = { unbounded = true }
"""


def test_a_domain_is_read_from_toml(tmp_path):
    path = tmp_path / "domain.toml"
    path.write_text(TEXT)
    (calls,) = domains.read(path)
    assert calls.options == {"num_warps": Constant("4")}
    assert calls.arguments["x"] == Tensors(("fp32",), (True,), (True,))
    assert calls.arguments["n"] == Integers(1, 48, 3)
    assert calls.arguments["t"].count == 2**64 + 2**63


def test_every_problem_of_a_domain_is_said_at_once():
    row = {"x": {"tensor": [], "aligned": "yes"}, "n": {"from": 9, "to": 1}, "m": {"values": []}, "k": {"what": 1}}
    with pytest.raises(InputError) as caught:
        domains.from_values({"version": 2, "call": [{"kernel": "k", "arguments": row}]}, "d")
    places = [problem.where for problem in caught.value.problems]
    arguments = ("x: tensor", "x: aligned", "n", "m: values", "k")
    assert places == ["d: version", *(f"d: call 1: {name}" for name in arguments)]


def test_the_report_says_what_is_missing_and_fits_its_schema():
    calls = Calls("k", {"x": ALIGNED, "n": Integers(1, 48), "B": Integers(unbounded=True)})
    report = prove(catalogue("x:*fp32:DS,n:i32:D,B=64"), [calls], "domain.toml")
    lines = text.summary(report).splitlines()
    assert lines[-1] == "coverage of domain.toml by test (hip:gfx942): findings"
    assert any("k: cannot be covered, such as" in line for line in lines)
    document = text.json_document(report)
    jsonschema.Draft202012Validator(schemas.load("coverage")).validate(document)
    assert json.loads(json.dumps(document)) == document
