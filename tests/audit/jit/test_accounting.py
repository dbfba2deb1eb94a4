"""Which compiles are seen: every route, once each, beside whatever the program hooks in itself."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import triton
from jit_kernels import blocks, fresh, scale
from triton import knobs
from triton.backends.compiler import GPUTarget

from aotkern.audit.counting import count_jit
from aotkern.triton_bridge.paper import PaperTensor
from aotkern.triton_bridge.slots import Slot

X = PaperTensor("float32")
GFX942 = GPUTarget("hip", "gfx942", 64)


def direct(kernel, n: str = "i32"):
    return triton.compile(triton.compiler.ASTSource(kernel, {"x": "*fp32", "n": n}), target=GFX942)


def routes(jit) -> list[str]:
    return [compile_.route for compile_ in jit.compiles]


def outcomes(jit) -> list[str]:
    return [str(compile_.outcome) for compile_ in jit.compiles]


def test_each_route_is_counted_once_and_tagged(device):
    device("gfx942")
    with count_jit() as jit:
        direct(fresh(scale))
        kernel = fresh(scale)
        kernel.warmup(X, 3, grid=(1,))
        kernel[(1,)](X, 16)
        kernel[(1,)](X, 32)
    assert routes(jit) == ["direct", "warmup", "jit"]
    assert all(compile_.seconds > 0 for compile_ in jit.compiles)
    assert jit.compiles[1].stack[0].startswith("test_accounting:test_each_route_is_counted_once_and_tagged:")


def test_a_disk_cache_hit_is_told_from_a_compile(device):
    device("gfx942")
    with count_jit() as jit:
        fresh(scale)[(1,)](X, 16)
        fresh(scale)[(1,)](X, 16)
    assert outcomes(jit) == ["compiled", "cached"]
    assert jit.compiles[0].object == jit.compiles[1].object
    row = jit.report.rows[0]
    assert (row.count, row.variants) == (2, 1)
    assert row.causes[0].message == "the same variant compiled again 1 times in one process"


def test_a_caller_that_took_compile_before_the_watch_is_seen(device):
    device("gfx942")
    kernel = fresh(scale)
    kernel[(1,)](X, 16)
    taken = triton.compile
    with count_jit() as jit:
        kernel[(1,)](X, 17)
        taken(triton.compiler.ASTSource(fresh(scale), {"x": "*fp32", "n": "i64"}), target=GFX942)
    assert routes(jit) == ["jit", "direct"]
    assert outcomes(jit) == ["compiled", "compiled"]


def test_asynchronous_compiles_are_counted_once(device):
    device("gfx942")
    kernel = fresh(blocks)
    with count_jit() as jit, ThreadPoolExecutor(2) as pool, triton.AsyncCompileMode(pool):
        for value in (1, 2, 3, 3):
            kernel.warmup(X, B=value, grid=(1,))
    assert routes(jit) == ["warmup"] * 3
    assert outcomes(jit) == ["compiled"] * 3


def test_a_compile_that_fails_is_counted_and_closed(device):
    device("gfx942")
    with count_jit() as jit, pytest.raises(Exception, match="constexpr"):
        fresh(blocks).warmup(X, B="text", grid=(1,))
    assert outcomes(jit) == ["failed"]
    assert jit.compiles[0].error


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_programs_own_listener_and_hooks_are_called_and_never_replaced(device, when, monkeypatch):
    device("gfx942")
    heard = []

    def listener(**event):
        heard.append(("listener", event["cache_hit"]))

    def hook(**event):
        heard.append(("hook", event["is_manual_warmup"]))

    def install():
        monkeypatch.setattr(knobs.compilation, "listener", listener)
        monkeypatch.setattr(knobs.runtime, "jit_cache_hook", hook)

    if when == "before":
        install()
    with count_jit() as jit:
        assert knobs.compilation.listener is (listener if when == "before" else None)
        install()
        assert knobs.runtime.jit_cache_hook is hook
        fresh(scale)[(1,)](X, 16)
    assert heard == [("hook", False), ("listener", False)]
    assert jit.count == 1
    assert knobs.compilation.listener is listener
    assert knobs.runtime.jit_cache_hook is hook


def test_a_hook_of_the_program_that_vetoes_a_compile_still_does(device, monkeypatch):
    device("gfx942")
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **event: True)
    with count_jit() as jit:
        assert fresh(scale)[(1,)](X, 16) is None
    assert jit.count == 0


def test_a_program_that_saves_calls_and_restores_hooks_hears_each_once(device, monkeypatch):
    device("gfx942")
    heard = []
    with count_jit() as jit:
        saved = knobs.compilation.listener

        def chained(**event):
            heard.append(event["cache_hit"])
            if saved is not None:
                saved(**event)

        monkeypatch.setattr(knobs.compilation, "listener", chained)
        fresh(scale)[(1,)](X, 16)
        with knobs.compilation.scope():
            knobs.compilation.listener = None
            fresh(scale)[(1,)](X, 17)
    assert heard == [False]
    assert jit.count == 2


def test_nothing_is_left_on_triton_afterwards(device):
    device("gfx942")
    before = (
        triton.compile,
        triton.compiler.compile,
        dict(vars(type(knobs.compilation))),
        dict(vars(type(knobs.runtime))),
    )
    with count_jit() as jit:
        pass
    after = (
        triton.compile,
        triton.compiler.compile,
        dict(vars(type(knobs.compilation))),
        dict(vars(type(knobs.runtime))),
    )
    assert before == after
    assert jit.report.verdict.exit_code == 0


def test_autotuning_again_is_not_compiling_again(device):
    device("gfx942")

    configs = [triton.Config({}, num_warps=warps) for warps in (4, 8)]
    tuned = triton.autotune(configs, key=["n"])(fresh(scale))
    with count_jit() as jit:
        for n in range(16, 16 * 21, 16):
            tuned[(1,)](X, n)
    report = jit.report
    assert routes(jit) == ["autotune", "autotune"]
    assert report.count() == 2
    assert len(report.tunings) == 1
    row = report.tunings[0]
    assert (row.count, row.keys, dict(row.varying)) == (20, 20, {"n": 20})
    assert "every key chose the same configuration: take it out of the key" in row.message
    assert report.rows[0].causes[0].kind == "tuned"


def test_a_launcher_stub_is_a_compile(tmp_path):
    from triton.runtime.build import compile_module_from_src

    source = """
