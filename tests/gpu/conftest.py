"""The bundle that the GPU tests launch from; without a GPU, or without that bundle, they are skipped.

`python benchmarks/prepare.py FOLDER` makes the bundle on any machine; `AOTKERN_GPU_BUNDLES=FOLDER` names it here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = os.environ.get("AOTKERN_GPU_BUNDLES")


def pytest_collection_modifyitems(items):
    """Every test in this folder needs a GPU."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available() or module.version.hip:
        pytest.skip("no NVIDIA GPU")
    if FOLDER is None:
        pytest.skip("AOTKERN_GPU_BUNDLES names no folder")
    return module


@pytest.fixture(scope="session")
def path(torch) -> Path:
    capability = "".join(map(str, torch.cuda.get_device_capability(0)))
    return Path(FOLDER) / f"gpu.sm{capability}.aotk"


@pytest.fixture(params=["python", "native"])
def bundle(request, path, monkeypatch):
    """The bundle, launched from all in Python and by the C extension."""
    import aotkern
    from aotkern.loader import native

    if request.param == "python":
        monkeypatch.setattr(native, "_extension", lambda: None)
    elif native._extension() is None:
        pytest.skip("the C extension is not built")
    return aotkern.load(path)


@pytest.fixture(scope="session")
def jit(torch):
    """The same kernels through Triton's own JIT."""
    pytest.importorskip("triton")
    import gpu_kernels

    return gpu_kernels
