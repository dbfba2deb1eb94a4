"""docs/limits.md, line by line: each thing that is not supported is tried, and gets the refusal that the page names."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aotkern.arguments import Pointer, common_device, read
from aotkern.bundle import Bundle
from aotkern.drivers.null import NullDriver
from aotkern.errors import AotkernError, InputError, MissError, TargetError
from aotkern.spec import Kernel, Parameter
from aotkern.target import Target
from aotkern.triton_bridge.shelf import Refusal, Shelf

PAGE = (Path(__file__).parents[1] / "docs" / "limits.md").read_text("utf-8")
CELLS = Parameter("x")
SOURCE = """
import triton
import triton.language as tl
from triton.experimental import gluon

@triton.jit
def constant(x, C: tl.constexpr):
    tl.store(x, 1)

@triton.jit
def descriptor(d, x):
    tl.store(x, 1)

@gluon.jit
def inside(x):
    pass

def made():
    @triton.jit
    def closure(x):
        tl.store(x, 1)
    return closure
"""


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int = 1


class Pair(NamedTuple):
    first: int
    second: int


def local_member() -> object:
    """A member of an enum that no module holds."""

    class Mode(enum.Enum):
        FAST = 1

    return Mode.FAST


def named_tuple(kernels, x):
    """A call with a named tuple whose items are run-time arguments."""
    kernels.descriptor[(1,)](Pair(3, 5), x)


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    import importlib

    (tmp_path / "limits_kernels.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.delitem(__import__("sys").modules, "limits_kernels", raising=False)
    return importlib.import_module("limits_kernels")


@pytest.fixture
def served(kernels, small_bundle, tmp_path):
    """Run a call with misses as errors; the refusal."""
    import aotkern
    from aotkern.triton_bridge.paper import PaperTensor, paper_device

    path = tmp_path / "small.gfx942.aotk"
    path.write_bytes(small_bundle)

    def run(call: Callable) -> str:
        installation = aotkern.install(path)
        try:
            with paper_device(Target.parse("gfx942")), pytest.raises(MissError) as error:
                call(kernels, PaperTensor("float32"))
        finally:
            installation.remove()
        return str(error.value)

    return run


def host_descriptor(served) -> str:
    torch = pytest.importorskip("torch")
    from triton.tools.tensor_descriptor import TensorDescriptor

    from aotkern.triton_bridge.paper import PaperTensor

    made = TensorDescriptor(PaperTensor(torch.float16), [64, 64], [64, 1], [16, 16])
    return served(lambda kernels, x: kernels.descriptor[(1,)](made, x))


def constant(value) -> Callable:
    return lambda served: served(lambda kernels, x: kernels.constant[(1,)](x, value))


def closure(kernels) -> str:
    import aotkern
    from aotkern.triton_bridge.paper import PaperTensor, paper_device

    with aotkern.record() as found, paper_device(Target.parse("gfx942")):
        kernels.made()[(1,)](PaperTensor("float32"))
    return "\n".join(f"{row.kernel}: {row.reason}" for row in found[0].unbuildable)


def raised(kind: type[AotkernError], call: Callable) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


def tuned(kernels) -> str:
    import triton

    function = triton.autotune([triton.Config({}), triton.Config({}, num_warps=8)], key=[])(kernels.descriptor)
    return raised(InputError, lambda: Kernel(function))


def of_numpy(kind: str) -> str:
    numpy = pytest.importorskip("numpy")
    return raised(InputError, lambda: read(CELLS, numpy.zeros(4, kind), "k: x"))


def other_triton(small_bundle) -> str:
    bundle = Bundle.decode(small_bundle, "b")
    entry = bundle.manifest.kernels[0]
    found = Shelf((bundle,), "99.0", mixed=True).kernels(entry.name, entry.source, bundle.manifest.target)
    assert isinstance(found, Refusal)
    return found.reason


def relative(small_bundle, tmp_path) -> str:
    import aotkern

    (tmp_path / "b.gfx942.aotk").write_bytes(small_bundle)
    return raised(TargetError, lambda: aotkern.load(tmp_path / "b.gfx942.aotk", device="null:gfx950"))


def too_much_shared() -> str:
    return raised(InputError, lambda: NullDriver((Target.parse("gfx942"),)).load(0, b"", "k", 70_000))


GPUS = (Pointer(4096, "fp32", 64, 0), Pointer(4096, "fp32", 64, 1))
HOST = (Pointer(4096, "fp32", 64, None, host=True),)
TRIALS = {
    "host-descriptor": (host_descriptor, "cannot be prebuilt"),
    "gluon": (lambda served: served(lambda kernels, x: kernels.inside[(1,)](x)), "expected a kernel written in Triton"),
    "constant-dataclass": (constant(Shape()), "Shape"),
    "constant-local": (constant(local_member()), "<locals>"),
    "argument-namedtuple": (lambda served: served(named_tuple), "Pair"),
    "constant-object": (constant(print), "builtin_function_or_method"),
    "closure": (closure, "closure"),
    "several-devices": (lambda: raised(InputError, lambda: common_device(GPUS, "k")), "found devices 0, 1"),
    "host-memory": (lambda: raised(InputError, lambda: common_device(HOST, "k")), "one in host memory at 0x1000"),
    "element-type": (lambda: of_numpy("complex64"), "an element type that Triton has"),
    "big-endian": (lambda: of_numpy(">f4"), "little endian"),
    "architecture": (lambda: raised(InputError, lambda: Target.parse("gfx90a")), "hip:gfx942, hip:gfx950, cuda:80"),
    "relative": (relative, "built for gfx942, the device is gfx950"),
    "triton-version": (other_triton, "99.0"),
    "shared-memory": (too_much_shared, "at most 65536 bytes on device 0, found 70000"),
    "autotuner": (tuned, "declare it.fn,"),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIALS)
def test_what_is_not_supported_is_refused_by_name(name, request):
    trial, words = TRIALS[name]
    needed = trial.__code__.co_varnames[: trial.__code__.co_argcount]
    assert words in trial(*map(request.getfixturevalue, needed))


def test_the_page_lists_what_is_tried_and_nothing_else():
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(TRIALS)
    assert "docs/limits.md" in (Path(__file__).parents[1] / "README.md").read_text("utf-8")
