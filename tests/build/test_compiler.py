"""Compiling one variant, in this process: what is checked before and after."""

import re

import pytest

pytest.importorskip("triton")

from making import HEAD, written

from aotkern.build.compiler import compile_variant, effective_options
from aotkern.build.registry import load
from aotkern.errors import BuildError
from aotkern.spec import Constant, VariantKey, expand
from aotkern.target import Target

KERNELS = (
    HEAD
    + """
from triton.language.core import dtype


@triton.jit
def store(x, V: tl.constexpr):
    tl.store(x, V)


@triton.jit
def typed(x, s, f, n, m):
    if f:
        tl.store(x + m, s + n)


@triton.jit
def twice(v):
    return v * 2


@triton.jit
def thrice(v):
    return v * 3


@triton.jit
def applied(x, F: tl.constexpr, T: tl.constexpr):
    tl.store(x, F(tl.load(x)).to(T).to(tl.float32))


@triton.jit
def grouped(x, group):
    tl.store(x + group[1], group[0] + group[2][0])


@triton.jit
def product(a, b, out, K: tl.constexpr):
    rows, inner = tl.arange(0, 64), tl.arange(0, 128)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 128):
        left = tl.load(a + rows[:, None] * K + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * 64 + rows[None, :])
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * 64 + rows[None, :], total)


@triton.jit
def fnuz(x, out):
    tl.store(out, tl.load(x).to(tl.float32))


@triton.jit
def broken(x):
    tl.store(x, undefined_name)


EVERY = ("gfx942", "gfx950", "cuda:90")
X = {"x": Pointer("fp32", "any")}
KERNELS = (
    Kernel(store, Space(EVERY, {**X, "V": Constexpr(0, 0.0, -0.0, False, float("nan"), 1)})),
    Kernel(
        typed,
        Space(EVERY, {**X, "s": Float(), "f": Bool(), "n": Int("i64", ("any",)), "m": Int(classes=("1", "16", "any"))}),
    ),
    Kernel(applied, Space(EVERY, {**X, "F": Constexpr(twice, thrice), "T": Constexpr(tl.float16, tl.bfloat16)})),
    Kernel(
        grouped,
        Space(EVERY, {**X, "group": Tuple(Float(), Int(classes=("1", "any")), Tuple(Float(), Constexpr(7)))}),
    ),
    Kernel(
        product,
        Space(
            ("gfx942", "gfx950"),
            {"a": Pointer("bf16", "any"), "b": Pointer("bf16", "any"), "out": Pointer("fp32", "any"), "K": 1024},
            options={"num_stages": 4, "num_warps": 8},
        ),
    ),
    Kernel(fnuz, Space(EVERY, {"x": Pointer("fp8e4b8", "any"), "out": Pointer("fp32", "any")})),
    Kernel(broken, Space(EVERY, X)),
)
"""
)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", list(__import__("sys").path))
        loaded = load([written(tmp_path_factory.mktemp("compiler"), KERNELS, "several.py")])
    return {kernel.declaration.name: kernel for kernel in loaded}


@pytest.fixture
def compiled(kernels, pinned_process):
    """`compiled(name, target)` compiles every variant: `{key: Compiled}`; options are added to each key."""

    def of(name, target="gfx942", **options):
        kernel = kernels[name]
        keys = expand(kernel.declaration, kernel.parameters, Target.parse(target))
        asked = tuple((option, Constant.of(value)) for option, value in sorted(options.items()))
        keys = [VariantKey(k.kernel, k.target, k.arguments, asked or k.options) for k in keys]
        return {str(key): compile_variant(kernel, key) for key in keys}

    return of


def key(target="gfx942", **options):
    asked = tuple((name, Constant.of(value)) for name, value in sorted(options.items()))
    return VariantKey("k", Target.parse(target), (), asked)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "cuda:90"])
def test_a_misspelt_option_is_an_error_that_names_the_known_ones(target):
    with pytest.raises(BuildError) as refused:
        effective_options(key(target, wave_per_eu=2))
    assert refused.value.key == str(key(target, wave_per_eu=2))
    assert "unknown option wave_per_eu" in refused.value.reason
    assert "num_warps" in refused.value.reason
    assert ("waves_per_eu" in refused.value.reason) == target.startswith("gfx")


@pytest.mark.parametrize("name", ["arch", "backend_name", "extern_libs", "ir_override", "warp_size"])
def test_what_the_build_decides_cannot_be_asked_for(name):
    with pytest.raises(BuildError, match=f"unknown option {name}"):
        effective_options(key(**{name: "x"}))


