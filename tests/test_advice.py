"""Every advice is tried: the change is made as the words say, and the call is served then, or the compile is gone."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from aotkern import advice as module
from aotkern.advice import Advice, Change, say
from aotkern.arguments import Pointer as Tensor
from aotkern.dispatch import DEFAULTS, Choice, Miss, Table, Variant, choose, with_denied
from aotkern.errors import InputError
from aotkern.spec import Bool, Constant, Constexpr, Float, Int, Kernel, Null, Parameter, Pointer, Space, Tuple
from aotkern.spec.expand import expand
from aotkern.target import Target

NAMES = {
    "Bool": Bool, "Constexpr": Constexpr, "Float": Float, "Int": Int, "Null": Null, "Pointer": Pointer, "Tuple": Tuple
}  # fmt: skip
TRIED: set[Change] = set()
"""Kinds that a test below, marked by `tries`, has as its subject; what the cases try is counted from them."""


def tries(*changes: Change):
    """Mark the test that makes such a change and sees that it helps."""
    TRIED.update(changes)
    return lambda test: test


def k() -> None:
    """What a kernel is declared of."""


@dataclass
class Case:
    """A declaration and a call: parameters as in `n/i8` or `B!`, what each is declared as, and what it is given."""

    parameters: str
    declared: tuple[dict[str, Any], ...]
    call: dict[str, Any]
    named: dict[str, Any] = field(default_factory=dict)
    options: tuple[dict[str, Any], ...] = ({},)
    target: str = "gfx942"
    deny: tuple[str, ...] = ()
    becomes: dict[str, dict[Any, Any]] = field(default_factory=dict)  # what the back end makes of an option

    def outcome(self):
        made = [
            Parameter(text.rstrip("!").partition("/")[0], text.endswith("!"), type=text.partition("/")[2])
            for text in self.parameters.split()
        ]
        spaces = [Space((self.target,), row, options=given) for row in self.declared for given in self.options]
        keys = expand(Kernel(k, *spaces), made, Target.parse(self.target))
        variants = [Variant(key, self.effective(key)) for key in keys]
        denied = [variant for variant in variants if str(variant.key) in self.deny]
        table = Table.make("k", made, [variant for variant in variants if variant not in denied])
        values = [Constant.of(self.call[p.name]) if p.constexpr else self.call[p.name] for p in made]
        options = {name: Constant.of(value) for name, value in self.named.items()}
        found = choose(table, values, options)
        if isinstance(found, Miss):
            found = with_denied(found, made, denied, [str(variant.key) for variant in denied], values, options)
        return found

    def effective(self, key):
        found = dict(DEFAULTS[key.target.backend])
        for name, value in key.options:
            found[name] = Constant.of(self.becomes.get(name, {}).get(value.value, value.value))
        return found


def put(value, path, new):
    """`value` with the item at these places of nested tuples replaced."""
    if not path:
        return new
    items = list(value.items if isinstance(value, Tuple) else value)
    items[path[0]] = put(items[path[0]], path[1:], new)
    return Tuple(*items) if isinstance(value, Tuple) else tuple(items)


def got(value, path):
    for place in path:
        value = value[place]
    return value


def applied(case: Case, advice: Advice) -> list[Case]:  # noqa: C901
    """The case after the change; several where the words leave a choice."""
    base, *rest = advice.name.replace("]", "").split("[")
    path = [int(place) for place in rest]

    def passing(*values) -> list[Case]:
        return [replace(case, call={**case.call, base: put(case.call[base], path, value)}) for value in values]

    given = got(case.call[base], path) if base in case.call else None
    match advice.change:
        case Change.DECLARE:
            choice = eval(advice.value, dict(NAMES))  # the words are Python
            row = case.declared[0]
            return [replace(case, declared=(*case.declared, {**row, base: put(row[base], path, choice)}))]
        case Change.BUILD_OPTION:
            more = {**case.options[0], **eval(re.search(r"options=(\{.*\})", str(advice))[1])}
            return [replace(case, options=(*case.options, more))]
        case Change.NAME_OPTION:
            return [replace(case, named={**case.named, base: int(text)}) for text in advice.value.split(" or ")]
        case Change.ALIGN:
            return passing(replace(given, address=given.address // 16 * 16))
        case Change.STORAGE_BYTES:
            return passing(replace(given, storage_bytes=64))
        case Change.FIT_ANNOTATION:
            return passing(1, 127)
        case Change.PASS:
            values = {"a number": (0.5, 3), "an integer": (3,)}.get(advice.value)
            return passing(*(values or (5,)))
        case Change.CONVERT:
            return passing(replace(given, element=advice.value))
        case Change.UNDENY:
            return [replace(case, deny=tuple(entry for entry in case.deny if entry != advice.value))]
    raise AssertionError(f"{advice.change} is not tried here")


X = {"x": Pointer("fp32", storage="small")}
GIVEN = {"x": Tensor(4096, "fp32", 64)}
CASES = {
    "not a multiple of 16": Case("n", ({"n": Int(classes=("16",))},), {"n": 37}),
    "an annotated one": Case("n/i64", ({"n": Int("i64", classes=("16",))},), {"n": 37}),
    "an item of a tuple": Case("t", ({"t": Tuple(Int(classes=("16",)), Float())},), {"t": (37, 0.5)}),
    "not aligned": Case("x", (X,), {"x": Tensor(4100, "fp32", 64)}),
    "a large storage": Case("x", (X,), {"x": Tensor(4096, "fp32", 2**31)}),
    "a storage of unknown size": Case("x", (X,), {"x": Tensor(4096, "fp32", None)}),
    "a wide integer": Case("n", ({"n": Int()},), {"n": 2**31}),
    "a wide negative integer": Case("n", ({"n": Int()},), {"n": -(2**31) - 1}),
    "an unsigned integer": Case("n", ({"n": Int()},), {"n": 2**64 - 1}),
    "a negative one where it is unsigned": Case("n", ({"n": Int("u64", classes=("any",))},), {"n": -5}),
    "an integer that no type holds": Case("n", ({"n": Int()},), {"n": 2**64}),
    "more than its annotation holds": Case("n/i8", ({"n": Int("i8", classes=("any",))},), {"n": 128}),
    "more than uint64": Case("n/u64", ({"n": Int("u64", classes=("any",))},), {"n": 2**64}),
    "a float for an annotated integer": Case("n/i32", ({"n": Int(classes=("any",))},), {"n": 1.5}),
    "None for an annotated float": Case("n/fp32", ({"n": Float()},), {"n": None}),
    "an integer beside the folded 1": Case("n", ({"n": Int(classes=("1",))},), {"n": 3}),
    "an integer of three kinds": Case("s", ({"s": Int(classes=("1",))}, {"s": Float()}, {"s": Bool()}), {"s": 3}),
    "a constant": Case("B!", ({"B": Constexpr(128)},), {"B": 64}),
    "a text constant": Case("B!", ({"B": Constexpr("a")},), {"B": 'b "c"'}),
    "nan": Case("B!", ({"B": Constexpr(0.5)},), {"B": float("nan")}),
    "a tuple of constants": Case("B!", ({"B": Constexpr((1, 2))},), {"B": (1, (2.0, None, True))}),
    "None for a tensor": Case("x", (X,), {"x": None}),
    "a tensor for None": Case("x", ({"x": Null()},), GIVEN),
    "a number for None": Case("x", ({"x": Null()},), {"x": 0.5}),
    "a float for an integer": Case("n", ({"n": Int()},), {"n": 0.5}),
    "an integer for a float": Case("n", ({"n": Float()},), {"n": 5}),
    "a bool for an integer": Case("n", ({"n": Int()},), {"n": True}),
    "an integer for a tensor": Case("x", (X,), {"x": 4096}),
    "a tensor for an integer": Case("x", ({"x": Int()},), {"x": Tensor(4100, "fp16", 2**31)}),
    "a longer tuple": Case("t", ({"t": Tuple(Int(), Int())},), {"t": (5, 2**40, Tensor(4096, "u8", 64))}),
    "a number for a tuple": Case("t", ({"t": Tuple(Int(), Int())},), {"t": 5}),
    "another element type": Case("x", (X,), {"x": Tensor(4096, "bf16", 64)}),
    "a bool tensor": Case("x", (X,), {"x": Tensor(4096, "u1", 64)}),
    "a bool tensor is wanted": Case("x", ({"x": Pointer("i1")},), {"x": Tensor(4096, "u8", 64)}),
    "another option": Case("x", (X,), GIVEN, {"num_warps": 8}),
    "an option that the back end changes": Case(
        "x", (X,), GIVEN, {"kpack": 2}, target="gfx950", becomes={"kpack": {2: 1}}
    ),
    "options without the default": Case("x", (X,), GIVEN, options=({"num_warps": 2}, {"num_warps": 8})),
    "out of service": Case("x", (X,), GIVEN, deny=("k[hip:gfx942](x:*fp32:DS)",)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_miss_advises_helps(name):
    case = CASES[name]
    missed = case.outcome()
    assert isinstance(missed, Miss)
    _, reasons = missed.refused[0]
    assert len(reasons) == 1, str(missed)
    assert reasons[0].advice, str(missed)
    assert say(reasons[0].advice) in str(missed)
    for advice in reasons[0].advice:
        assert advice.name.partition("[")[0] in str(advice)
        for changed in applied(case, advice):
            outcome = changed.outcome()
            assert isinstance(outcome, Choice), f"{advice}: {outcome}"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("an integer beside the folded 1", 'declare n as Int("i32", classes=("any",)), too'),
        ("an integer of three kinds", 'declare s as Int("i32", classes=("any",)), too'),
        ("more than its annotation holds", "pass n within the range of i8, which its annotation fixes"),
        ("more than uint64", "pass n within the range of u64, which its annotation fixes"),
        ("an option that the back end changes", 'build a variant with options={"kpack": 2}'),
    ],
)
def test_examples_of_advice(case, words):
    assert words in str(CASES[case].outcome())


def test_an_option_that_the_back_end_changed_is_served_as_it_was_asked():
    case = replace(CASES["an option that the back end changes"], options=({"kpack": 2},))
    assert isinstance(case.outcome(), Choice)


def test_a_plain_call_means_the_defaults_whatever_else_was_built():
    rows = ({"num_warps": 8}, {"num_warps": 4}, {"num_warps": 8, "num_stages": 1})
    for options in (rows, rows[::-1], ({}, {"num_warps": 8}), ({"waves_per_eu": 1}, {})):
        outcome = replace(CASES["another option"], named={}, options=options).outcome()
        assert isinstance(outcome, Choice)
    table = replace(CASES["another option"], named={"num_warps": 8}, options=rows).outcome()
    assert isinstance(table, Miss | Choice)


def test_defaults_are_tritons_own():
    pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    for target in (GPUTarget("hip", "gfx942", 64), GPUTarget("hip", "gfx950", 64), GPUTarget("cuda", 90, 32)):
        found = vars(make_backend(target).parse_options({}))
        backend = Target.parse(f"{target.backend}:{target.arch}").backend
        for name, value in DEFAULTS[backend].items():
            assert name not in found or Constant.of(found[name]) == value, name


def test_an_autotuner_in_a_declaration_is_told_where_its_function_is():
    triton = pytest.importorskip("triton")
    import triton_kernels

    inner = next(item for item in vars(triton_kernels).values() if hasattr(item, "get_capture_scope"))
    tuned = triton.autotune([triton.Config({}), triton.Config({}, num_warps=8)], key=[])(inner)
    both = triton.heuristics({})(tuned)
    for function, words in ((tuned, "declare it.fn,"), (both, "declare it.fn.fn,")):
        with pytest.raises(InputError, match=words):
            Kernel(function)
    assert Kernel(tuned.fn).function is inner
    with pytest.raises(InputError, match="found int"):
        Kernel(5)


# ---- The audit of compiles ------------------------------------------------------------------------------------------


@pytest.fixture
def device(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    from aotkern.triton_bridge.paper import paper_device

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    with paper_device(Target.parse("gfx942")):
        yield


SOURCE = """
import triton
import triton.language as tl

