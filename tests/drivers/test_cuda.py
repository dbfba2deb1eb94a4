"""The CUDA driver against NVIDIA's header; what it does with a GPU is tested in tests/gpu."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aotkern.drivers import Function, Launch
from aotkern.drivers import cuda as cuda_module
from aotkern.drivers.cuda import SIGNATURES, open_driver
from aotkern.errors import MissingToolError
from aotkern.settings import Settings

KINDS = {"c_void_p": "8", "c_char_p": "8", "c_int": "4", "c_uint": "4", "c_ulong": "8"}
WIDE = ("size_t", "CUcontext", "CUmodule", "CUfunction", "CUstream", "CUdeviceptr")


def header() -> Path:
    backend = pytest.importorskip("triton.backends.nvidia")
    return Path(backend.__path__[0], "include", "cuda.h")


def kind_of(ctype) -> str:
    return KINDS.get(ctype.__name__, "8" if ctype.__name__.startswith("LP_") else ctype.__name__)


def kind_in_header(text: str) -> str:
    return "8" if "*" in text or text.removeprefix("const ").split()[0] in WIDE else "4"


def test_signatures_are_those_of_nvidias_header():
    text = header().read_text()
    for name, types in SIGNATURES.items():
        declared = name.removesuffix("_v2")  # a macro of the header maps the one to the other
        match = re.search(rf"^CUresult CUDAAPI {declared}\((.*?)\);", text, re.MULTILINE | re.DOTALL)
        assert match, name
        parameters = [" ".join(part.split()) for part in match[1].split(",")]
        assert [kind_in_header(part) for part in parameters] == [kind_of(item) for item in types], name
        if name.endswith("_v2"):
            assert re.search(rf"#define {declared}\s+{name}\b", text)


def test_numbers_and_structures_are_those_of_nvidias_header(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    config, attribute = cuda_module._Config, cuda_module._Attribute
    names = {
        "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X": cuda_module._MAX_GRID[0],
        "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z": cuda_module._MAX_GRID[2],
        "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": cuda_module._MULTIPROCESSORS,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": cuda_module._CAPABILITY[0],
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": cuda_module._CAPABILITY[1],
        "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": cuda_module._SHARED_OPTIN,
        "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": cuda_module._STATIC_SHARED,
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": cuda_module._DYNAMIC_SHARED,
        "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED": cuda_module._WIDE_CLUSTERS,
        "CU_LAUNCH_ATTRIBUTE_COOPERATIVE": cuda_module._COOPERATIVE,
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION": cuda_module._CLUSTER,
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE": cuda_module._POLICY,
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": cuda_module._OVERLAP,
        "CU_CLUSTER_SCHEDULING_POLICY_SPREAD": cuda_module._POLICY_SPREAD,
        "(long)CU_LAUNCH_PARAM_BUFFER_POINTER": cuda_module._BUFFER_POINTER,
        "(long)CU_LAUNCH_PARAM_BUFFER_SIZE": cuda_module._BUFFER_SIZE,
        "(long)CU_LAUNCH_PARAM_END": cuda_module._END,
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": cuda_module._CAPTURE_IMPLICIT,
        "CU_STREAM_CAPTURE_MODE_RELAXED": cuda_module._MODE_RELAXED,
        "sizeof(CUlaunchAttribute)": ctypes.sizeof(attribute),
        "offsetof(CUlaunchAttribute, value)": attribute.value.offset,
        "sizeof(CUlaunchConfig)": ctypes.sizeof(config),
        "offsetof(CUlaunchConfig, blockDimX)": config.block.offset,
        "offsetof(CUlaunchConfig, sharedMemBytes)": config.shared.offset,
        "offsetof(CUlaunchConfig, hStream)": config.stream.offset,
        "offsetof(CUlaunchConfig, attrs)": config.attributes.offset,
        "offsetof(CUlaunchConfig, numAttrs)": config.count.offset,
    }
    source = tmp_path / "numbers.c"
    checks = "\n".join(f'_Static_assert({name} == {value}, "{name}");' for name, value in names.items())
    source.write_text(f"#include <stddef.h>\n#include <cuda.h>\n{checks}\n")
    command = [compiler, f"-I{header().parent}", "-fsyntax-only", str(source)]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


def request(**changes) -> Launch:
    values = {
        "function": Function(0, "k", 1, 2),
        "grid": (6, 5, 4),
        "threads": 128,
        "shared": 49_152,
        "stream": 0x70,
        "arguments": bytearray(8),
        "offsets": (0,),
    }
    return Launch(**{**values, **changes})


def test_launch_attributes_follow_the_manifest():
    config = cuda_module._config(request(cluster=2, cooperative=True, overlap=True))
    attributes = {
        config.attributes[index].id: list(config.attributes[index].value)[:3] for index in range(config.count)
    }
    assert attributes == {2: [1, 0, 0], 6: [1, 0, 0], 4: [2, 1, 1], 5: [1, 0, 0]}
    assert (list(config.grid), list(config.block)) == ([12, 5, 4], [128, 1, 1])
    assert (config.shared, config.stream) == (49_152, 0x70)
    assert cuda_module._config(request(cooperative=True)).count == 1


def test_machine_without_cuda(tmp_path):
    with pytest.raises(MissingToolError, match="NVIDIA's driver"):
        open_driver(Settings(cuda_library=tmp_path / "libcuda.so.1"))