@pytest.mark.parametrize("options", [{"num_warps": 3}, {"num_warps": "four"}, {"num_warps": 0}], ids=str)
def test_a_value_that_the_back_end_refuses_is_an_error_with_the_key(options):
    with pytest.raises(BuildError) as refused:
        effective_options(key(**options))
    assert refused.value.key == str(key(**options))


def test_what_took_effect_stands_beside_what_was_asked():
    asked = key("gfx950", kpack=2)
    assert dict(asked.options)["kpack"] == Constant("2")
    assert effective_options(asked)["kpack"] == Constant("1")
    assert effective_options(key("gfx942", kpack=2))["kpack"] == Constant("2")


def test_libraries_are_known_by_content_and_not_by_place():
    text = effective_options(key())["extern_libs"].text
    assert "sha256:" in text
    assert "/" not in text


def test_options_are_part_of_the_key():
    texts = {str(key(num_warps=n, num_stages=s, waves_per_eu=w)) for n in (1, 2) for s in (1, 2) for w in (0, 2)}
    assert len(texts) == 8


def test_equal_comparing_constants_are_compiled_apart(compiled):
    found = compiled("store")
    values = [text.partition("V=")[2].rstrip(")") for text in found]
    assert values == ["0", "0.0", "-0.0", "False", "nan", "1"]
    data = [item.data for item in found.values()]
    assert data[values.index("0.0")] != data[values.index("-0.0")]
    assert len(set(data)) >= 4


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "cuda:90"])
def test_the_argument_layout_is_that_of_the_key(compiled, target):
    found = compiled("typed", target)
    assert len(found) == 3
    for text, item in found.items():
        offsets = [(a.offset, a.size) for a in item.code.arguments if not a.kind.startswith("hidden_")]
        head = [(0, 8), (8, 4), (12, 1), (16, 8)]
        assert offsets[:4] == head
        # An integer known to be 1 is no parameter; the two scratch pointers follow in any case.
        assert offsets[4:] == ([(24, 8), (32, 8)] if "m=1" in text else [(24, 4), (32, 8), (40, 8)])


@pytest.mark.parametrize("target", ["gfx942", "cuda:90"])
def test_tuples_are_flattened_and_keep_their_constants(compiled, target):
    found = compiled("grouped", target)
    assert {text.partition(",group")[2] for text in found} == {"(:fp32,=1,(:fp32,=7)))", "(:fp32,:i32,(:fp32,=7)))"}
    sizes = [[a.size for a in item.code.arguments if not a.kind.startswith("hidden_")] for item in found.values()]
    assert sorted(sizes, key=len) == [[8, 4, 4, 8, 8], [8, 4, 4, 4, 8, 8]]


def test_functions_and_dtypes_as_constants_reach_the_code(compiled):
    found = compiled("applied")
    assert {re.sub("#[0-9a-f]{16}", "", text.partition("F=")[2]) for text in found} == {
        f"&several:{function},T=@{dtype})" for function in ("twice", "thrice") for dtype in ("fp16", "bf16")
    }
    assert len({item.data for item in found.values()}) == 4


def test_lds_over_the_limit_is_refused_with_both_numbers(compiled):
    with pytest.raises(BuildError, match=r"LDS of a workgroup: 98304 > 65536 bytes \(gfx942\)"):
        compiled("product", "gfx942")
    (item,) = compiled("product", "gfx950").values()
    assert 65_536 < item.launch.shared <= 163_840


def test_too_many_warps_are_refused(compiled):
    with pytest.raises(BuildError, match=r"num_warps: 32 > 16 \(gfx942\)"):
        compiled("store", num_warps=32)


def test_a_type_that_the_target_lacks_is_a_failure_with_the_key(compiled):
    assert len(compiled("fnuz", "gfx942")) == len(compiled("fnuz", "gfx950")) == 1
    with pytest.raises(BuildError) as refused:
        compiled("fnuz", "cuda:90")
    assert refused.value.key == "fnuz[cuda:90](x:*fp8e4b8:D,out:*fp32:D)"
    assert "fp8e4b8" in refused.value.reason


def test_a_source_that_does_not_compile_is_a_failure_with_the_key(compiled):
    with pytest.raises(BuildError, match="undefined_name is not defined") as refused:
        compiled("broken")
    assert refused.value.key == "broken[hip:gfx942](x:*fp32:D)"


def test_each_code_object_is_for_its_target(compiled):
    for target in ("gfx942", "gfx950", "cuda:90"):
        assert {item.code.target for item in compiled("store", target).values()} == {Target.parse(target)}
