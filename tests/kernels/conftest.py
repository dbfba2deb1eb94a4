"""Running kernels in Triton's interpreter, beside tests that compile them in the same process."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest


class InterpreterLauncher:
    """A launcher over Triton's interpreter: `launcher[kernel][grid](*args, **constants)` on CPU tensors."""

    def __init__(self, *modules: ModuleType) -> None:
        self._modules = modules

    def __getitem__(self, kernel: str) -> Any:
        return next(vars(module)[kernel] for module in self._modules if kernel in vars(module))


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function from kernel modules to a launcher that interprets their kernels.

    `@triton.jit` decides at decoration time whether a function is interpreted, and Triton's own library is decorated
    when Triton is imported. So every compiled function that the modules and the library refer to is replaced by its
    interpreted twin for the duration of a test.
    """
    import triton.experimental.gluon  # noqa: F401 - imported by the first launch, and refuses interpreted twins
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    twins: dict[int, Any] = {}

    def interpret(*modules: ModuleType) -> InterpreterLauncher:
        for module in (tl, tl.standard, *modules):
            for name, value in list(vars(module).items()):
                if isinstance(value, JITFunction):
                    twin = twins.setdefault(id(value), InterpretedFunction(value.fn))
                    monkeypatch.setattr(module, name, twin)
        return InterpreterLauncher(*modules)

    return interpret
