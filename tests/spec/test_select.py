import pytest

from aotkern.spec.select import selected

KEY = "decode_reduce[hip:gfx942](x:*fp32:DS,NUM_SPLITS=8){num_warps=4}"


@pytest.mark.parametrize(
    "only",
    [(), ("decode_reduce",), ("decode_*",), ("*NUM_SPLITS=8)*",), ("x", "*[hip:gfx942]*"), (KEY,), ("decode_r?duce",)],
)
def test_a_pattern_fits_the_name_or_the_whole_key(only):
    assert selected(KEY, only)


@pytest.mark.parametrize("only", [("decode",), ("NUM_SPLITS=8",), ("*NUM_SPLITS=80*",), ("*[hip:gfx950]*",), ("",)])
def test_part_of_a_name_or_key_is_not_enough(only):
    assert not selected(KEY, only)
