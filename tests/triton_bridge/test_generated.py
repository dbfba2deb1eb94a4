"""Kernels whose modules were generated at run time, as Inductor generates them: recorded as text, built, served."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from serving import TARGETS, built

import aotkern
from aotkern.build import traced, traceplan
from aotkern.build.registry import Source
from aotkern.bundle import Bundle
from aotkern.digest import Digest
from aotkern.errors import InputError, IntegrityError, MissError
from aotkern.trace import GENERATED, Trace
from aotkern.triton_bridge import written
from aotkern.triton_bridge.paper import paper_device
from aotkern.triton_bridge.recording import record

pytest.importorskip("triton")
pytest.importorskip("torch")

TEXT = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

LEVEL = tl.constexpr(0.25)
OFFSET = tl.constexpr(2)


def decorated(function):
    return function


@triton.jit
def _helper(a, b):
    return triton_helpers.maximum(a, b) + OFFSET


@decorated
@triton.jit
def fused(in_ptr0, out_ptr0, ks0, rate, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    value = libdevice.exp(tl.load(in_ptr0 + xindex, xmask)) + rate.to(tl.float32) + ks0
    tl.store(out_ptr0 + xindex, _helper(value, value * LEVEL), xmask)
"""
SIGNATURE = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "ks0": "i64", "rate": "fp64", "xnumel": "i32"}


def generated(folder, name="cabc", text=TEXT) -> ModuleType:
    """A module as Inductor loads it: executed from a file, in `sys.modules`, without a spec."""
    path = folder / f"{name}.py"
    path.write_text(text)
    module = ModuleType(f"torch._inductor.runtime.compile_tasks.{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def compiled(module, target, **types):
    """The kernel, asked for as Inductor asks."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {**SIGNATURE, **types, "XBLOCK": "constexpr"}
    attributes = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]], (4,): [["tt.divisibility", 16]]}
    source = ASTSource(module.fused, signature, {"XBLOCK": 64}, attributes)
    arch = target.arch if target.backend.value == "hip" else int(target.arch)
    gpu = GPUTarget(target.backend.value, arch, target.limits.wave)
    return triton.compile(source, target=gpu, options={"num_warps": 4})


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    module = generated(tmp_path_factory.mktemp("inductor"))
    with record() as found:
        for target in TARGETS:
            with paper_device(target):
                compiled(module, target)
    return found[0]


@pytest.fixture(scope="module")
def bundles(trace, tmp_path_factory):
    return built(trace, tmp_path_factory.mktemp("bundles"))


def test_the_text_holds_what_the_kernel_uses_and_nothing_of_where_it_stood(trace):
    assert not trace.unbuildable
    assert len(trace.recorded) == len(TARGETS)
    row = trace.recorded[0]
    assert row.module.startswith(GENERATED)
    assert row.key.kernel == f"{row.module}.fused"
    for part in (
        "def _helper",
        "def fused",
        "LEVEL = triton.language.constexpr(0.25)",
        "OFFSET = triton.language.constexpr(2)",
    ):
        assert part in row.text
    assert "import torch._inductor.runtime.triton_helpers as triton_helpers" in row.text
    for absent in ("decorated", "/", "cabc", "XBLOCK :  "):
        assert absent not in row.text.replace(" / ", "")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_it_is_served_to_a_module_that_was_generated_again(bundles, tmp_path, target, monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    again = generated(tmp_path, "cother")
    with paper_device(target):
        expected = compiled(again, target)
        installation = aotkern.install(bundles, on_miss="error")
        try:
            served = compiled(again, target)
            with pytest.raises(MissError, match="rate: fp32"):
                compiled(again, target, rate="fp32")
        finally:
            installation.remove()
    assert type(served).__name__ == "PrebuiltKernel"
    assert served.kernel == expected.kernel
    assert sum(installation.counts.hits.values()) == 1


def test_an_equal_kernel_of_another_module_hides_no_variant(trace, bundles, tmp_path):
    """`torch.compile` copies a program's own kernel: two names, one source, other argument types."""
    program = generated(tmp_path, "cprogram")
    with record() as found, paper_device(TARGETS[0]):
        compiled(program, TARGETS[0], rate="fp32")
    row = found[0].recorded[0]
    text = row.text + "# another module\n"
    name = f"{GENERATED}{Digest.of(text.encode()).hex[:12]}"
    renamed = replace(row, module=name, text=text, key=replace(row.key, kernel=f"{name}.fused"))
    both = built(Trace.of([*trace.recorded, renamed]), tmp_path / "both", TARGETS[:1])
    assert len({kernel.source for kernel in Bundle.open(both[0]).manifest.kernels}) == 1
    installation = aotkern.install(both, on_miss="error")
    try:
        with paper_device(TARGETS[0]):
            for kind in ("fp64", "fp32"):
                assert type(compiled(program, TARGETS[0], rate=kind)).__name__ == "PrebuiltKernel"
    finally:
        installation.remove()


def test_an_edited_helper_is_another_kernel(bundles, tmp_path):
    edited = generated(tmp_path, "cedited", TEXT.replace("constexpr(2)", "constexpr(3)"))
    installation = aotkern.install(bundles, on_miss="error")
    try:
        with paper_device(TARGETS[0]), pytest.raises(MissError, match="no bundle has this kernel"):
            compiled(edited, TARGETS[0])
    finally:
        installation.remove()


def test_a_helper_that_torch_defines_is_part_of_the_identity(tmp_path, monkeypatch):
    import triton
    from torch._inductor.runtime import triton_helpers

    from aotkern import closure

    text = TEXT.replace("maximum", "minimum")
    before = closure.digest([generated(tmp_path, "cone", text).fused])
    assert closure.digest([generated(tmp_path, "ctwo", text).fused]) == before
    path = tmp_path / "changed.py"
    path.write_text("import triton\n@triton.jit\ndef minimum(a, b):\n    return a - b\n")
    found: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), found)
    assert isinstance(found["minimum"], triton.JITFunction)
    monkeypatch.setattr(triton_helpers, "minimum", found["minimum"])
    assert closure.digest([generated(tmp_path, "cthree", text).fused]) != before


