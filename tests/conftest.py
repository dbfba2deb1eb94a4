"""What every test may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings

# One profile for every machine: no deadline, because a slow runner is not a wrong program.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@dataclass(frozen=True)
class Compiled:
    """A kernel that Triton compiled: its code object and what Triton says of it."""

    data: bytes
    shared: int
    num_warps: int


@pytest.fixture(scope="session")
def compile_kernel(tmp_path_factory) -> Callable[..., Compiled]:
    """Compile a kernel of `triton_kernels` for a target, once in a session."""
    triton = pytest.importorskip("triton")
    import triton_kernels
    from triton import knobs
    from triton.backends.compiler import GPUTarget

    from aotkern.target import Target

    made: dict[tuple, Compiled] = {}
    folder = str(tmp_path_factory.mktemp("triton"))

    def compile_(name: str, target: str, signature: dict, constants: dict | None = None, attrs: dict | None = None):
        key = (name, target, str(signature), str(constants), str(attrs))
        if key not in made:
            parsed = Target.parse(target)
            backend = parsed.backend.value
            arch = int(parsed.arch) if backend == "cuda" else parsed.arch
            source = triton.compiler.ASTSource(
                getattr(triton_kernels, name),
                {**signature, **dict.fromkeys(constants or {}, "constexpr")},
                {(list({**signature, **(constants or {})}).index(k),): v for k, v in (constants or {}).items()},
                attrs or {},
            )
            with knobs.cache.scope(), knobs.language.scope():
                knobs.cache.dir = folder
                knobs.language.default_fp_fusion = True
                found = triton.compile(source, GPUTarget(backend, arch, parsed.limits.wave), {"enable_fp_fusion": True})
            code = found.asm["hsaco" if backend == "hip" else "cubin"]
            made[key] = Compiled(code, found.metadata.shared, found.metadata.num_warps)
        return made[key]

    return compile_


@pytest.fixture(scope="session")
def compile_mixed(compile_kernel) -> Callable[[str], Compiled]:
    """The kernel with a parameter of every width."""
    signature = {"x": "*fp32", "s": "fp32", "f": "u1", "n": "i64", "m": "i32"}
    return lambda target: compile_kernel("mixed", target, signature)
