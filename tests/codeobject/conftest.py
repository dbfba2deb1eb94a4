"""Code objects for the tests: compiled on the spot, in a private cache, without line information unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

Build = Callable[..., "Built"]


@dataclass(frozen=True)
class Built:
    """What Triton made: the binary, its own metadata, and the last textual form (assembly or PTX)."""

    binary: bytes
    metadata: Any
    text: str


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A function `(kernel, target, line_info=False, **options) -> Built`; equal calls compile once."""
    triton = pytest.importorskip("triton")
    import sample_kernels
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @cache
    def compiled(kernel: str, target: str, line_info: bool = False, **options: Any) -> Built:
        backend, arch = target.split(":")
        where = GPUTarget("hip", arch, 64) if backend == "hip" else GPUTarget("cuda", int(arch), 32)
        constants = {(place,): value for place, value in _placed(sample_kernels, kernel)}
        source = ASTSource(getattr(sample_kernels, kernel), sample_kernels.SIGNATURES[kernel], constants, {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
            patch.setenv("TRITON_DISABLE_LINE_INFO", "0" if line_info else "1")
            made = triton.compile(source, target=where, options={"enable_fp_fusion": True, **options})
        binary, text = ("hsaco", "amdgcn") if backend == "hip" else ("cubin", "ptx")
        return Built(made.asm[binary], made.metadata, made.asm[text])

    return compiled


def _placed(kernels: Any, kernel: str) -> list[tuple[int, object]]:
    names = list(kernels.SIGNATURES[kernel])
    return [(names.index(name), value) for name, value in kernels.CONSTANTS[kernel].items()]
