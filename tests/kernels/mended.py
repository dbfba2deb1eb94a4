"""Triton's interpreter, with the numbers of its small float types put right.

The interpreter (3.9.0) keeps bf16 and fp8 as integers. It multiplies bf16 matrices as those integers, rounds half up,
and knows no fp8 NaN and not all subnormal numbers. Conversions and dots are replaced by PyTorch's, which are exact or
round to nearest even; a test below the fixture's users holds them against tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


def mend_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the interpreter's conversion of floats and its dot for the duration of a test."""
    import triton.language as tl
    from triton.runtime import interpreter

    dtypes = {
        tl.float32: torch.float32,
        tl.float16: torch.float16,
        tl.bfloat16: torch.bfloat16,
        tl.float8e4nv: torch.float8_e4m3fn,
        tl.float8e4b8: torch.float8_e4m3fnuz,
    }
    patterns = {1: np.uint8, 2: np.uint16, 4: np.uint32}

    def convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        pattern = np.ascontiguousarray(values).view(patterns[source.primitive_bitwidth // 8])
        result = torch.from_numpy(pattern).view(dtypes[source]).to(dtypes[target])
        unsigned = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}[target.primitive_bitwidth]
        return result.view(unsigned).numpy()

    def dot(self: Any, a: Any, b: Any, acc: Any, precision: Any, imprecise: Any) -> Any:
        left, right = (convert(x.data, x.dtype.scalar, tl.float32, None).view(np.float32) for x in (a, b))
        return interpreter.TensorHandle(np.matmul(left, right) + acc.data, acc.dtype.scalar)

    monkeypatch.setattr(interpreter, "_convert_float", convert)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
