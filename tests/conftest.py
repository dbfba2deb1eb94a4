"""What every test may use."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One profile for every machine: no deadline, because a slow runner is not a wrong program.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

pytest_plugins = ("making",)


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

    def compile_(kernel, target: str, signature: dict, constants=None, attrs=None, options=None):
        memo = (str(kernel), target, str(signature), str(constants), str(attrs), str(options))
        if memo not in made:
            parsed = Target.parse(target)
            backend = parsed.backend.value
            arch = int(parsed.arch) if backend == "cuda" else parsed.arch
            function = getattr(triton_kernels, kernel) if isinstance(kernel, str) else kernel
            kinds = {**signature, **dict.fromkeys(constants or {}, "constexpr")}
            source = triton.compiler.ASTSource(
                function,
                {parameter: kinds[parameter] for parameter in function.arg_names},
                {(function.arg_names.index(key),): value for key, value in (constants or {}).items()},
                attrs or {},
            )
            with knobs.cache.scope(), knobs.language.scope():
                knobs.cache.dir = folder
                knobs.language.default_fp_fusion = True
                device = GPUTarget(backend, arch, parsed.limits.wave)
                found = triton.compile(source, device, {"enable_fp_fusion": True, **(options or {})})
            code = found.asm["hsaco" if backend == "hip" else "cubin"]
            made[memo] = Compiled(code, found.metadata.shared, found.metadata.num_warps)
        return made[memo]

    return compile_


@pytest.fixture(scope="session")
def compile_mixed(compile_kernel) -> Callable[[str], Compiled]:
    """The kernel with a parameter of every width."""
    signature = {"x": "*fp32", "s": "fp32", "f": "u1", "n": "i64", "m": "i32"}
    return lambda target: compile_kernel("mixed", target, signature)


MACH = {"gfx942": 0x4C, "gfx950": 0x4F}


class FakeHip:
    """The test's own controls over the fake library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_capture.argtypes = (ctypes.c_size_t, ctypes.c_int)

    def reset(self, *archs: str) -> None:
        """Forget everything; then one device for each of `archs`."""
        self.library.fake_reset()
        for arch in archs:
            name = arch.partition(":")[0]
            shared = 163_840 if name == "gfx950" else 65_536
            self.library.fake_device(arch.encode(), MACH.get(name, 0), 304 if name == "gfx942" else 256, shared)

    def fail(self, operation: str, code: int, after: int = 0) -> None:
        """Let the call of `operation` fail, `after` calls from now."""
        self.library.fake_fail(operation.encode(), code, after)

    def capture(self, stream: int, on: bool = True) -> None:
        """Begin or end the capture of a stream."""
        self.library.fake_capture(stream, int(on))

    def resident(self, blocks: int) -> None:
        """How many workgroups fit on a compute unit."""
        self.library.fake_resident(blocks)

    @property
    def log(self) -> list[str]:
        """What happened, one line an event."""
        return self.library.fake_log().decode().splitlines()


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory) -> FakeHip:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake libamdhip64 with")
    out = tmp_path_factory.mktemp("hip") / "libamdhip64.so"
    source = Path(__file__).with_name("drivers") / "fake_amdhip64.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, source], check=True)
    return FakeHip(out)


@pytest.fixture
def hip(fake_library) -> FakeHip:
    fake_library.reset("gfx942:sramecc+:xnack-")
    return fake_library


@pytest.fixture(scope="session")
def extension(tmp_path_factory):
    """The C extension, built for this session as the package builds it."""
    compiler = shutil.which("cc")
    include = Path(sysconfig.get_paths()["include"])
    if compiler is None or not (include / "Python.h").is_file():
        pytest.skip("no C compiler, or no Python.h, to build the extension with")
    out = tmp_path_factory.mktemp("extension") / "_fastpath.abi3.so"
    source = Path(__file__).parents[1] / "aotkern" / "_fastpath.c"
    flags = ["-shared", "-fPIC", "-O3", "-fno-plt", "-Wall", "-Wextra", "-Wno-cast-function-type", "-Werror"]
    flags += os.environ.get("AOTKERN_TEST_CFLAGS", "").split()  # `make asan`
    subprocess.run([compiler, *flags, f"-I{include}", source, "-o", out, "-lm"], check=True)
    spec = importlib.util.spec_from_file_location("aotkern._fastpath", out)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["python", "native"])
def engine(request, monkeypatch) -> str:
    """Both ways of launching: all in Python, and with the C extension."""
    from aotkern.loader import native

    module = request.getfixturevalue("extension") if request.param == "native" else None
    monkeypatch.setattr(native, "_extension", lambda: module)
    return request.param
