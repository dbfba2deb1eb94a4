"""What the digest of a kernel covers, and what it does not; how sources are found."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton")

from making import GFX942, HEAD, edited, written

from aotkern.build import registry
from aotkern.build.registry import Source, load
from aotkern.errors import InputError
from aotkern.spec import Parameter, expand

RICH = (
    HEAD
    + '''
import helpers_here
from helpers_here import imported

SIZE: tl.constexpr = tl.constexpr(4)
PAIR = (1, 2.0)
OWN = 3
KIND: tl.constexpr = tl.constexpr("plain")
DTYPE = tl.float32


@triton.jit
def leaf(value, part: tl.constexpr = PAIR[0]):
    return value * SIZE + part


@triton.jit
def helper(value, scale=2):
    # a comment
    return leaf(value) + scale


@triton.jit
def chosen(value):
    return value + 1


def made(factor):
    inside = tl.constexpr(factor)

    @triton.jit
    def kernel(x, F: tl.constexpr, extra: tl.constexpr = OWN):
        """Text over

        several lines."""
        value = helper(tl.load(x).to(DTYPE)) * inside

        if KIND == "plain":
            value = F(value) + helpers_here.reached(value) + imported(value)
        tl.store(x, value)

    return kernel


KERNELS = (
    Kernel(made(3), Space(("gfx942",), {"x": Pointer("fp32"), "F": Constexpr(chosen)}), name="rich"),
)
'''
)

HELPERS = """\
import triton
import triton.language as tl

SIZE: tl.constexpr = tl.constexpr(100)


@triton.jit
def reached(value):
    return value - SIZE


@triton.jit
def imported(value):
    return value / 3