def test_text_is_executed_only_if_somebody_asks(trace, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(trace.to_bytes())
    common = [
        sys.executable,
        "-m",
        "aotkern",
        "build",
        "--from",
        str(path),
        "-t",
        "gfx942",
        "-o",
        str(tmp_path / "out"),
        "--no-cache",
    ]
    refused = subprocess.run(common, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "generated at run time; --generated builds it" in refused.stderr
    done = subprocess.run([*common, "--generated"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [kernel.name for kernel in Bundle.open(tmp_path / "out" / "trace.gfx942.aotk").manifest.kernels] == [
        trace.recorded[0].key.kernel
    ]


def test_a_text_that_is_not_what_its_name_says_is_refused(trace):
    row = trace.recorded[0]
    changed = Trace.of([replace(row, text=row.text + "print(1)\n")])
    with pytest.raises(IntegrityError, match="by the digest of its text"):
        Trace.parse(changed.to_bytes(), "t")


def test_a_text_that_does_not_run_is_named(trace, tmp_path):
    text = "import no_such_module_anywhere\n" + trace.recorded[0].text
    name = f"{GENERATED}{Digest.of(text.encode()).hex[:12]}"
    row = trace.recorded[0]
    moved = replace(row, module=name, text=text, key=replace(row.key, kernel=f"{name}.fused"))
    path = tmp_path / "plan.jsonl"
    path.write_bytes(Trace.of([moved]).to_bytes())
    (left,) = traced.load(Source("trace", path, generated=True)).left_out
    assert (left.kernel, left.target, left.kind) == (f"{name}.fused", str(row.key.target), "import")
    assert "its text does not run here: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in left.reason


def test_a_global_that_is_no_constant_is_named(tmp_path):
    module = generated(tmp_path, "cobject", TEXT.replace("constexpr(2)", "constexpr(object())"))
    with pytest.raises(InputError, match=r"_helper: OFFSET: expected something to import, or a number or text"):
        written.write(module.fused)


def test_a_trace_without_the_text_is_planned_as_before(trace):
    plain = traceplan.without_generated(trace)
    assert not plain.recorded
    assert [row.kernel for row in plain.unbuildable] == [row.key.kernel for row in trace.recorded]
