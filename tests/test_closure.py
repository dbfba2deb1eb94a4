import logging
import types
from pathlib import Path

import pytest

from aotkern.build import registry
from aotkern.closure import digest, normalised, readings
from aotkern.reading import names_read


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # one", "x = 1"),
        ("x = 1\n\n\ny = 2", "x = 1\ny = 2"),
        ('x = "# no comment"  # one', 'x = "# no comment"'),
        ("f(1,\n  # inside\n  2)", "f(1,\n  2)"),
        ('x = """a\n\n# text  \nb"""', 'x = """a\n\n# text  \nb"""'),
        ('x = "\x0c"\ny = 1  # one', 'x = "\x0c"\ny = 1'),
        ('x = "\u2028"\ny = 1  # one', 'x = "\u2028"\ny = 1'),
    ],
    ids=range(7),
)
def test_normalised_text(before, after):
    assert normalised(before) == after


@pytest.mark.parametrize(
    ("body", "outside"),
    [
        ("total = load(x)\n    return total", ["load"]),
        ("return total + load(x)", ["load", "total"]),
        ("total = total + 1\n    return total", ["total"]),
        ("if x:\n        total = 1\n    return total", ["total"]),
        ("if x:\n        total = 1\n    else:\n        total = 2\n    return total", []),
        ("for i in span(x):\n        total = i\n    return total", ["span", "total"]),
        ("for i, (j, *k) in x:\n        out[i] = j + k\n    return i", ["i", "out"]),
        ("total: tl.constexpr = 1\n    return total", ["tl", "tl.constexpr"]),
        ("total: tl.constexpr\n    return total", ["tl", "tl.constexpr", "total"]),
        ("total += 1\n    return total", ["total"]),
        ("global total\n    total = 1\n    return total", ["total"]),
        ("with scope(x) as total:\n        return total", ["scope"]),
        ("while total:\n        total = x", ["total"]),
        ("return helpers.inner.total(x)", ["helpers", "helpers.inner", "helpers.inner.total"]),
    ],
    ids=range(14),
)
def test_a_name_that_a_function_has_assigned_before_is_its_own(body, outside):
    assert [".".join(chain) for chain in names_read(f"def kernel(x):\n    {body}\n")] == outside


def test_names_in_defaults_count_where_they_are_asked_for():
    text = "def kernel(x, y: kind = VALUE):\n    return x\n"
    assert names_read(text) == [("VALUE",), ("kind",)]
    assert names_read(text, defaults=False) == [("kind",)]


KERNEL = """
import logging
import types
import triton
import triton.language as tl
from aotkern.spec import Constexpr, Kernel, Pointer, Space

logger = logging.getLogger("a")
FAST: tl.constexpr = tl.constexpr(True)
WORD: tl.constexpr = tl.constexpr("fast")
LEVEL = 3
PLACE = "somewhere/private"
SETTINGS = types.SimpleNamespace(level=1)
LIMIT = 448.0


class Chain:
    pass


LOOP = Chain()
LOOP.next = LOOP


def total(x):
    logger.debug("%s", x)
    return x


@triton.constexpr_function
def level():
    return LEVEL + len(PLACE) + SETTINGS.level + (LOOP is None)


@triton.jit
def clamp(x, limit: tl.constexpr = LIMIT):
    return x * limit


@triton.jit
def scale(x, B: tl.constexpr = LEVEL):
    total = tl.load(x)
    if FAST:
        total = total * 2
    if WORD == "fast":
        total = clamp(total)
    tl.store(x, total * level())


KERNELS = (Kernel(scale, Space(("gfx942",), {"x": Pointer("fp32")})),)
"""


def function(folder: Path, *changes: tuple[str, str]):
    text = KERNEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "logged.py").write_text(text)
    (kernel,) = registry.load([registry.Source.parse(str(folder / "logged.py"))])
    return kernel.declaration.function


def test_a_local_variable_drags_no_function_of_its_name_into_the_digest(tmp_path):
    plain = digest([function(tmp_path / "a")])
    other = ("    return x\n\n\n@triton.constexpr", "    return x + 1\n\n\n@triton.constexpr")
    assert digest([function(tmp_path / "b", other)]) == plain


def test_what_a_helper_reads_may_refer_to_itself_and_machinery_counts_by_its_name(tmp_path):
    logs = ("return LEVEL +", "logger.debug('level')\n    return LEVEL +")
    plain = digest([function(tmp_path / "a", logs)])
    assert digest([function(tmp_path / "b", logs, ('getLogger("a")', 'getLogger("b")'))]) == plain
    assert digest([function(tmp_path / "c", logs, ("level=1", "level=2"))]) != plain
    assert isinstance(logging.getLogger("a"), logging.Logger)
    assert types.SimpleNamespace(level=1).level == 1


def test_the_values_that_a_kernel_reads_from_modules(tmp_path):
    found = readings([function(tmp_path / "a")])
    hidden = {name: found.pop(name) for name in ("logged:PLACE", "logged:SETTINGS", "logged:LOOP")}
    assert found == {
        "logged:FAST": "True",
        "logged:WORD": '"fast"',
        "logged:LEVEL": "3",
        "logged:clamp(limit)": "448.0",
    }
    assert all(value.startswith("#") and "private" not in value for value in hidden.values())


def test_a_computed_default_of_a_callee_counts_by_its_value(tmp_path):
    plain = digest([function(tmp_path / "a")])
    assert digest([function(tmp_path / "b", ("LIMIT = 448.0", "LIMIT = 224.0"))]) != plain
    assert digest([function(tmp_path / "c", ("B: tl.constexpr = LEVEL", "B: tl.constexpr = LEVEL + 0"))]) != plain