#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "stub", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&def); }
"""
    with count_jit() as jit:
        compile_module_from_src(source, "stub")
        compile_module_from_src(source, "stub")
    assert routes(jit) == ["launcher"]
    assert jit.compiles[0].kernel == "stub"
    assert outcomes(jit) == ["compiled"]


def test_the_report_says_what_was_and_was_not_watched(monkeypatch):
    monkeypatch.setitem(sys.modules, "tilelang", sys.modules[__name__])
    with count_jit() as jit:
        pass
    log = jit.report.log
    assert "triton.compile" in log.watched
    assert log.missing == ()
    assert "tilelang" in log.foreign
    assert log.versions == (triton.__version__,)


def test_another_compiler_that_is_imported_later_is_named(tmp_path, monkeypatch):
    (tmp_path / "tilelang.py").write_text("def compile(source):\n    return source\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tilelang", raising=False)
    with count_jit() as jit:
        assert jit.report.log.foreign.count("tilelang") == 0
        import tilelang

        assert tilelang.compile("kernel") == "kernel"
    assert jit.report.log.foreign.count("tilelang") == 1
    assert jit.count == 0
    monkeypatch.delitem(sys.modules, "tilelang")


def test_a_launch_that_hits_passes_no_observer(device, monkeypatch):
    device("gfx942")
    kernel = fresh(scale)
    with count_jit() as jit:
        kernel[(1,)](X, 16)
        reads = []
        plain = Slot.__get__
        monkeypatch.setattr(Slot, "__get__", lambda slot, *args: reads.append(slot) or plain(slot, *args))
        for _ in range(100):
            kernel[(1,)](X, 32)
        assert reads == []
        kernel[(1,)](X, 17)
        assert reads
    assert jit.count == 2


def test_a_triton_without_a_hook_is_said_to_lack_it(device, monkeypatch):
    device("gfx942")
    monkeypatch.delattr(type(knobs.compilation), "listener")
    monkeypatch.setattr(knobs.compilation, "listener", None, raising=False)
    with count_jit() as jit:
        fresh(scale)[(1,)](X, 16)
    assert jit.report.log.missing == ("knobs.compilation.listener: disk cache hits look like compiles",)
    assert outcomes(jit) == ["finished"]
