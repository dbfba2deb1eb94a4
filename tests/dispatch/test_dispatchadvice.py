"""What advice tells to write can be written: a constant as Python, with what it names by module and name."""

from __future__ import annotations

import pytest

from aotkern.dispatchadvice import python
from aotkern.spec import Constant

DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("16", "16"),
        ("-0.0", "-0.0"),
        ("nan", 'float("nan")'),
        ('"text"', '"text"'),
        ("@fp16", "tl.fp16"),
        ("(1,)", "(1,)"),
        ("(1,@fp16,$2)", "(1, tl.fp16, tl.constexpr(2))"),
        (f"&pkg.mod:act#{DIGEST}", "pkg.mod.act"),
        (f"!pkg.mod:Mode#{DIGEST}.FAST=1", "pkg.mod.Mode.FAST"),
        (f"%pkg.mod:Pair#{DIGEST}(a=1,b=&m:f#{DIGEST})", "pkg.mod.Pair(a=1, b=m.f)"),
    ],
)
def test_a_constant_is_written_as_one_can_type_it(text: str, written: str) -> None:
    assert python(Constant.parse(text, "constant")) == written
    assert DIGEST not in written