"""


@pytest.fixture(autouse=True)
def import_path(monkeypatch):
    """Loading a file puts its folder on the import path, which is the worker's own affair and not this process's."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """The digests of the one kernel of an edited `RICH` and of its constants, beside an edited `HELPERS`."""
    count = iter(range(100))

    def of(*changes, helpers=(), folder=None, name="rich_here.py"):
        place = tmp_path / (folder or f"place{next(count)}")
        source = written(place, edited(RICH, *changes), name)
        written(place, edited(HELPERS, *helpers), "helpers_here.py")
        monkeypatch.setattr(sys, "path", [str(place), *sys.path])
        sys.modules.pop("helpers_here", None)
        (kernel,) = load([source])
        return kernel.source, tuple(name.partition("#")[2] for name in kernel.named)

    return of


@pytest.mark.parametrize(
    "changes",
    [
        [("    # a comment\n", "")],
        [("    # a comment\n", "    # another\n    # and one more\n")],
        [("return leaf(value) + scale", "return leaf(value) + scale  # said here")],
        [("value = helper(", "\n\n        value = helper(")],
        [("* inside\n", "* inside   \n")],
        [("def chosen", "def chosen"), ("SIZE: tl", "\n\n# moved down\n\nSIZE: tl")],
        [("KERNELS = (", "UNUSED = 5\n\n\nKERNELS = (")],
        [("OWN = 3", "OWN = 4")],
    ],
    ids=[
        "comment removed",
        "comment changed",
        "comment at the end",
        "blank lines",
        "spaces at the end",
        "moved",
        "unused",
        "default of the kernel itself, which is in its key",
    ],
)
def test_what_changes_no_code_changes_no_digest(digest, changes):
    assert digest(*changes) == digest()


def test_moving_a_function_within_its_file_changes_no_digest(digest):
    start, end = RICH.index("@triton.jit\ndef leaf"), RICH.index("@triton.jit\ndef helper")
    leaf = RICH[start:end]
    assert digest((leaf, ""), ("@triton.jit\ndef chosen", leaf + "@triton.jit\ndef chosen")) == digest()


def test_neither_folder_nor_file_nor_module_name_is_in_the_digest(digest):
    assert digest(folder="elsewhere and far", name="another_name.py") == digest()


def test_inside_a_package_the_digest_is_the_same(tmp_path, digest):
    for package in ("one", "two"):
        relative = ("import helpers_here\nfrom helpers_here", "from . import helpers_here\nfrom .helpers_here")
        written(tmp_path / package, edited(RICH, relative), "kern.py")
        written(tmp_path / package, HELPERS, "helpers_here.py")
        written(tmp_path / package, "", "__init__.py")
    found = [load([Source.parse(str(tmp_path / package / "kern.py"))])[0].source for package in ("one", "two")]
    assert found == [digest()[0]] * 2


@pytest.mark.parametrize(
    "changes",
    [
        [("return value * SIZE", "return value - SIZE")],
        [("tl.constexpr(4)", "tl.constexpr(8)")],
        [("tl.constexpr(4)", "tl.constexpr(4.0)")],
        [("made(3)", "made(5)")],
        [("made(3)", "made(3.0)")],
        [("return value + 1", "return value + 2")],
        [("DTYPE = tl.float32", "DTYPE = tl.float16")],
        [("PAIR = (1, 2.0)", "PAIR = (7, 2.0)")],
        [('"plain")', '"other")')],
        [("scale=2", "scale=3")],
        [("@triton.jit\ndef leaf", "@triton.jit(noinline=True)\ndef leaf")],
        [
            ("SIZE: tl", "@triton.jit\ndef max(a, b):\n    return a\n\n\nSIZE: tl"),
            ("return value + 1", "return max(value, 1)"),
        ],
        [("Constexpr(chosen)", "Constexpr(leaf)")],
    ],
    ids=[
        "callee of a callee",
        "global",
        "type of a global",
        "closure value",
        "type of a closure value",
        "function chosen by a constexpr",
        "dtype",
        "tuple",
        "string",
        "default argument",
        "noinline",
        "shadowed name",
        "another function",
    ],
)
def test_what_changes_code_changes_the_digest(digest, changes):
    assert digest(*changes) != digest()


@pytest.mark.parametrize(
    "changes",
    [
        [("return value - SIZE", "return value + SIZE")],
        [("tl.constexpr(100)", "tl.constexpr(7)")],
        [("value / 3", "value / 4")],
    ],
    ids=["through a module", "its global", "imported by name"],
)
def test_helpers_of_other_modules_are_part_of_the_digest(digest, changes):
    assert digest(helpers=changes) != digest()


def test_two_globals_of_one_name_in_two_modules_are_both_part_of_the_digest(digest):
    # `SIZE` is 4 here and 100 in the helpers; neither may stand for the other.
    plain = digest()
    here, there = (
        digest(("tl.constexpr(4)", "tl.constexpr(5)")),
        digest(helpers=[("tl.constexpr(100)", "tl.constexpr(5)")]),
    )
    assert len({plain, here, there}) == 3


def single(body, head=""):
    return (
        f"{HEAD}{head}\n\n@triton.jit\ndef kernel(x):\n    tl.store(x, {body})\n\n\n"
        'KERNELS = (Kernel(kernel, Space(("gfx942",), {"x": Pointer("fp32")})),)\n'
    )


def differs(tmp_path, text, *changes):
    """Whether an edit changes the digest of the one kernel of a text."""
    digests = set()
    for place, part in (("before", text), ("after", edited(text, *changes))):
        (kernel,) = load([written(tmp_path / place, part, "one.py")])
        digests.add(kernel.source)
    return len(digests) == 2


CLASSED = """
@triton.constexpr_function
def counted(n):
    return _plain(n)


def _plain(n):
    return n + WEIGHT


WEIGHT = 4


class Held(tuple):
    LIMIT = 5

    @triton.jit
    def total(self):
        return 7
