"""Moved, commented, edited; another Triton, another Python: a hit or a refusal, as the rules of the domain say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from making import edited
from serving import FP32, TARGETS, built, launching

import aotkern
from aotkern.build import builder, staleness, traceplan
from aotkern.build.registry import Source
from aotkern.bundle import Bundle
from aotkern.errors import MissError
from aotkern.target import Target
from aotkern.trace import Trace
from aotkern.triton_bridge.paper import paper_device
from aotkern.triton_bridge.recording import record
from aotkern.triton_bridge.shelf import Refusal, Shelf

pytest.importorskip("triton")

TEXT = '''\
import triton
import triton.language as tl

ADDEND = tl.constexpr(1)


@triton.jit
def helper(value):
    # what is stored
    return value + ADDEND


@triton.jit
def put(x, n):
    """Store one number."""
    tl.store(x, helper(n))
'''
GFX942 = TARGETS[:1]


def module(folder: Path, text: str, name: str = "skewed") -> ModuleType:
    """Import this text as a module, in place of one of the same name."""
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text(text, "utf-8")
    sys.modules.pop(name, None)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Trace, Path, Path]:
    """The trace of `TEXT`, its bundle for gfx942, and the folder of the module."""
    folder = tmp_path_factory.mktemp("skew")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        kernels = module(folder / "first", TEXT)
        with record() as found, paper_device(GFX942[0]):
            kernels.put[(1,)](FP32, 17)
        patch.syspath_prepend(str(folder / "first"))
        (path,) = built(found[0], folder / "bundles", GFX942)
    return found[0], path, folder / "first"


def served(path: Path, kernels: ModuleType) -> aotkern.Installation:
    """Call the kernel of a module with what was recorded, in error mode."""
    installation = aotkern.install(path)
    try:
        with launching("gfx942"):
            kernels.put[(1,)](FP32, 17)
    finally:
        installation.remove()
    return installation


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ((), "skewed"),
        ((), "moved_elsewhere"),
        ((("ADDEND =", "\n\n\n# moved down\nADDEND ="),), "skewed"),
        ((("# what is stored", "# another comment\n"), ("Store one", "Store one")), "skewed"),
    ],
    ids=["another folder", "another module", "moved down", "another comment"],
)
def test_what_computes_the_same_is_served(made, tmp_path, changes, name):
    counts = served(made[1], module(tmp_path / "then", edited(TEXT, *changes), name)).counts
    assert sum(counts.hits.values()) == 1
    assert not counts.misses


@pytest.mark.parametrize(
    ("old", "new"),
    [("value + ADDEND", "value - ADDEND"), ("constexpr(1)", "constexpr(2)"), ("helper(n)", "helper(n) * 2")],
    ids=["callee", "global", "kernel"],
)
def test_what_was_edited_is_stale_and_named(made, tmp_path, old, new):
    with pytest.raises(
        MissError,
        match=r"skewed\.put: stale: its source, or a value that it reads, is not what it was when it was built \(built ",
    ):
        served(made[1], module(tmp_path / "then", edited(TEXT, (old, new))))


def test_a_stale_kernel_is_left_out_of_the_build(made, tmp_path, monkeypatch):
    module(tmp_path / "then", edited(TEXT, ("value + ADDEND", "value - ADDEND")))
    monkeypatch.syspath_prepend(str(tmp_path / "then"))
    (tmp_path / "plan.jsonl").write_bytes(traceplan.planned(made[0], GFX942, widen=False).to_bytes())
    request = builder.Request((Source("trace", tmp_path / "plan.jsonl"),), GFX942, {})
    result = builder.compile_targets(request)
    assert not result.targets
    ((kernel, kind, reason),) = {(row.kernel, row.kind, row.reason) for row in result.left_out}
    assert (kernel, kind) == ("skewed.put", "stale")
    assert reason.startswith("stale: its source has changed (recorded ")


@pytest.mark.parametrize(("new", "proved"), [("ADDEND + value", True), ("value - ADDEND", False)])
def test_a_stale_kernel_is_taken_where_its_code_is_proved_equal(made, tmp_path, monkeypatch, new, proved):
    module(tmp_path / "then", edited(TEXT, ("value + ADDEND", new)))
    monkeypatch.syspath_prepend(str(tmp_path / "then"))
    plan = traceplan.planned(made[0], GFX942, widen=False)
    (tmp_path / "plan.jsonl").write_bytes(plan.to_bytes())
    source = Source("trace", tmp_path / "plan.jsonl", allow_stale=True)
    result = builder.compile_targets(builder.Request((source,), GFX942, {}))
    older = Bundle.open(made[1]).manifest
    staleness.refuse_unproved(result, plan, {GFX942[0]: older})
    if proved:
        assert not result.failures
        assert result.targets[GFX942[0]].manifest.kernels[0].source != older.kernels[0].source
    else:
        assert not result.targets
        assert [error.reason for error in result.failures] == [
            "stale: its code differs from the code that was recorded"
        ]


def test_without_an_older_bundle_nothing_is_proved(made):
    plan = made[0]
    manifest = Bundle.open(made[1]).manifest
    other = Trace.of(row.__class__(row.key, row.module, manifest.objects[0].digest) for row in plan.recorded)
    result = builder.Compilation(targets={GFX942[0]: builder.TargetBuild(manifest, {})})
    staleness.refuse_unproved(result, other, {})
    assert [error.reason for error in result.failures] == [
        "stale, and no bundle for hip:gfx942 shows its recorded code"
    ]


@pytest.mark.parametrize(
    ("version", "mixed", "reason"),
    [
        ("{built}", False, ""),
        ("{built}+local", False, "was built by Triton {built}, this is Triton {built}+local"),
        ("{built}+local", True, ""),
        ("3.5.1", True, "Triton 3.5.1 on hip:gfx942 was not tested; tested are 3.6.0 (hip and cuda), 3.7.1"),
        ("3.10.0", True, "Triton 3.10.0 on hip:gfx942 was not tested"),
        ("", False, "was not tested"),
    ],
)
def test_another_triton_is_refused_by_name(made, version, mixed, reason):
    bundle = Bundle.open(made[1])
    built_by = bundle.manifest.toolchain["triton"]
    source = bundle.manifest.kernels[0].source
    shelf = Shelf([bundle], version.format(built=built_by), mixed=mixed)
    found = shelf.kernels("skewed.put", source, Target.parse("hip:gfx942"))
    if reason:
        assert isinstance(found, Refusal)
        assert reason.format(built=built_by) in found.reason
    else:
        assert [kernel.entry.name for kernel in found] == ["skewed.put"]


def test_the_trace_holds_no_address_path_or_value(made):
    text = made[0].to_bytes().decode()
    assert "skewed.put[hip:gfx942](x:*fp32:DS,n:i32){enable_fp_fusion=True}" in text
    for secret in (str(made[2]), "0x", "/"):
        assert secret not in text