@triton.jit{marks}
def k(x, n{n}, B: tl.constexpr = 1, t=(1, 2)):
    tl.store(x, n + B + t[0])

@triton.jit
def unread(x, n, B: tl.constexpr):
    tl.store(x, n)
"""


def kernels(folder, marks: str = "", n: str = "") -> dict[str, Any]:
    path = folder / f"advised_{abs(hash((marks, n)))}.py"
    path.write_text(SOURCE.format(marks=marks, n=n))
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return vars(found)


def compiled(calls, *, before=()) -> tuple[int, list]:
    """Compiles after ready of these calls, each a function; and the causes that the audit gives."""
    from aotkern.audit.counting import count_jit

    with count_jit() as jit:
        for call in before:
            call()
        jit.ready()
        for call in calls:
            call()
    return jit.report.count("serving"), [
        cause for row in jit.report.rows for cause in row.causes if row.phase == "serving"
    ]


def paper(element="float32", address=4096):
    from aotkern.triton_bridge.paper import PaperTensor

    return PaperTensor(element) if address == 4096 else PaperTensor(element, address=address)


def changes(causes) -> dict[Change, Advice]:
    return {change.change: change for cause in causes for change in cause.changes}


@tries(Change.PAD, Change.UNSPECIALISE, Change.BUILD)
@pytest.mark.parametrize("second", [17, 1])
def test_a_class_that_differs(device, tmp_path, second):
    function = kernels(tmp_path)["k"]
    count, causes = compiled([lambda: function[(1,)](paper(), second)], before=[lambda: function[(1,)](paper(), 16)])
    assert count == 1
    found = changes(causes)
    assert (Change.PAD in found) == (second == 17)
    assert set(found) <= {Change.PAD, Change.UNSPECIALISE, Change.BUILD}
    changed = kernels(tmp_path, marks=f"({found[Change.UNSPECIALISE]})")["k"]
    assert compiled([lambda: changed[(1,)](paper(), second)], before=[lambda: changed[(1,)](paper(), 16)])[0] == 0
    again = kernels(tmp_path, n=" ")["k"]
    if second == 17:
        assert compiled([lambda: again[(1,)](paper(), 32)], before=[lambda: again[(1,)](paper(), 16)])[0] == 0
    warm = [lambda n=n: again[(1,)](paper(), n) for n in (16, second)]
    assert compiled(warm[1:], before=warm)[0] == 0


def test_an_item_of_a_tuple_is_not_told_to_be_what_it_cannot_be(device, tmp_path):
    function = kernels(tmp_path)["k"]
    calls = [lambda t=t: function[(1,)](paper(), 5, t=t) for t in ((16, 2), (17, 2), (2**40, 2))]
    _, causes = compiled(calls[1:], before=calls[:1])
    assert set(changes(causes)) <= {Change.PAD, Change.BUILD}


@tries(Change.ANNOTATE)
@pytest.mark.parametrize("second", [2**40 + 1, 0.5])
def test_a_width_that_differs(device, tmp_path, second):
    function = kernels(tmp_path)["k"]
    _, causes = compiled([lambda: function[(1,)](paper(), second)], before=[lambda: function[(1,)](paper(), 17)])
    advice = changes(causes)[Change.ANNOTATE]
    annotation = re.search(r"annotate n as (tl\.\w+)", str(advice))[1]
    changed = kernels(tmp_path, n=f": {annotation}")["k"]
    assert compiled([lambda: changed[(1,)](paper(), second)], before=[lambda: changed[(1,)](paper(), 17)])[0] == 0


@tries(Change.RUN_TIME)
def test_many_values_of_a_constexpr(device, tmp_path):
    function = kernels(tmp_path)["k"]
    calls = [lambda b=b: function[(1,)](paper(), 5, B=b) for b in range(2, 8)]
    _, causes = compiled(calls[1:], before=calls[:1])
    assert str(changes(causes)[Change.RUN_TIME]) == 'make B a run-time argument, with do_not_specialize=["B"]'
    text = SOURCE.replace("B: tl.constexpr = 1", "B=1")
    path = tmp_path / "advised_run_time.py"
    path.write_text(text.format(marks='(do_not_specialize=["B"])', n=""))
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    calls = [lambda b=b: found.k[(1,)](paper(), 5, B=b) for b in range(2, 8)]
    assert compiled(calls[1:], before=calls[:1])[0] == 0


@tries(Change.DROP, Change.WARM_UP, Change.KEEP_FUNCTION)
def test_first_use_again_and_unread(device, tmp_path):
    from triton.runtime.jit import JITFunction

    found = kernels(tmp_path)

    def first():
        return found["k"][(1,)](paper(), 5)

    count, causes = compiled([first])
    assert (count, set(changes(causes))) == (1, {Change.WARM_UP})
    other = JITFunction(found["k"].fn)

    def call():
        return other[(1,)](paper(), 5)

    assert compiled([call], before=[call])[0] == 0

    def made():
        return JITFunction(found["k"].fn)[(1,)](paper(), 5)

    _, causes = compiled([made], before=[made])
    assert Change.KEEP_FUNCTION in changes(causes)
    calls = [lambda b=b: found["unread"][(1,)](paper(), 5, b) for b in (1, 2)]
    count, causes = compiled(calls)
    assert (count, changes(causes)[Change.DROP].name) == (2, "B")
    assert compiled([calls[1]], before=[calls[1]])[0] == 0  # the same value always


@tries(Change.MAKE_INSIDE)
def test_what_is_advised_for_a_tensor_descriptor(device):
    from aotkern.audit.jit.causes import _advice
    from aotkern.audit.jit.declare import declaration
    from aotkern.spec import Fixed
    from aotkern.spec.difference import differences

    texts = ("tensordesc<fp16[64,64]>", "tensordesc<fp16[32,64]>")
    before, after = ([("d", Fixed(Constant.of(text)))] for text in texts)
    (difference,) = differences(before, after)
    compile_ = type("Compile", (), {"unspecialised": (), "constexprs": ()})()
    assert [item.change for item in _advice(difference, compile_)] == [Change.MAKE_INSIDE]
    assert declaration("gfx942", [before, after], frozenset()) == ""


def test_every_kind_of_advice_is_tried():
    missed = [case.outcome().refused[0][1] for case in CASES.values()]
    by_cases = {advice.change for reasons in missed for reason in reasons for advice in reason.advice}
    elsewhere = {Change.SHIP_CHOICE}  # tests/triton_bridge/test_serve.py: a recorded choice is not benchmarked
    assert set(Change) - TRIED - by_cases == elsewhere
    assert set(module._WORDS) == set(Change)
