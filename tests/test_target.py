import itertools

import pytest

from aotkern.errors import InputError
from aotkern.target import Feature, Target

FULL = ["hip:gfx942", "hip:gfx950", "hip:gfx942:sramecc+:xnack-", "hip:gfx950:xnack+", "cuda:80", "cuda:90", "cuda:120"]


@pytest.mark.parametrize("text", FULL)
def test_parse_and_str_are_inverses(text):
    assert str(Target.parse(text)) == text


def test_short_spellings_and_feature_order():
    assert str(Target.parse("gfx950")) == "hip:gfx950"
    assert str(Target.parse("90")) == "cuda:90"
    assert Target.parse("gfx942:xnack-:sramecc+") == Target.parse("hip:gfx942:sramecc+:xnack-")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gfx",
        "gfx9999",
        "gfx900",
        "hip:90",
        "cuda:gfx942",
        "sm_90",
        "cuda:90a",
        "gfx942:xnack",
        "gfx942:xnack+:xnack-",
        "cuda:90:xnack+",
        "gfx942 ",
        "rocm:gfx942",
    ],
)
def test_anything_else_is_refused_and_the_known_targets_listed(text):
    with pytest.raises(InputError, match="target"):
        Target.parse(text)


def test_features_fit_when_open_and_must_be_equal_when_fixed():
    for built, has in itertools.product(Feature, [Feature.ON, Feature.OFF]):
        code = Target(Target.parse("gfx942").backend, "gfx942", xnack=built)
        device = Target(code.backend, "gfx942", sramecc=Feature.ON, xnack=has)
        assert (code.refusal(device) is None) == (built in (Feature.ANY, has))


@pytest.mark.parametrize(
    ("code", "device"), [("gfx942", "gfx950"), ("gfx950", "gfx942"), ("cuda:90", "cuda:100"), ("gfx942", "cuda:90")]
)
def test_nothing_stands_in_for_another_architecture(code, device):
    refusal = Target.parse(code).refusal(Target.parse(device))
    assert refusal is not None
    assert Target.parse(device).arch in refusal or "cuda" in refusal
