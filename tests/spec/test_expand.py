import pytest

from aotkern.errors import InputError
from aotkern.spec import Bool, Constexpr, Float, Int, Joint, Kernel, Null, Parameter, Pointer, Space, Tuple, expand
from aotkern.target import Target

GFX942, SM90 = Target.parse("gfx942"), Target.parse("cuda:90")
BOTH = ("gfx942", "cuda:90")


def add():
    """Stands for a kernel function; only its name is used."""


def parameters(*names):
    """Parameters by name; upper case means constexpr."""
    return tuple(Parameter(name, constexpr=name.isupper()) for name in names)


def texts(space, params, target=GFX942, **kwargs):
    return [str(key).removeprefix(f"add[{target}]") for key in expand(Kernel(add, space), params, target, **kwargs)]


def test_choices_multiply_in_declaration_order():
    space = Space(BOTH, {"x": Pointer("fp32"), "n": Int(), "B": Constexpr(16, 32)}, options={"num_warps": 4})
    assert texts(space, parameters("x", "n", "B"), SM90) == [
        "(x:*fp32:D,n:i32:D,B=16){num_warps=4}",
        "(x:*fp32:D,n:i32:D,B=32){num_warps=4}",
        "(x:*fp32:D,n:i32,B=16){num_warps=4}",
        "(x:*fp32:D,n:i32,B=32){num_warps=4}",
    ]


def test_storage_is_one_axis_for_all_pointers_and_only_on_amd():
    space = Space(BOTH, {"x": Pointer("fp32"), "y": Pointer("fp32"), "z": Pointer("i32", storage="small")})
    assert texts(space, parameters("x", "y", "z")) == [
        "(x:*fp32:DS,y:*fp32:DS,z:*i32:DS)",
        "(x:*fp32:D,y:*fp32:D,z:*i32:DS)",
    ]
    assert texts(space, parameters("x", "y", "z"), SM90) == ["(x:*fp32:D,y:*fp32:D,z:*i32:D)"]


def test_alignment_is_one_axis_for_all_pointers():
    space = Space(BOTH, {"x": Pointer("fp32", alignment="both"), "y": Pointer("fp32", alignment="both", storage="any")})
    assert texts(space, parameters("x", "y"), SM90) == ["(x:*fp32:D,y:*fp32:D)", "(x:*fp32,y:*fp32)"]


def test_every_kind_of_choice():
    space = Space(
        BOTH,
        {
            "f": Float(),
            "b": Bool(),
            "o": Null(),
            "n": Int("i64", ("1", "any")),
            "t": Tuple(Int(classes=("any",)), Null()),
        },
    )
    assert texts(space, parameters("f", "b", "o", "n", "t"), SM90) == [
        "(f:fp32,b:u1,o=None,n=1,t(:i32,=None))",
        "(f:fp32,b:u1,o=None,n:i64,t(:i32,=None))",
    ]


def test_joint_rows_do_not_multiply_and_may_carry_options():
    joint = Joint(("S", "A", "options.num_warps"), ((1, False, 4), (8, True, 8)))
    assert texts(Space(BOTH, {}, (joint,)), parameters("S", "A"), SM90) == [
        "(S=1,A=False){num_warps=4}",
        "(S=8,A=True){num_warps=8}",
    ]


def test_a_constexpr_default_may_be_left_out_and_repeated_variants_are_built_once():
    params = (Parameter("B", constexpr=True, default="128"),)
    kernel = Kernel(add, Space(BOTH, {}), Space(BOTH, {"B": 128}))
    assert [str(key) for key in expand(kernel, params, SM90)] == ["add[cuda:90](B=128)"]


def test_a_target_that_no_space_names_has_no_variants():
    assert expand(Kernel(add, Space(("gfx950",), {"x": Int()})), parameters("x"), GFX942) == ()


def test_all_problems_are_told_at_once_with_their_place():
    space = Space(BOTH, {"x": 3, "B": Int(), "typo": Int()})
    with pytest.raises(InputError) as caught:
        expand(Kernel(add, space), parameters("x", "B", "y"), GFX942)
    message = str(caught.value)
    for part in ("typo", "no such parameter", "space 1: y", "space 1: x", "space 1: B", "tl.constexpr"):
        assert part in message


def test_unspecialised_and_annotated_parameters_hold_the_declaration_to_them():
    params = (Parameter("n", specialised=False), Parameter("m", type="i64"))
    with pytest.raises(InputError, match=r"(?s)n: expected classes=\('any',\).*m: expected type 'i64'"):
        expand(Kernel(add, Space(BOTH, {"n": Int(), "m": Int()})), params, GFX942)


def test_a_constexpr_fed_by_a_size_is_refused_and_named():
    space = Space(BOTH, {"x": Int(), "TOKENS": Constexpr(*range(1, 500))})
    with pytest.raises(InputError, match="TOKENS alone has 499 values: could it be a run-time argument"):
        expand(Kernel(add, space), parameters("x", "TOKENS"), GFX942, limit=100)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Int("fp32"),
        lambda: Int(classes=()),
        lambda: Int(classes=("16", "16")),
        lambda: Int(classes=("other",)),
        lambda: Float("i32"),
        lambda: Pointer("float"),
        lambda: Pointer("fp32", storage="large"),
        Constexpr,
        lambda: Joint(("A", "B"), ((1,),)),
        lambda: Joint((), ()),
    ],
)
def test_a_choice_that_means_nothing_cannot_be_made(make):
    with pytest.raises(InputError, match="expected"):
        make()
