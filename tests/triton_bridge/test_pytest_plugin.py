"""The marker and the fixture, in a pytest of their own."""

from __future__ import annotations

pytest_plugins = ["pytester"]

SOURCE = """
import pytest
import triton
import triton.language as tl
from aotkern.target import Target
from aotkern.triton_bridge.paper import PaperTensor, paper_device

@triton.jit
def scale(x, n):
    tl.store(x, n)

@pytest.fixture(autouse=True)
def device():
    scale.device_caches.clear()
    with paper_device(Target.parse("gfx942")):
        yield

def call(n):
    scale.warmup(PaperTensor("float32"), n, grid=(1,))

@pytest.mark.jit_budget(1)
def test_within():
    call(16)
    call(32)

@pytest.mark.jit_budget(0)
def test_beyond():
    call(16)

@pytest.mark.jit_budget(0, mode="error")
def test_refused():
    call(16)

def test_fixture(jit):
    call(16)
    jit.ready()
    call(17)
    assert jit.report.count("serving") == 1
"""


def test_a_marked_test_fails_beyond_its_budget(pytester, monkeypatch):
    pytester.makepyfile(test_it=SOURCE)
    # In a process of its own: pytester forgets modules that were imported inside, and Triton cannot be loaded twice.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # an installed aotkern brings the plugin by itself
    result = pytester.runpytest_subprocess("-p", "aotkern.triton_bridge.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*1 compiles, 0 allowed*", "*UnexpectedCompileError*"])
    result.stdout.fnmatch_lines(["*OVER startup: scale, 1 compile*first use of this kernel*"])