"""


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (single("V", "import enum\nclass E(enum.IntEnum):\n    A = 1\nV = tl.constexpr(E.A)\n"), ("A = 1", "A = 2")),
        (single("V", "class F(float):\n    pass\nV = tl.constexpr(F(1.5))\n"), ("1.5", "2.5")),
        (single("counted(2)", CLASSED), ("n + WEIGHT", "n * WEIGHT")),
        (single("counted(2)", CLASSED), ("WEIGHT = 4", "WEIGHT = 5")),
        (single("Held.LIMIT", CLASSED), ("LIMIT = 5", "LIMIT = 6")),
        (single("Held.total(x)", CLASSED), ("return 7", "return 8")),
        (
            single("V.a", "from typing import NamedTuple\nclass P(NamedTuple):\n    a: int = 0\nV = P(3)\n"),
            ("P(3)", "P(4)"),
        ),
    ],
    ids=[
        "an enum in a constexpr",
        "a float of another class",
        "a plain function behind a constexpr function",
        "what that function reads",
        "a class attribute",
        "a method",
        "a named tuple",
    ],
)
def test_what_a_kernel_reaches_in_roundabout_ways_is_part_of_the_digest(tmp_path, text, change):
    assert differs(tmp_path, text, change)


def test_a_function_that_names_the_symbol_is_part_of_the_digest(tmp_path):
    text = edited(single("1.0"), ("@triton.jit\ndef kernel", '@triton.jit(repr=lambda _: "symbol")\ndef kernel'))
    assert differs(tmp_path, text, ('"symbol"', '"other"'))


def test_a_class_is_the_same_in_another_module(tmp_path):
    text = single("Held.LIMIT", CLASSED)
    first = load([written(tmp_path / "a", text, "one.py")])
    second = load([written(tmp_path / "b", text, "two.py")])
    assert first[0].source == second[0].source


def test_equal_names_in_two_modules_are_told_apart(tmp_path):
    body = single("1.0")
    for name, text in (("mod_a", body), ("mod_b", body), ("mod_c", edited(body, ("1.0", "2.0")))):
        written(tmp_path, text, f"{name}.py")
    kernels = load([Source.parse(str(tmp_path))])
    assert [kernel.declaration.name for kernel in kernels] == ["mod_a.kernel", "mod_b.kernel", "mod_c.kernel"]
    assert kernels[0].source == kernels[1].source != kernels[2].source


def test_a_name_declared_twice_in_one_module_is_refused(tmp_path):
    text = single("1.0").rstrip() + " * 2\n"
    with pytest.raises(InputError, match="one declaration of each name, found several; give one a name="):
        load([written(tmp_path, text)])


def test_two_functions_of_one_name_are_two_constants(tmp_path):
    text = (
        HEAD
        + """
def made(n):
    N = tl.constexpr(n)

    @triton.jit
    def act(v):
        return v * N

    act.__qualname__ = "act"
    return act


@triton.jit
def kernel(x, F: tl.constexpr):
    tl.store(x, F(1.0))


KERNELS = (Kernel(kernel, Space(("gfx942",), {"x": Pointer("fp32"), "F": Constexpr(made(1), made(2))})),)
"""
    )
    (kernel,) = load([written(tmp_path, text)])
    assert len(kernel.named) == 2
    assert {name.partition("#")[0] for name in kernel.named} == {"kernels_here:act"}
    assert len(expand(kernel.declaration, kernel.parameters, GFX942)) == 4


FUNCTIONS = (
    HEAD
    + """
@triton.jit
def first(v):
    return v


@triton.jit
def second(v):
    return v * 2


@triton.jit
def kernel(x, pair, F: tl.constexpr = first):
    tl.store(x, F(1.0))


