"""Running kernels in Triton's interpreter, beside tests that compile them in the same process."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class InterpreterLauncher:
    """A launcher over Triton's interpreter: `launcher[kernel][grid](*args, **constants)` on CPU tensors."""

    def __init__(self, *modules: ModuleType) -> None:
        self._modules = modules

    def __getitem__(self, kernel: str) -> Any:
        return next(vars(module)[kernel] for module in self._modules if kernel in vars(module))


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., InterpreterLauncher]:
    """A function from kernel modules to a launcher that interprets their kernels.

    `@triton.jit` decides at decoration time whether a function is interpreted, and Triton's own library is decorated
    when Triton is imported. So every compiled function that the modules and the library refer to is replaced by its
    interpreted twin for the duration of a test.

    Triton's interpreter redirects the language for each call of a device function, on top of what it redirected before,
    and never takes that back: compiling is broken in the process from then on, and interpreting slows down. Redirecting
    everything once for each launch avoids both, and the launch does take that back.
    """
    import triton.experimental.gluon  # noqa: F401 - imported by the first launch, and refuses interpreted twins
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    twins: dict[int, Any] = {}
    language = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    redirect = interpreter._patch_lang
    monkeypatch.setattr(interpreter, "_patch_lang", lambda _function: redirect(language))
    monkeypatch.setattr(
        interpreter.InterpretedFunction, "__call__", lambda self, *args, **kwargs: self.rewrite()(*args, **kwargs)
    )

    def interpret(*modules: ModuleType) -> InterpreterLauncher:
        for module in (tl, tl.standard, *modules):
            for name, value in list(vars(module).items()):
                if isinstance(value, JITFunction):
                    twin = twins.setdefault(id(value), interpreter.InterpretedFunction(value.fn))
                    monkeypatch.setattr(module, name, twin)
        return InterpreterLauncher(*modules)

    return interpret
