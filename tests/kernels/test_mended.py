"""The interpreter's repaired conversions and dot, against tables: attention tests stand on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mended import mend_interpreter


@pytest.mark.parametrize(("name", "dtype"), [("float8e4nv", "float8_e4m3fn"), ("float8e4b8", "float8_e4m3fnuz")])
def test_every_fp8_byte(monkeypatch: pytest.MonkeyPatch, name: str, dtype: str) -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    mend_interpreter(monkeypatch)
    codes = np.arange(256, dtype=np.uint8)
    found = interpreter._convert_float(codes, getattr(tl, name), tl.float32, None).view(np.float32)
    wanted = torch.from_numpy(codes).view(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).sum() == (2 if name == "float8e4nv" else 1)


def test_bf16_rounds_to_even(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    mend_interpreter(monkeypatch)
    numbers = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    found = interpreter._convert_float(numbers, tl.float32, tl.bfloat16, None)
    assert found.tolist() == [0x3F80, 0x3F82, 0x3F81]
