"""The fake libamdhip64, built once, and code objects to load into it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

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
    source = Path(__file__).with_name("fake_amdhip64.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, source], check=True)
    return FakeHip(out)


@pytest.fixture
def hip(fake_library) -> FakeHip:
    fake_library.reset("gfx942:sramecc+:xnack-")
    return fake_library