KERNELS = (
    Kernel(kernel, Space(("gfx942",), {"x": Pointer("fp32"), "pair": Tuple(Constexpr(second), Int(classes=("any",)))})),
)
"""
)


def test_functions_are_found_in_tuples_and_in_defaults(tmp_path):
    (kernel,) = load([written(tmp_path, FUNCTIONS)])
    assert [name.partition("#")[0] for name in kernel.named] == ["kernels_here:first", "kernels_here:second"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X = 1\n", "a tuple KERNELS of aotkern.spec.Kernel, found no declaration"),
        ("KERNELS = ()\n", "a tuple KERNELS of aotkern.spec.Kernel, found no declaration"),
        ("KERNELS = [1]\n", "a tuple of aotkern.spec.Kernel, found list"),
        ("KERNELS = (1,)\n", "a tuple of aotkern.spec.Kernel, found int"),
        ("def f(:\n", "a kernel source that can be imported, found SyntaxError"),
        ("\n\n1 / 0\n", "a kernel source that can be imported, found ZeroDivisionError: division by zero at line 3"),
        ("import no_such_module\n", "found ModuleNotFoundError: No module named 'no_such_module' at line 1"),
        (
            "from aotkern.spec import Kernel\ndef f(): pass\nKERNELS = (Kernel(f),)\n",
            "kernel f: expected a @triton.jit function, found function (decorate it with @triton.jit)",
        ),
        ("raise SystemExit(3)\n", "found SystemExit: 3 at line 1"),
    ],
    ids=range(9),
)
def test_a_source_that_is_wrong_is_refused_by_name(tmp_path, text, expected):
    with pytest.raises(InputError) as refused:
        load([written(tmp_path, text, "wrong.py")])
    assert expected in str(refused.value)
    assert "wrong.py" in str(refused.value) or "kernel f" in str(refused.value)


def test_what_is_given_as_a_source(tmp_path):
    assert Source.parse("some.module") == Source("some.module")
    source = written(tmp_path, "")
    assert source == Source("kernels_here", tmp_path / "kernels_here.py")
    with pytest.raises(InputError, match=r"gone\.py: expected a kernel file or folder, found nothing there"):
        Source.parse(str(tmp_path / "gone.py"))
    with pytest.raises(InputError, match=r"no_such_module_here: expected a module no_such_module_here that can be"):
        load([Source.parse("no_such_module_here")])


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# no kernels")
    with pytest.raises(InputError, match=r"a Python file, whose name ends in \.py, found README\.md"):
        load([Source.parse(str(path))])


def test_a_module_on_the_import_path_is_a_source(tmp_path, monkeypatch, digest):
    written(tmp_path, single("1.0"), "kernels_on_the_path.py")
    monkeypatch.syspath_prepend(tmp_path)
    (kernel,) = load([Source.parse("kernels_on_the_path")])
    (same,) = load([written(tmp_path / "file", single("1.0"), "other.py")])
    assert kernel.source == same.source


def test_a_loose_file_hides_no_module_of_the_same_name(tmp_path):
    before = json.dumps
    load([written(tmp_path, single("1.0"), "json.py")])
    assert sys.modules["json"].dumps is before


def test_parameters_are_read_from_the_signature(tmp_path):
    text = (
        HEAD
        + """
@triton.jit(do_not_specialize=["n"])
def kernel(x, n: tl.int64, f, B: tl.constexpr = 16, C: tl.constexpr = None):
    tl.store(x, n + f + B)


KERNELS = (
    Kernel(kernel, Space(("gfx942",), {"x": Pointer("fp32"), "n": Int("i64", ("any",)), "f": Float()})),
)
"""
    )
    (kernel,) = load([written(tmp_path, text)])
    assert kernel.parameters == (
        Parameter("x"),
        Parameter("n", specialised=False, type="i64"),
        Parameter("f"),
        Parameter("B", constexpr=True, default="16"),
        Parameter("C", constexpr=True, default="None"),
    )


_PRINT = """
import sys
sys.path[:] = sys.argv[1].split("\\n")
{first}
from aotkern.build.registry import Source, load
(kernel,) = load([Source.parse(sys.argv[2])])
print(kernel.source)
"""


def test_neither_hash_seed_nor_import_order_is_in_the_digest(tmp_path, digest):
    expected = str(digest(folder="processes")[0])
    for seed, first in (("0", ""), ("1", "import helpers_here, json, triton.language")):
        path = "\n".join([str(tmp_path / "processes"), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", _PRINT.format(first=first), path, str(tmp_path / "processes" / "rich_here.py")],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == expected


def test_the_shipped_kernels_can_be_loaded():
    from pathlib import Path

    kernels = load([Source.parse(str(Path(registry.__file__).parents[2] / "kernels"))])
    assert len({kernel.declaration.name for kernel in kernels}) == len(kernels) >= 2
    assert all(
        target.startswith(("gfx", "cuda")) for k in kernels for s in k.declaration.spaces for target in s.targets
    )
    assert GFX942


@pytest.mark.parametrize("name", ["policy.toml", "folder"])
def test_what_is_no_python_file_is_refused_by_name(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "policy.toml").write_text("version = 1\n", "utf-8")
    with pytest.raises(InputError, match=r"expected a Python file, whose name ends in \.py"):
        registry.import_file(tmp_path / name)
