import pytest

from aotkern.digest import Digest
from aotkern.errors import InputError
from aotkern.fields import Fields


def form(value, *names):
    return Fields(value, "file", names)


def noted(form):
    return [str(problem) for problem in form.problems]


def test_right_values_leave_no_problem():
    read = form({"n": 3, "t": "x", "e": "", "f": True, "m": {"a": "b"}, "r": [1, "y"]}, "n", "t", "e", "f", "m", "r")
    assert (read.count("n"), read.text("t"), read.label("e"), read.flag("f")) == (3, "x", "", True)
    assert read.texts("m") == {"a": "b"}
    row = read.row("r", 2)
    assert (row.count("0"), row.text("1")) == (1, "y")
    assert not read.problems


@pytest.mark.parametrize("value", [{}, {"a": 1, "b": 2, "c": 3}, {"a": 1}, [1, 2], None, "x", 3])
def test_other_fields_than_named_are_noted(value):
    assert noted(form(value, "a", "b"))[0].startswith("file: expected exactly the fields a, b, found ")


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (lambda f: f.count("x"), -1, "an integer from 0 to 2^48-1"),
        (lambda f: f.count("x"), True, "an integer from 0 to 2^48-1"),
        (lambda f: f.count("x"), "1", "an integer from 0 to 2^48-1"),
        (lambda f: f.count("x", 8), 256, "an integer from 0 to 2^8-1"),
        (lambda f: f.flag("x"), 1, "true or false"),
        (lambda f: f.text("x"), "", "a text that is not empty"),
        (lambda f: f.text("x"), 5, "a text that is not empty"),
        (lambda f: f.label("x"), None, "a text"),
        (lambda f: f.texts("x"), {"a": 1}, "an object of texts"),
        (lambda f: f.texts("x"), ["a"], "an object of texts"),
        (lambda f: f.objects("x"), {"a": 1}, "an object of objects"),
        (lambda f: f.items("x", ("a",)), {}, "a list of objects"),
        (lambda f: f.rows("x", 2), {}, "a list of lists of 2"),
        (lambda f: f.table("x", 2), [], "an object of lists of 2"),
        (lambda f: f.parsed("x", Digest.parse), "nonsense", "'sha256:' and 64 lower-case hex digits"),
    ],
    ids=range(15),
)
def test_a_wrong_value_is_noted_with_its_place(read, value, expected):
    wrong = form({"x": value}, "x")
    read(wrong)
    (problem,) = wrong.problems
    assert (problem.where, problem.expected) == ("file.x", expected)


def test_every_problem_is_gathered_with_the_place_inside():
    outer = form({"list": [{"a": 1}, {"a": "x"}, {"b": 2}], "rows": [[1], [1, 2]]}, "list", "rows")
    for item in outer.items("list", ("a",)):
        item.count("a")
    outer.rows("rows", 2)
    assert [problem.where for problem in outer.problems] == ["file.list[2]", "file.list[1].a", "file.rows[0]"]


def test_a_row_is_a_list_and_not_an_object_with_numbers_for_names():
    wrong = form({"r": {"0": 1, "1": 2}}, "r")
    wrong.row("r", 2)
    assert noted(wrong) == ["file.r: expected exactly the fields 0, 1, found NoneType"]


def test_an_optional_field_is_read_only_when_it_is_there():
    given = form({"x": {"a": 1}}, "x").subset("x", ("a", "b"))
    assert (given.has("a"), given.has("b")) == (True, False)
    assert noted(form({"x": {"c": 1}}, "x").subset("x", ("a",))) != []


def test_the_errors_of_a_parser_are_taken_over():
    def parse(text, where):
        raise InputError.one(where, "one thing", text)

    wrong = form({"x": "other"}, "x")
    assert wrong.parsed("x", parse) is None
    assert noted(wrong) == ["file.x: expected one thing, found other"]
