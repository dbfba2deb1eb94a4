import pickle

import pytest

from aotkern.errors import AotkernError, BuildError, InputError, IntegrityError, MissingToolError, Problem

EVERY = [
    InputError.one("file: field", "a number", "'x'"),
    IntegrityError((Problem("a", "1", "2"), Problem("b", "3", "4"))),
    BuildError("add[hip:gfx942](n:i32)", "it does not compile"),
    MissingToolError("triton", "to compile", "install it"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_error_is_of_the_family(error):
    assert isinstance(error, AotkernError)


def test_an_error_of_problems_tells_all_of_them():
    error = IntegrityError((Problem("f: x", "1", "2"), Problem("f: y", "3", "4")))
    assert str(error) == "f: x: expected 1, found 2\nf: y: expected 3, found 4"
    assert error.problems == (Problem("f: x", "1", "2"), Problem("f: y", "3", "4"))


def test_a_build_error_names_the_variant_and_the_reason():
    assert str(BuildError("key", "reason")) == "key: reason"


def test_a_missing_tool_says_how_to_get_it():
    error = MissingToolError("git", "for a baseline revision", "install git")
    assert str(error) == "git is needed for a baseline revision: install git"
